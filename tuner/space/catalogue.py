"""Every knob that this tool can apply and read back, as data.

A search space gives a knob its values and says where it is live; here stands what does not depend
on the host: when it applies, whether it changes numerics, and how a program sets it. Any other
environment variable may be searched too, as `env.NAME`: nothing can be read back of it, so it stays
`environment_only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec


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
    marker: str = ""
    """What compiled code that reads the variable holds; empty where that would say nothing."""

    @property
    def needs_code_change(self) -> bool:
        """Whether the user's program must change, as opposed to how it is started."""
        return self.applies in (Applies.PROCESS, Applies.MODEL)


BATCH = "workload.batch"
ALLOCATOR = "launch.allocator"
OPENMP = "launch.openmp"
CPUS = "launch.cpus"
NUMA_NODE = "launch.numa_node"
INSTANCES = "launch.instances"
CORES_PER_INSTANCE = "launch.cores_per_instance"
PLACEMENT = "launch.placement"
MEMORY_POLICY = "launch.memory_policy"

PRELOADED: dict[str, tuple[str, ...]] = {
    ALLOCATOR: ("tcmalloc", "jemalloc", "mimalloc"),
    OPENMP: ("libomp", "libiomp5"),
}
"""The libraries that a launch can preload, by knob (found by host/libraries.py)."""


def _variable(
    name: str,
    title: str,
    frameworks: tuple[str, ...] = (),
    *,
    marker: str = "",
    changes_numerics: bool = False,
) -> Knob:
    return Knob(
        f"env.{name}",
        Applies.LAUNCH,
        title,
        changes_numerics=changes_numerics,
        frameworks=frameworks,
        marker=marker,
    )


def _model(id_: str, title: str, how: str, *, changes_numerics: bool = False) -> Knob:
    return Knob(id_, Applies.MODEL, title, changes_numerics, how=how)


_LAUNCH = (
    Knob(BATCH, Applies.CALL, "batch size", how="call the model with batches of {value}"),
    Knob(ALLOCATOR, Applies.LAUNCH, "memory allocator, by LD_PRELOAD"),
    Knob(OPENMP, Applies.LAUNCH, "OpenMP runtime, by LD_PRELOAD", frameworks=("torch",)),
    Knob(CPUS, Applies.LAUNCH, "CPUs: all allowed ones, or one of each physical core"),
    Knob(NUMA_NODE, Applies.LAUNCH, "one NUMA node's CPUs and memory, or none"),
    Knob(INSTANCES, Applies.LAUNCH, "processes that share the work, each with cores of its own"),
    Knob(CORES_PER_INSTANCE, Applies.LAUNCH, "physical cores of each instance"),
    Knob(PLACEMENT, Applies.LAUNCH, "how instances are laid over nodes and last-level caches"),
    Knob(MEMORY_POLICY, Applies.LAUNCH, "memory near its CPU, bound there, or interleaved"),
)
_ALLOCATORS = (
    _variable("MALLOC_CONF", "jemalloc's options"),
    _variable("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "tcmalloc's thread caches"),
    _variable("MIMALLOC_LARGE_OS_PAGES", "huge pages for mimalloc"),
    _variable("GLIBC_TUNABLES", "glibc malloc's thresholds and huge pages"),
    _variable(
        "THP_MEM_ALLOC_ENABLE", "huge pages for large tensors", ("torch",),
        marker="THP_MEM_ALLOC_ENABLE",
    ),
)  # fmt: skip
_OPENMP = (
    _variable("OMP_NUM_THREADS", "intra-op threads of PyTorch (OpenMP)"),
    _variable("MKL_NUM_THREADS", "threads of MKL, and of PyTorch with it"),
    _variable("OMP_WAIT_POLICY", "whether waiting threads spin (ACTIVE) or sleep (PASSIVE)"),
    _variable("OMP_PROC_BIND", "binding of threads to places"),
    _variable("OMP_PLACES", "what a place is: a core or a hardware thread"),
    _variable("OMP_SCHEDULE", "schedule of loops that leave it open"),
    _variable("OMP_DYNAMIC", "whether the runtime may use fewer threads"),
    _variable("OMP_THREAD_LIMIT", "upper bound of threads"),
    _variable("GOMP_CPU_AFFINITY", "CPUs of libgomp's threads, in order"),
    _variable("KMP_AFFINITY", "binding of threads in libiomp5 and libomp"),
    _variable("KMP_BLOCKTIME", "milliseconds that waiting threads spin in libiomp5 and libomp"),
    _variable("KMP_TPAUSE", "waiting by the tpause instruction in libiomp5 and libomp"),
    _variable("KMP_FORKJOIN_BARRIER_PATTERN", "barrier around parallel regions"),
    _variable("KMP_PLAIN_BARRIER_PATTERN", "barrier between pieces of work"),
    _variable("KMP_REDUCTION_BARRIER_PATTERN", "barrier of reductions"),
)
_ONEDNN = (
    _variable("ONEDNN_MAX_CPU_ISA", "newest instructions that oneDNN uses", marker="MAX_CPU_ISA"),
    _variable(
        "ONEDNN_DEFAULT_FPMATH_MODE", "precision of fp32 products in oneDNN",
        marker="DEFAULT_FPMATH_MODE", changes_numerics=True,
    ),
    _variable(
        "DNNL_DEFAULT_FPMATH_MODE", "older name of ONEDNN_DEFAULT_FPMATH_MODE",
        marker="DEFAULT_FPMATH_MODE", changes_numerics=True,
    ),
    _variable(
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "how many compiled kernels oneDNN keeps",
        marker="PRIMITIVE_CACHE_CAPACITY",
    ),
)  # fmt: skip
_TORCH_KNOBS = (
    _variable(
        "ATEN_CPU_CAPABILITY", "newest instructions of PyTorch's own kernels",
        marker="ATEN_CPU_CAPABILITY",
    ),
    _variable(
        "LRU_CACHE_CAPACITY", "how many oneDNN kernels PyTorch keeps",
        marker="LRU_CACHE_CAPACITY",
    ),
    _variable(
        "TORCH_MKLDNN_MATMUL_MIN_DIM", "smallest matrix that goes to oneDNN (Arm)",
        marker="TORCH_MKLDNN_MATMUL_MIN_DIM",
    ),
    Knob(
        "torch.interop_threads", Applies.PROCESS, "inter-op threads of PyTorch",
        how="torch.set_num_interop_threads({value})",
    ),
    Knob(
        "torch.flush_denormal", Applies.PROCESS, "numbers below 1e-38 count as zero",
        how="torch.set_flush_denormal({value})",
    ),
    _model(
        "torch.mkldnn", "oneDNN's kernels in PyTorch",
        "torch.backends.mkldnn.set_flags({value})",
    ),
    _model(
        "torch.weights", "weights in a mapped file, whose pages instances share",
        "{value}: model.load_state_dict(torch.load('weights.pt', mmap=True), assign=True), of a "
        "file that all instances read",
    ),
    _model(
        "torch.memory_format", "layout of image tensors",
        "model.to(memory_format=torch.{value}), and the inputs likewise",
    ),
    _model(
        "torch.compile.mode", "TorchInductor",
        "mode {value}: model = torch.compile(model), called under torch.inference_mode(); the mode "
        "freezing needs torch._inductor.config.freezing = True before the first call",
    ),
    _model(
        "torch.compile.max_autotune", "TorchInductor's choice of product kernels by trial",
        "torch._inductor.config.max_autotune = {value} before the first call",
    ),
    _model(
        "torch.compile.cpp_wrapper", "TorchInductor's calls in C++",
        "torch._inductor.config.cpp_wrapper = {value} before the first call",
    ),
    _model(
        "torch.jit.mode", "TorchScript, traced and frozen",
        "model = torch.jit.freeze(torch.jit.trace(model, inputs)); mode optimize needs "
        "torch.jit.optimize_for_inference(model) around it (here: {value})",
    ),
    _model(
        "torch.export.mode", "exported and compiled ahead of time",
        "{value}: torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs)), "
        "loaded with torch._inductor.aoti_load_package",
    ),
    _model(
        "torch.autocast", "automatic mixed precision of PyTorch",
        "with torch.autocast('cpu', dtype=torch.bfloat16): model(x)",
        changes_numerics=True,
    ),
    _model(
        "torch.dtype", "weights and inputs converted",
        "model.to(torch.bfloat16), and floating-point inputs likewise (here: {value})",
        changes_numerics=True,
    ),
    _model(
        "torch.fp32_precision", "precision of fp32 products in oneDNN, set in the program",
        "torch.backends.mkldnn.matmul.fp32_precision = torch.backends.mkldnn.conv.fp32_precision "
        "= '{value}'",
        changes_numerics=True,
    ),
)  # fmt: skip
_TENSORFLOW_KNOBS = (
    _variable("TF_NUM_INTRAOP_THREADS", "intra-op threads of TensorFlow"),
    _variable("TF_NUM_INTEROP_THREADS", "inter-op threads of TensorFlow"),
    _variable(
        "TF_ENABLE_ONEDNN_OPTS", "oneDNN's kernels in TensorFlow",
        marker="TF_ENABLE_ONEDNN_OPTS",
    ),
    _variable(
        "TF_ENABLE_MKL_NATIVE_FORMAT", "TensorFlow's own layout in oneDNN's kernels",
        marker="TF_ENABLE_MKL_NATIVE_FORMAT",
    ),
    _variable(
        "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "keep reordered weights",
        marker="TF_ONEDNN_ASSUME_FROZEN_WEIGHTS",
    ),
    _variable(
        "TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "malloc instead of TensorFlow's pool",
        marker="TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
    ),
    _variable(
        "TF_MKL_ALLOC_MAX_BYTES", "size of TensorFlow's pool for oneDNN",
        marker="TF_MKL_ALLOC_MAX_BYTES",
    ),
    _variable(
        "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE", "false keeps oneDNN's kernels in a cache",
        marker="TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE",
    ),
    _variable(
        "TF_XLA_FLAGS", "XLA for whatever it can cluster", marker="TF_XLA_FLAGS"
    ),
    _model(
        "tensorflow.frozen", "variables folded into constants",
        "f = convert_variables_to_constants_v2(f) on the concrete function f",
    ),
    _model(
        "tensorflow.jit_compile", "XLA for the whole function",
        "tf.function(..., jit_compile=True)",
    ),
    _model(
        "tensorflow.data_format", "layout of image tensors",
        "build the model with data_format {value}",
    ),
    _model(
        "tensorflow.layout_optimizer", "grappler's layout pass",
        "tf.config.optimizer.set_experimental_options({{'layout_optimizer': {value}}}) "
        "before tracing",
    ),
    _model(
        "tensorflow.remapping", "grappler's fusing of operators",
        "tf.config.optimizer.set_experimental_options({{'remapping': {value}}}) before tracing",
    ),
    _model(
        "tensorflow.auto_mixed_precision", "bf16 by the graph optimiser",
        "tf.config.optimizer.set_experimental_options("
        "{{'auto_mixed_precision_onednn_bfloat16': True}}) before tracing",
        changes_numerics=True,
    ),
    _model(
        "tensorflow.keras_policy", "bf16 by Keras's policy",
        "tf.keras.mixed_precision.set_global_policy('{value}') before the model is built",
        changes_numerics=True,
    ),
)  # fmt: skip
_FAKE_KNOBS = (
    Knob("fake.layout", Applies.MODEL, "layout of the fake model"),
    Knob("fake.compile", Applies.MODEL, "compiler of the fake model"),
    Knob("fake.streams", Applies.PROCESS, "streams of the fake model"),
    Knob(
        "fake.precision",
        Applies.MODEL,
        "precision of the fake model",
        changes_numerics=True,
    ),
)
_OF_FRAMEWORKS: Mapping[str, tuple[Knob, ...]] = MappingProxyType(
    {"torch": _TORCH_KNOBS, "tensorflow": _TENSORFLOW_KNOBS, "fake": _FAKE_KNOBS}
)
"""Knobs that one framework alone has, by its name in the registry (frameworks.py)."""
_EVERYTHING = (
    *_LAUNCH,
    *_ALLOCATORS,
    *_OPENMP,
    *_ONEDNN,
    *(
        msgspec.structs.replace(knob, frameworks=(name,))
        for name, knobs in _OF_FRAMEWORKS.items()
        for knob in knobs
    ),
)
KNOBS: dict[str, Knob] = {knob.id: knob for knob in _EVERYTHING}
