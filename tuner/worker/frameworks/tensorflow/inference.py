"""Calls of a TensorFlow model: concrete functions, traced once for each shape of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tuner.worker.frameworks import Array, OnTheClock
from tuner.worker.frameworks.outputs import no_output, not_comparable
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild
from tuner.worker.frameworks.tensorflow.executed import Execution, collected


class TensorFlowInference(OnTheClock):
    """What is timed of a model that serves."""

    def __init__(self, build: TensorFlowBuild) -> None:
        self._build = build
        self._functions: dict[tuple[Any, ...], Any] = {}
        self.execution = Execution()
        """What the graphs of the last new function were when it was first called."""
        self.n_variables = 0
        """Those that the last function captured."""
        self._structure: Any = None

    @property
    def _tf(self) -> Any:
        return self._build.tf

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind constants to the concrete function for their shapes.

        Executed on the CPU, a call returns when its outputs are ready.
        """
        tensors = tuple(map(self._tf.constant, arrays))
        is_new = self._key(tensors) not in self._functions
        function = self.traced(tensors)
        if is_new:
            self.execution = collected(self._build.context.context(), lambda: function(*tensors))
        return lambda: function(*tensors)

    def given(self, tensor: Any) -> Any:
        """Return an input as the function takes it."""
        return self._tf.convert_to_tensor(tensor)

    def function(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the model as a function of tensors of these shapes, with the model's outputs."""
        traced = self.traced(tensors)
        if not self._build.settings.get("tensorflow.frozen"):
            return traced
        nest = self._tf.nest
        structure = nest.map_structure(lambda part: None if part is None else 0, self._structure)

        def packed(*given: Any) -> Any:  # freezing flattens the outputs into a list, without None
            parts = iter(nest.flatten(traced(*given)))
            return nest.map_structure(lambda p: None if p is None else next(parts), structure)

        return packed

    def _key(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a concrete function is made for: a placed model, and shapes and types."""
        shapes = ((tuple(each.shape), np.dtype(_name(each.dtype))) for each in tensors)
        return self._build.n_placed, *shapes

    def traced(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the concrete function for tensors of these shapes, traced once for each."""
        key = self._key(tensors)
        if key not in self._functions:
            self._functions[key] = self._trace(tensors)
        traced: Callable[..., Any] = self._functions[key]
        return traced

    def _trace(self, tensors: Sequence[Any]) -> Any:
        """Trace one concrete function; freeze it, and compile it with XLA, where that is set.

        Freezing inlines the function and loses its jit_compile, so XLA goes around the frozen one.
        """
        freezes = bool(self._build.settings.get("tensorflow.frozen"))
        compiles = bool(self._build.settings.get("tensorflow.jit_compile"))
        specs = [self._tf.TensorSpec(t.shape, t.dtype) for t in tensors]

        def forward(*x: Any) -> Any:
            return self._build.model(x[0] if len(x) == 1 else list(x), training=False)

        def concrete(function: Any, jit: bool) -> Any:
            traced = self._tf.function(function, jit_compile=jit or None, autograph=False)
            return traced.get_concrete_function(*specs)

        function = concrete(forward, compiles and not freezes)
        self._structure = function.structured_outputs
        if freezes:
            function = frozen(function)
            if compiles:
                function = concrete(function, True)
        self.n_variables = len(function.variables)
        return function

    def outputs(self, result: Any) -> list[Array]:
        """Flatten tensors, sequences and mappings in the order of tf.nest, without None."""
        from tensorflow.python.util import nest

        found = []
        for place, part in nest.flatten_with_tuple_paths(result):
            if part is None:
                continue
            name = "outputs" + "".join(f"[{key!r}]" for key in place)
            if not isinstance(part, self._tf.Tensor):  # sparse, ragged
                raise not_comparable(name, f"a {type(part).__name__}")
            if part.dtype in (self._tf.string, self._tf.resource, self._tf.variant) or (
                part.dtype.is_complex
            ):
                raise not_comparable(name, f"a tensor of {part.dtype.name}")
            is_plain = part.dtype.is_integer or part.dtype.is_bool or part.dtype == self._tf.float64
            # what NumPy has no type for, or a coarser one, becomes float32
            found.append((part if is_plain else self._tf.cast(part, self._tf.float32)).numpy())
        if not found:
            raise no_output(result)
        return found

    @contextmanager
    def running(self) -> Iterator[None]:
        """Nothing to enter: precision and compilation are in the graph."""
        yield


def _name(dtype: Any) -> Any:
    return getattr(dtype, "as_numpy_dtype", dtype)


def frozen(function: Any) -> Any:
    """Return a concrete function with its variables as constants and its calls inlined."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(function)
