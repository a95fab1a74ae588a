"""Calls of a TensorFlow model: concrete functions, traced once for each shape of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tuner.engines import FRAMEWORK
from tuner.space.knobs_of.engines import ENGINE
from tuner.worker.engines import Engine
from tuner.worker.frameworks import Array, OnTheClock
from tuner.worker.frameworks.outputs import no_output, not_comparable
from tuner.worker.frameworks.prepared import (
    Arguments,
    CalledInstead,
    Caller,
    Unfit,
    changing,
    seen_as,
)
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild
from tuner.worker.frameworks.tensorflow.engine_form import carried_out
from tuner.worker.frameworks.tensorflow.executed import Execution, collected


class TensorFlowInference(OnTheClock):
    """The timed work of a model that serves."""

    def __init__(self, build: TensorFlowBuild) -> None:
        self._build = build
        self._functions: dict[tuple[Any, ...], Any] = {}
        self.execution = Execution()
        """The graphs of the last new function, from its first call."""
        self.engine: Engine | None = None
        """The engine of the last function; None for TensorFlow itself."""
        self.n_variables = 0
        """The variables that the last function captured."""

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

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return a call's arguments as tensors, and their kind; a form is one for inference."""
        tf = self._tf
        if not tf.executing_eagerly():
            return Arguments(args, kwargs, unfit=Unfit.IN_A_GRAPH)
        if kwargs.get("training"):
            return Arguments(args, kwargs, unfit=Unfit.TRAINING)
        if any(isinstance(x, tf.keras.KerasTensor) for x in tf.nest.flatten((args, kwargs))):
            return Arguments(args, kwargs, unfit=Unfit.IN_A_GRAPH)
        if isinstance(self.model, tf.keras.Model):
            kwargs = {**kwargs, "training": False}
        leaves = tf.nest.flatten((args, kwargs))
        tensors = (tf.Tensor, tf.Variable, np.ndarray, np.generic)
        taken = [tf.convert_to_tensor(x) if isinstance(x, tensors) else x for x in leaves]
        args, kwargs = tf.nest.pack_sequence_as((args, kwargs), taken)
        if not any(map(tf.is_tensor, taken)):
            return Arguments(args, kwargs, unfit=Unfit.ARGUMENT, detail="inputs without tensors")
        for leaf in taken:
            if not isinstance(leaf, tf.Tensor | _CONSTANTS):
                detail = f"an argument that is a {type(leaf).__name__}"
                return Arguments(args, kwargs, unfit=Unfit.ARGUMENT, detail=detail)
        kinds = tuple((tuple(x.shape), x.dtype) if tf.is_tensor(x) else (type(x), x) for x in taken)
        structure = tf.nest.map_structure(lambda _: 0, (args, kwargs))
        return Arguments(args, kwargs, (repr(structure), kinds))

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the model as a function of such arguments, with the model's outputs."""
        nest, model, given = self._tf.nest, self.model, (tuple(args), dict(kwargs))
        leaves = nest.flatten(given)
        places = [i for i, leaf in enumerate(leaves) if self._tf.is_tensor(leaf)]

        def forward(*tensors: Any) -> Any:
            whole = list(leaves)
            for i, tensor in zip(places, tensors, strict=True):
                whole[i] = tensor
            args, kwargs = nest.pack_sequence_as(given, whole)
            return model(*args, **kwargs)

        traced, outputs = self._trace([leaves[i] for i in places], forward)
        structure = nest.map_structure(lambda part: None if part is None else 0, outputs)
        freezes = self._build.settings.get("tensorflow.frozen")

        def called(*args: Any, **kwargs: Any) -> Any:
            found = nest.flatten((args, kwargs))
            result = traced(*(found[i] for i in places))
            if not freezes:
                return result
            # freezing flattens the outputs into a list, without None
            parts = iter(nest.flatten(result))
            return nest.map_structure(lambda p: None if p is None else next(parts), structure)

        return called

    @property
    def model(self) -> Any:
        """The model as its author calls it."""
        return self._build.as_given

    @property
    def folds_weights(self) -> bool:
        """Whether variables are constants of the graph, or of a converted model."""
        settings = self._build.settings
        is_converted = settings.get(ENGINE, FRAMEWORK) != FRAMEWORK
        return is_converted or bool(settings.get("tensorflow.frozen"))

    def prepared(self, call: Caller) -> Any:
        """Return a Keras model of the model's own class, or a function, with other calls."""
        model = self.model
        if not isinstance(model, self._tf.keras.Model):
            return CalledInstead(model, call)

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            return call(args, kwargs)

        # predict() makes calls one by one, in no graph of Keras's, and keeps what it makes apart
        # from what the model itself keeps in the state that both share
        kept: dict[str, Any] = {}
        functions = {name: _kept_in(kept, name) for name in _KERAS_FUNCTIONS}
        eagerly = property(lambda self: True, lambda self, value: None)
        own = {"__call__": __call__, "run_eagerly": eagerly, **functions}
        own |= {name: changing(type(model), name, call) for name in _CHANGING}
        return seen_as(model, own)

    def _key(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Return what a concrete function is specific to: a placed model, and shapes and types."""
        shapes = ((tuple(each.shape), np.dtype(_name(each.dtype))) for each in tensors)
        return self._build.n_placed, *shapes

    def traced(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the concrete function for tensors of these shapes, traced once for each."""
        key = self._key(tensors)
        if key not in self._functions:
            model = self._build.model

            def forward(*x: Any) -> Any:
                return model(x[0] if len(x) == 1 else list(x), training=False)

            self._functions[key], _ = self._trace(tensors, forward)
        traced: Callable[..., Any] = self._functions[key]
        return traced

    def _trace(self, tensors: Sequence[Any], forward: Callable[..., Any]) -> tuple[Any, Any]:
        """Trace one concrete function; freeze it, compile it with XLA, or convert it, if set.

        Return it and the structure of its outputs, which a frozen one has lost. Freezing inlines
        the function and loses its jit_compile, so that XLA wraps the frozen one.
        """
        freezes = bool(self._build.settings.get("tensorflow.frozen"))
        compiles = bool(self._build.settings.get("tensorflow.jit_compile"))
        specs = [self._tf.TensorSpec(t.shape, t.dtype) for t in tensors]
        if self._build.settings.get(ENGINE, FRAMEWORK) != FRAMEWORK:
            carried = carried_out(
                self._tf,
                tensors,
                forward,
                self._build.settings,
                self._build.n_threads,
                self._build.calibration,
            )
            self.engine, self.n_variables = carried.engine, 0
            return carried.function, carried.structure

        def concrete(function: Any, jit: bool) -> Any:
            traced = self._tf.function(function, jit_compile=jit or None, autograph=False)
            return traced.get_concrete_function(*specs)

        function = concrete(forward, compiles and not freezes)
        structure = function.structured_outputs
        if freezes:
            function = frozen(function)
            if compiles:
                function = concrete(function, True)
        self.n_variables = len(function.variables)
        return function, structure

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


_CONSTANTS = bool | int | float | str | bytes | None
"""Arguments that are no tensors and are part of a function that is traced."""
_KERAS_FUNCTIONS = ("predict_function", "test_function", "train_function")
"""Attributes where Keras keeps what predict(), evaluate() and fit() call."""

_CHANGING = ("load_weights", "set_weights")
"""Methods of Keras models that change weights."""


def _kept_in(kept: dict[str, Any], name: str) -> property:
    """Return an attribute that is kept in a dictionary; None at first."""
    return property(lambda self: kept.get(name), lambda self, made: kept.update({name: made}))


def _name(dtype: Any) -> Any:
    return getattr(dtype, "as_numpy_dtype", dtype)


def frozen(function: Any, *, keeps_loops: bool = False) -> Any:
    """Return a concrete function with its variables as constants and its calls inlined.

    keeps_loops: whether a loop stays one operator, in place of those that carry it out.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(function, lower_control_flow=not keeps_loops)
