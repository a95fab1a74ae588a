"""How each knob of TensorFlow is applied and read back: one entry each, in the order of applying.

Environment variables are applied before the process starts; freezing and XLA are part of tracing
(inference.py). tensorflow.data_format has no entry: guides name it, but a model that is built
cannot change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tuner.engines import FRAMEWORK
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.engines import ENGINE, KNOBS
from tuner.worker.evidence.process import threads_by_name
from tuner.worker.frameworks import Setter, products
from tuner.worker.frameworks.tensorflow.executed import Execution, multiplications

FROZEN, XLA = "tensorflow.frozen", "tensorflow.jit_compile"
_POLICY, _MIXED = "tensorflow.keras_policy", "tensorflow.auto_mixed_precision"
_LAYOUT, _REMAPPING = "tensorflow.layout_optimizer", "tensorflow.remapping"
_INTRA, _INTER = "env.TF_NUM_INTRAOP_THREADS", "env.TF_NUM_INTEROP_THREADS"
_FLAGS, _ONEDNN = "env.TF_XLA_FLAGS", "env.TF_ENABLE_ONEDNN_OPTS"
_FPMATH = "env.ONEDNN_DEFAULT_FPMATH_MODE"
_COMPUTE_OPS = ("Conv2D", "Conv3D", "MatMul", "BatchMatMulV2", "Einsum")
_BF16_BY_GRAPPLER = "auto_mixed_precision_onednn_bfloat16"


def setters(tf: Any) -> tuple[Setter, ...]:
    """Return the functions by which a program sets its threads itself."""
    module, shown = tf.config.threading, "tf.config.threading"
    intra, inter = "set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"
    return (
        Setter(_INTRA, module, intra, f"{shown}.{intra}"),
        Setter(_INTER, module, inter, f"{shown}.{inter}"),
    )


class Seen(NamedTuple):
    """Observations of a model after its first call."""

    tf: Any
    requested: dict[str, Value]
    pools: Counter[str]
    """Threads that appeared with the pools, by their name."""
    execution: Execution
    n_variables: int
    """The variables that the function captured."""
    engine: dict[str, ReadBack]
    """The report of another engine, by knob; empty if TensorFlow carries out the model."""

    @property
    def n_xla_threads(self) -> int:
        """How many threads XLA has."""
        return sum(name == "tf_XLAEigen" for name in threads_by_name().values())

    @property
    def is_xla(self) -> bool:
        """Whether XLA compiled the function as a whole: it then executes no graph."""
        return self.n_xla_threads > 0 and not self.execution.nodes and not self.execution.unseen

    def bf16(self) -> tuple[bool, str]:
        """Tell whether most convolutions and products were executed in bf16."""
        bf16 = self.tf.bfloat16.as_datatype_enum
        nodes = self.execution.nodes
        compute = [n for n in nodes if any(op in n.op for op in _COMPUTE_OPS)]
        low = sum(n.dtype == bf16 for n in compute)
        how = f"{low} of {len(compute)} convolutions and products executed in bf16"
        return 2 * low > len(compute) and low > 0, how

    @property
    def policy(self) -> str:
        """Keras's policy that is in force."""
        return str(self.tf.keras.mixed_precision.global_policy().name)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the graph optimiser."""
        found: dict[str, Any] = self.tf.config.optimizer.get_experimental_options()
        return found


class KnobAdapter(NamedTuple):
    """How a knob is read back, and how it is applied if that happens before any work."""

    read: Callable[[Seen], ReadBack | None]
    """None if the setting was not requested, or if nothing shows it."""
    at_start: Callable[[Any, Value], None] | None = None
    """Given TensorFlow, before its context is made."""


def _pool(knob: str, name: str, how: str) -> KnobAdapter:
    def read(seen: Seen) -> ReadBack:
        return ReadBack(knob, seen.requested.get(knob), seen.pools[name], "effective", how)

    return KnobAdapter(read)


def _frozen(seen: Seen) -> ReadBack:
    nodes, unseen = seen.execution.nodes, seen.execution.unseen
    reads = sum(n.op in ("ReadVariableOp", "VarHandleOp") for n in nodes)
    no_reads = seen.is_xla or bool(unseen) or (bool(nodes) and not reads)
    text = unseen or f"{reads} variable reads among {len(nodes)} executed nodes"
    how = f"{text}, {seen.n_variables} captured variables"
    is_frozen = seen.n_variables == 0 and no_reads
    return ReadBack(FROZEN, seen.requested.get(FROZEN), is_frozen, seen.execution.evidence(), how)


def _xla(seen: Seen) -> ReadBack:
    n_nodes = len(seen.execution.nodes)
    how = f"{seen.n_xla_threads} XLA threads, {n_nodes} nodes executed outside XLA"
    return ReadBack(XLA, seen.requested.get(XLA), seen.is_xla, "effective", how)


def _flags(seen: Seen) -> ReadBack | None:
    requested = seen.requested.get(_FLAGS)
    if requested is None:
        return None
    nodes, unseen = seen.execution.nodes, seen.execution.unseen
    clusters = sum(n.op == "_XlaRun" for n in nodes)
    ran = clusters > 0 or (bool(unseen) and seen.n_xla_threads > 0)
    text = unseen or f"{clusters} clusters run by XLA among {len(nodes)} executed nodes"
    return ReadBack(
        _FLAGS, requested, requested if ran else "unset", seen.execution.evidence(), text
    )


def _mixed(seen: Seen) -> ReadBack:
    """Tell bf16 by grappler from bf16 by Keras's policy: by the policy that is in force."""
    is_low, how = seen.bf16()
    lowered = "bf16" if is_low and seen.policy == "float32" else "off"
    if seen.execution.unseen:
        lowered = "bf16" if seen.options.get(_BF16_BY_GRAPPLER) else "off"
        how = f"{seen.execution.unseen}; grappler's options say {lowered}"
    return ReadBack(_MIXED, seen.requested.get(_MIXED), lowered, seen.execution.evidence(), how)


def _policy(seen: Seen) -> ReadBack:
    is_low, how = seen.bf16()
    nodes = seen.execution.nodes
    # compiled by XLA, no node is executed by itself: the policy was accepted, and no more
    kept = seen.policy if is_low or not nodes else "float32"
    evidence = "effective" if nodes else "accepted"
    text = f"global policy {seen.policy}; {how}"
    return ReadBack(_POLICY, seen.requested.get(_POLICY), kept, evidence, text)  # type: ignore[arg-type]


def _option(knob: str) -> KnobAdapter:
    """Return the way of a switch of the graph optimiser."""
    name = knob.removeprefix("tensorflow.")

    def read(seen: Seen) -> ReadBack:
        how = "tf.config.optimizer.get_experimental_options()"
        value = bool(seen.options.get(name, True))
        return ReadBack(knob, seen.requested.get(knob), value, "accepted", how)

    return KnobAdapter(read, at_start=lambda tf, on: _set_option(tf, name, bool(on)))


def _set_option(tf: Any, name: str, is_on: bool) -> None:
    tf.config.optimizer.set_experimental_options({name: is_on})


def _onednn(seen: Seen) -> ReadBack | None:
    nodes = seen.execution.nodes
    if not nodes:
        return None
    n_onednn = sum(node.op.startswith(("_Mkl", "_OneDnn")) for node in nodes)
    how = f"{n_onednn} of {len(nodes)} executed nodes are oneDNN's"
    return ReadBack(_ONEDNN, seen.requested.get(_ONEDNN), int(n_onednn > 0), "effective", how)


def _fpmath(seen: Seen) -> ReadBack | None:
    if _FPMATH not in seen.requested:
        return None
    return products.read_back(_FPMATH, seen.requested[_FPMATH], multiplications(seen.tf))


def _engine(seen: Seen) -> ReadBack:
    own = ReadBack(
        ENGINE, seen.requested.get(ENGINE), FRAMEWORK, "effective", "a concrete function"
    )
    return seen.engine.get(ENGINE, own)


def _of_engine(knob: str) -> KnobAdapter:
    return KnobAdapter(lambda seen: seen.engine.get(knob))


ADAPTERS: dict[str, KnobAdapter] = {
    **{knob.id: _of_engine(knob.id) for knob in KNOBS},
    ENGINE: KnobAdapter(_engine),
    _INTRA: _pool(_INTRA, "intra", "threads that appeared when the pools were created"),
    _INTER: _pool(_INTER, "tf_Compute", "threads named tf_Compute"),
    FROZEN: KnobAdapter(_frozen),
    XLA: KnobAdapter(_xla),
    _FLAGS: KnobAdapter(_flags),
    _MIXED: KnobAdapter(
        _mixed, at_start=lambda tf, value: _set_option(tf, _BF16_BY_GRAPPLER, value == "bf16")
    ),
    _POLICY: KnobAdapter(
        _policy, at_start=lambda tf, value: tf.keras.mixed_precision.set_global_policy(value)
    ),
    _LAYOUT: _option(_LAYOUT),
    _REMAPPING: _option(_REMAPPING),
    _ONEDNN: KnobAdapter(_onednn),
    _FPMATH: KnobAdapter(_fpmath),
}
