"""The operations and bytes of a traced function, by the shapes in its graph.

TensorFlow's own counter knows no Einsum, and takes additions for work. Loops count as many times as
their constant number of iterations; products in a loop without one, or without static shapes, are
unknown.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from tuner.record.why import OperatorWork

_MOVES_NOTHING = frozenset(
    {"Const", "Placeholder", "Identity", "IdentityN", "Reshape", "Shape", "ExpandDims", "Squeeze",
     "NoOp", "ReadVariableOp", "StopGradient", "PreventGradient", "TensorListReserve",
     "TensorListFromTensor", "TensorListStack"}
)  # fmt: skip
"""Operators that forward what they are given, or only look at its shape."""
_LOOK_UPS = frozenset({"Gather", "GatherV2", "GatherNd", "ResourceGather"})
"""Operators that read of a table what they return, and no more."""
_CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f"}
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase", "Switch", "Enter")
"""Operators behind which other operators lie, or not."""
_MULTIPLYING = re.compile(r"matmul|conv(?!ert)|lstm|gru|einsum", re.IGNORECASE)
"""Names of operators that multiply, whether there is a formula for them or not."""
_ITERATIONS = 1
"""The input of a loop that holds the most iterations; -1: as many as its condition says."""


class _Unknown(Exception):
    """A shape that is known at run time only."""


def operators(function: Any, batch: int) -> list[OperatorWork]:
    """Return the work of a frozen concrete function of `batch` items, by kind of operator."""
    counting = _Counting()
    counting.add(function.graph, 1)
    return [
        OperatorWork(
            kind,
            None if kind in counting.unknown else counting.flops[kind] / batch,
            counting.of_items[kind] / batch,
            counting.of_constants[kind],
        )
        for kind in counting.of_items
    ]


class _Counting:
    """Sums over graphs and those that they call."""

    def __init__(self) -> None:
        self.flops: dict[str, float] = defaultdict(float)
        self.of_items: dict[str, float] = defaultdict(float)
        self.of_constants: dict[str, float] = defaultdict(float)
        self.unknown: set[str] = set()

    def add(self, graph: Any, times: int, given: Collection[str] = ()) -> None:
        """Add the operators of a graph that is carried out `times` times.

        given: the names of the operators through which it is given constants.
        """
        for op in graph.get_operations():
            if op.type in _CALLS:
                self._inner(graph, op, _CALLS[op.type], times, given)
            elif op.type in _LOOPS:
                self._loop(graph, op, times, given)
            elif op.type not in _MOVES_NOTHING:
                self._operator(op, times, given)

    def _inner(
        self, graph: Any, op: Any, attribute: str, times: int, given: Collection[str]
    ) -> None:
        called = _called(graph, op, attribute)
        pairs = zip(called.inputs, op.inputs, strict=True)
        constants = [own.op.name for own, outer in pairs if _is_constant(outer, given)]
        self.add(called, times, constants)

    def _loop(self, graph: Any, op: Any, times: int, given: Collection[str]) -> None:
        n = _constant(op.inputs[_ITERATIONS])
        if n is None or n < 0:
            self.of_items[op.type] += 0
            self.unknown.add(op.type)
            return
        self._inner(graph, op, "body", times * n, given)

    def _operator(self, op: Any, times: int, given: Collection[str]) -> None:
        kind = op.type
        self.of_items[kind] += 0
        if kind in _BRANCHES or (kind not in _FORMULAS and _MULTIPLYING.search(kind)):
            self.unknown.add(kind)
            return
        try:
            self.flops[kind] += times * _flops(op)
            inputs = op.outputs if kind in _LOOK_UPS else op.inputs
            for tensor in (*inputs, *op.outputs):
                by = self.of_constants if _is_constant(tensor, given) else self.of_items
                by[kind] += times * _n_bytes(tensor)
        except _Unknown:
            if kind in _FORMULAS:
                self.unknown.add(kind)


def _called(graph: Any, op: Any, attribute: str) -> Any:
    """Return the graph of a function that an operator calls, for the shapes of its inputs."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    function = graph._get_function(op.get_attr(attribute).name)
    definition = getattr(function, "cached_definition", None) or function.definition
    return function_def_to_graph(definition, input_shapes=[t.shape for t in op.inputs])


def _constant(tensor: Any) -> int | None:
    from tensorflow.python.framework.tensor_util import constant_value

    if tensor.op.type == "Max":  # Keras takes the largest of a single number of steps
        tensor = tensor.op.inputs[0]
    value = constant_value(tensor)
    return None if value is None else int(value.max())


def _is_constant(tensor: Any, given: Collection[str]) -> bool:
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return op.type == "Const" or op.name in given


def _shape(tensor: Any) -> tuple[int, ...]:
    if not tensor.shape.is_fully_defined():
        raise _Unknown
    return tuple(tensor.shape.as_list())


def _n_bytes(tensor: Any) -> int:
    size = tensor.dtype.size
    return math.prod(_shape(tensor)) * (size or 0)


def _flops(op: Any) -> int:
    """Return the operations of a product; 0 for any other operation."""
    formula = _FORMULAS.get(op.type)
    return 0 if formula is None else 2 * formula(op)


def _of_convolution(op: Any) -> int:
    """Each output element takes a kernel's elements of all input channels of its group."""
    *kernel, n_in, _ = _shape(op.inputs[1])
    return math.prod(_shape(op.outputs[0])) * math.prod(kernel) * n_in


def _of_depthwise(op: Any) -> int:
    kernel = _shape(op.inputs[1])[:2]
    return math.prod(_shape(op.outputs[0])) * math.prod(kernel)


def _of_backward_convolution(op: Any) -> int:
    """Of a transposed convolution: each input element meets the whole kernel."""
    *kernel, n_out, _ = _shape(op.inputs[1])
    return math.prod(_shape(op.inputs[2])) * math.prod(kernel) * n_out


def _of_product(op: Any) -> int:
    a = _shape(op.inputs[0])
    is_transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return math.prod(_shape(op.outputs[0])) * a[-2 if is_transposed else -1]


def _of_einsum(op: Any) -> int:
    """Every combination of indices is one multiply-accumulate."""
    labels, _, _ = op.get_attr("equation").decode().partition("->")
    sizes: dict[str, int] = {}
    for names, tensor in zip(labels.split(","), op.inputs, strict=True):
        if "." in names:
            raise _Unknown
        sizes.update(zip(names.strip(), _shape(tensor), strict=True))
    return math.prod(sizes.values())


_FORMULAS: dict[str, Callable[[Any], int]] = {
    "Conv2D": _of_convolution,
    "Conv3D": _of_convolution,
    "DepthwiseConv2dNative": _of_depthwise,
    "Conv2DBackpropInput": _of_backward_convolution,
    "MatMul": _of_product,
    "BatchMatMul": _of_product,
    "BatchMatMulV2": _of_product,
    "BatchMatMulV3": _of_product,
    "Einsum": _of_einsum,
}
"""Multiply-accumulates of an operator."""
