"""Every knob that this tool can apply and read back, as data.

A search space gives a knob its values and says where it is live; here stands what does not depend
on the host: when it applies, whether it changes numerics, and how a program sets it. Any other
environment variable may be searched too, as `env.NAME`: nothing can be read back of it, so it stays
`environment_only`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass


class Applies(StrEnum):
    """When a knob takes effect, earliest first."""

    LAUNCH = "launch"
    """Environment, preload, affinity, memory policy: a new process each."""
    PROCESS = "process"
    """Once, before any work."""
    MODEL = "model"
    """Rebuild or compile."""
    CALL = "call"
    """Any time."""


class Knob(msgspec.Struct, frozen=True):
    """What a knob is on every host."""

    id: str
    applies: Applies
    title: str
    changes_numerics: bool = False
    frameworks: tuple[str, ...] = ()
    """The frameworks in which it exists; empty for all."""
    how: str = ""
    """How a program sets it, in one line; `{value}` is replaced. Launch knobs need none."""

    @property
    def needs_code_change(self) -> bool:
        """Whether the user's program must change, as opposed to how it is started."""
        return self.applies in (Applies.PROCESS, Applies.MODEL)


BATCH = "workload.batch"
ALLOCATOR = "launch.allocator"
NUMA_NODE = "launch.numa_node"

_KNOBS = (
    Knob(BATCH, Applies.CALL, "batch size", how="call the model with batches of {value}"),
    Knob(ALLOCATOR, Applies.LAUNCH, "memory allocator, by LD_PRELOAD"),
    Knob(NUMA_NODE, Applies.LAUNCH, "one NUMA node's CPUs and memory, or none"),
    Knob("env.OMP_NUM_THREADS", Applies.LAUNCH, "intra-op threads of PyTorch (OpenMP)"),
    Knob(
        "env.DNNL_DEFAULT_FPMATH_MODE",
        Applies.LAUNCH,
        "precision of fp32 products in oneDNN",
        changes_numerics=True,
    ),
    Knob(
        "env.TF_NUM_INTRAOP_THREADS",
        Applies.LAUNCH,
        "intra-op threads of TensorFlow",
        frameworks=("tensorflow",),
    ),
    Knob(
        "env.TF_NUM_INTEROP_THREADS",
        Applies.LAUNCH,
        "inter-op threads of TensorFlow",
        frameworks=("tensorflow",),
    ),
    Knob(
        "torch.interop_threads",
        Applies.PROCESS,
        "inter-op threads of PyTorch",
        frameworks=("torch",),
        how="torch.set_num_interop_threads({value})",
    ),
    Knob(
        "torch.memory_format",
        Applies.MODEL,
        "layout of image tensors",
        frameworks=("torch",),
        how="model.to(memory_format=torch.{value}), and the inputs likewise",
    ),
    Knob(
        "torch.compile.mode",
        Applies.MODEL,
        "TorchInductor",
        frameworks=("torch",),
        how="mode {value}: model = torch.compile(model), called under torch.inference_mode(); the "
        "mode freezing needs torch._inductor.config.freezing = True before the first call",
    ),
    Knob(
        "torch.autocast",
        Applies.MODEL,
        "automatic mixed precision of PyTorch",
        changes_numerics=True,
        frameworks=("torch",),
        how="with torch.autocast('cpu', dtype=torch.bfloat16): model(x)",
    ),
    Knob(
        "tensorflow.frozen",
        Applies.MODEL,
        "variables folded into constants",
        frameworks=("tensorflow",),
        how="f = convert_variables_to_constants_v2(f) on the concrete function f",
    ),
    Knob(
        "tensorflow.jit_compile",
        Applies.MODEL,
        "XLA",
        frameworks=("tensorflow",),
        how="tf.function(..., jit_compile=True)",
    ),
    Knob(
        "tensorflow.auto_mixed_precision",
        Applies.MODEL,
        "bf16 by the graph optimiser",
        changes_numerics=True,
        frameworks=("tensorflow",),
        how="tf.config.optimizer.set_experimental_options("
        "{{'auto_mixed_precision_onednn_bfloat16': True}}) before tracing",
    ),
    Knob("fake.layout", Applies.MODEL, "layout of the fake model", frameworks=("fake",)),
    Knob("fake.compile", Applies.MODEL, "compiler of the fake model", frameworks=("fake",)),
    Knob("fake.streams", Applies.PROCESS, "streams of the fake model", frameworks=("fake",)),
    Knob(
        "fake.precision",
        Applies.MODEL,
        "precision of the fake model",
        changes_numerics=True,
        frameworks=("fake",),
    ),
)
KNOBS: dict[str, Knob] = {knob.id: knob for knob in _KNOBS}


def is_known(knob: str) -> bool:
    """Tell whether a knob exists: one of the catalogue, or an environment variable."""
    return knob in KNOBS or (knob.startswith("env.") and len(knob) > len("env."))


def describe(knob: str) -> Knob:
    """Return what a knob is; an environment variable outside the catalogue is a launch knob."""
    return KNOBS.get(knob) or Knob(knob, Applies.LAUNCH, f"environment variable {knob[4:]}")


def winner_class(configuration: Configuration) -> WinnerClass:
    """Return the narrowest class that allows the configuration; the batch is free in each."""
    knobs = [describe(knob) for knob, _ in configuration.settings if knob != BATCH]
    if any(knob.changes_numerics for knob in knobs):
        return WinnerClass.REDUCED
    if any(knob.applies is not Applies.LAUNCH for knob in knobs):
        return WinnerClass.SAME
    return WinnerClass.LAUNCH_ONLY
