"""What TensorFlow's thread pools and executed graphs show of the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tuner.record.launch import Evidence
from tuner.worker.frameworks import Array, products

_COMPUTE_OPS = ("Conv2D", "Conv3D", "MatMul", "BatchMatMulV2", "Einsum")
_BF16_BY_GRAPPLER = "auto_mixed_precision_onednn_bfloat16"


class Executed(NamedTuple):
    """A node of an executed graph: its operator and the type it computes in."""

    op: str
    dtype: int | None


class Execution(NamedTuple):
    """The graphs of a concrete function, as they were executed."""

    nodes: tuple[Executed, ...] = ()
    """Empty for a function that XLA compiled as a whole: it executes no graph."""
    unseen: str = ""
    """Why the graphs could not be looked at; empty if they were."""

    def evidence(self) -> Evidence:
        """Return the quality of the evidence that the graphs give."""
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
