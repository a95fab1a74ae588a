"""What TensorFlow's thread pools and executed graphs show of the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tuner.record.configuration import Value
from tuner.record.launch import Evidence, ReadBack
from tuner.worker.evidence.process import threads_by_name
from tuner.worker.frameworks import Array, products

_COMPUTE_OPS = ("Conv2D", "Conv3D", "MatMul", "BatchMatMulV2", "Einsum")
_BF16_BY_GRAPPLER = "auto_mixed_precision_onednn_bfloat16"


class Executed(NamedTuple):
    """A node of an executed graph: its operator and the type of what it computes with."""

    op: str
    dtype: int | None


class Execution(NamedTuple):
    """What a concrete function's graphs were when they were executed."""

    nodes: tuple[Executed, ...] = ()
    """Empty for a function that XLA compiled as a whole: it executes no graph."""
    unseen: str = ""
    """Why the graphs could not be looked at; empty if they were."""

    def evidence(self) -> Evidence:
        """Return how good the evidence of what is told of the graphs is."""
        return "accepted" if self.unseen else "effective"


def collected(context: Any, first_call: Callable[[], Any]) -> Execution:
    """Make a function's first call and return the nodes of the graphs that it executes.

    Graphs are collected when a function is first instantiated, and only then.
    """
    from google.protobuf.message import DecodeError

    context.enable_graph_collection()
    try:
        first_call()
        metadata = context.export_run_metadata()
    except DecodeError:
        # the graphs are exported several times over, and frozen weights with them
        return Execution(unseen="the executed graphs exceed the 2 GB that can be exported")
    finally:
        context.disable_graph_collection()
    return Execution(
        tuple(
            Executed(node.op, node.attr["T"].type if "T" in node.attr else None)
            for graph in metadata.partition_graphs
            for node in _all_nodes(graph)
        )
    )


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def threads(pools: Counter[str], settings: Mapping[str, Value]) -> list[ReadBack]:
    """Tell the sizes of the thread pools."""
    intra, inter = "env.TF_NUM_INTRAOP_THREADS", "env.TF_NUM_INTEROP_THREADS"
    appeared = "threads that appeared when the pools were created"
    return [
        ReadBack(intra, settings.get(intra), pools["intra"], "effective", appeared),
        ReadBack(inter, settings.get(inter), pools["tf_Compute"], "effective",
                 "threads named tf_Compute"),
    ]  # fmt: skip


def compilation(seen: Execution, n_variables: int, settings: Mapping[str, Value]) -> list[ReadBack]:
    """Tell what was frozen, and what XLA compiled; n_variables: those the function captured."""
    nodes = seen.nodes
    reads = sum(n.op in ("ReadVariableOp", "VarHandleOp") for n in nodes)
    clusters = sum(n.op == "_XlaRun" for n in nodes)
    xla_threads = sum(name == "tf_XLAEigen" for name in threads_by_name().values())
    xla = xla_threads > 0 and not nodes and not seen.unseen
    is_frozen = n_variables == 0 and (xla or bool(seen.unseen) or (bool(nodes) and not reads))
    told = seen.unseen or f"{reads} variable reads among {len(nodes)} executed nodes"
    found = [
        ReadBack(
            "tensorflow.frozen",
            settings.get("tensorflow.frozen"),
            is_frozen,
            seen.evidence(),
            f"{told}, {n_variables} captured variables",
        ),
        ReadBack(
            "tensorflow.jit_compile",
            settings.get("tensorflow.jit_compile"),
            xla,
            "effective",
            f"{xla_threads} XLA threads, {len(nodes)} nodes executed outside XLA",
        ),
    ]
    flags = settings.get("env.TF_XLA_FLAGS")
    if flags is not None:
        ran = clusters > 0 or (bool(seen.unseen) and xla_threads > 0)
        told = seen.unseen or f"{clusters} clusters run by XLA among {len(nodes)} executed nodes"
        found.append(
            ReadBack("env.TF_XLA_FLAGS", flags, flags if ran else "unset", seen.evidence(), told)
        )
    return found


def precision(tf: Any, seen: Execution, settings: Mapping[str, Value]) -> list[ReadBack]:
    """Tell bf16 by grappler from bf16 by Keras's policy: by the policy that is in force."""
    by_grappler, by_policy = "tensorflow.auto_mixed_precision", "tensorflow.keras_policy"
    bf16 = tf.bfloat16.as_datatype_enum
    compute = [n for n in seen.nodes if any(op in n.op for op in _COMPUTE_OPS)]
    low = sum(n.dtype == bf16 for n in compute)
    policy = tf.keras.mixed_precision.global_policy().name
    is_low = 2 * low > len(compute) and low > 0
    how = f"{low} of {len(compute)} convolutions and products executed in bf16"
    lowered = "bf16" if is_low and policy == "float32" else "off"
    if seen.unseen:
        options = tf.config.optimizer.get_experimental_options()
        lowered = "bf16" if options.get(_BF16_BY_GRAPPLER) else "off"
        how = f"{seen.unseen}; grappler's options say {lowered}"
    # compiled by XLA, no node is executed by itself: the policy was accepted, and no more
    kept = policy if is_low or not seen.nodes else "float32"
    return [
        ReadBack(by_grappler, settings.get(by_grappler), lowered, seen.evidence(), how),
        ReadBack(by_policy, settings.get(by_policy), kept,
                 "effective" if seen.nodes else "accepted", f"global policy {policy}; {how}"),
    ]  # fmt: skip


def grappler(tf: Any, settings: Mapping[str, Value]) -> list[ReadBack]:
    """Tell the graph optimiser's options."""
    options = tf.config.optimizer.get_experimental_options()
    return [
        ReadBack(
            f"tensorflow.{name}",
            settings.get(f"tensorflow.{name}"),
            bool(options.get(name, True)),
            "accepted",
            "tf.config.optimizer.get_experimental_options()",
        )
        for name in ("layout_optimizer", "remapping")
    ]


def onednn(seen: Execution, settings: Mapping[str, Value]) -> list[ReadBack]:
    """Tell whether nodes of oneDNN's were executed; nothing where no node was seen."""
    if not seen.nodes:
        return []
    knob = "env.TF_ENABLE_ONEDNN_OPTS"
    n_onednn = sum(node.op.startswith(("_Mkl", "_OneDnn")) for node in seen.nodes)
    how = f"{n_onednn} of {len(seen.nodes)} executed nodes are oneDNN's"
    return [ReadBack(knob, settings.get(knob), int(n_onednn > 0), "effective", how)]


def multiplications(tf: Any) -> list[products.Multiply]:
    """Return the ways in which TensorFlow multiplies matrices."""

    def matrix(a: Array, b: Array) -> Array:
        result: Array = tf.linalg.matmul(a, b).numpy()
        return result

    def convolution(a: Array, b: Array) -> Array:
        side = int(len(a) ** 0.5)
        image = tf.reshape(a, (1, side, side, a.shape[1]))
        result: Array = tf.nn.conv2d(image, b[None, None], 1, "VALID").numpy()
        return result.reshape(len(a), b.shape[1])

    return [matrix, convolution]
