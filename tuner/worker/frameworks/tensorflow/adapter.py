"""TensorFlow on the CPU.

The default, the denominator of every speedup: one concrete tf.function of model(x, training=False)
with a fixed signature, no XLA, variables not frozen, fp32.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.host.libraries import missing_framework
from tuner.record.configuration import Value
from tuner.record.launch import Operator, ReadBack
from tuner.record.workload import Parameter
from tuner.worker.evidence.process import threads_by_name
from tuner.worker.frameworks import Array, Tensors, products
from tuner.worker.frameworks.outputs import no_output, not_comparable
from tuner.worker.frameworks.tensorflow import evidence, profiler
from tuner.worker.graph import Node

_DAMPED_SCALE = 0.2


def _grappler_options(settings: Mapping[str, Value]) -> dict[str, bool]:
    """Return what set_experimental_options takes for these settings."""
    options = {
        name: bool(settings[f"tensorflow.{name}"])
        for name in ("layout_optimizer", "remapping")
        if f"tensorflow.{name}" in settings
    }
    if settings.get("tensorflow.auto_mixed_precision") == "bf16":
        options["auto_mixed_precision_onednn_bfloat16"] = True
    return options


class TensorFlow:
    """TensorFlow's side of the framework contract."""

    channels_first = False
    profiler = "TensorFlow's profiler, over all threads"

    def __init__(self) -> None:
        self._settings: dict[str, Value] = {}
        self._pools: Counter[str] = Counter()
        self._functions: dict[tuple[Any, ...], Any] = {}
        self._execution = evidence.Execution()
        self._structure: Any = None
        self._variables = 0

    def start(self, settings: Mapping[str, Value]) -> None:
        """Import TensorFlow and create its thread pools, counting the threads that appear."""
        try:
            import tensorflow as tf
        except ImportError as error:
            raise missing_framework("tensorflow") from error
        from tensorflow.python.eager import context

        self.tf = tf
        self._context = context
        if settings and context.context()._initialized:
            raise RuntimeError("TensorFlow's thread pools and options are fixed already")
        self._settings = dict(settings)
        before = threads_by_name()
        if options := _grappler_options(settings):
            tf.config.optimizer.set_experimental_options(options)
        if policy := settings.get("tensorflow.keras_policy"):
            tf.keras.mixed_precision.set_global_policy(policy)
        context.ensure_initialized()
        own = next(iter(before.values()))
        for thread, name in threads_by_name().items():
            if thread not in before:
                # the intra-op pool (Eigen) keeps the program's name, the inter-op pool has its own
                self._pools["intra" if name == own else name] += 1

    def seed(self, number: int) -> None:
        """Seed weights."""
        self.tf.keras.utils.set_random_seed(number)

    def adopt(self, model: Any) -> None:
        """Take a Keras model, or a function of its inputs with trainable_variables.

        Raises UsageError for a model that was built before the Keras policy was set.
        """
        policy = self._settings.get("tensorflow.keras_policy")
        if isinstance(model, self.tf.keras.Model):
            if policy and model.dtype_policy.name != policy:
                raise UsageError(
                    f"the model was built with Keras's policy {model.dtype_policy.name}, not "
                    f"{policy}: build it after the policy is set"
                )
            if isinstance(getattr(model, "_inputs_struct", None), Mapping):
                # its inputs in their order in the place of a dictionary
                model = self.tf.keras.Model(model.inputs, model.outputs)
        self.model = model

    def _batch_norms(self) -> dict[str, Any]:
        if not isinstance(self.model, self.tf.keras.Model):
            return {}
        kind = self.tf.keras.layers.BatchNormalization
        layers = self.model._flatten_layers(include_self=False)
        norms = [layer for layer in layers if isinstance(layer, kind)]
        return {f"{i}:{norm.name}": norm for i, norm in enumerate(norms)}  # names may repeat

    def condition(self, arrays: Sequence[Array], damped_norms: str) -> Tensors:
        """Take batch-norm statistics from the arrays in one pass, with damped residual blocks."""
        everything = self._batch_norms()
        norms = {name: norm for name, norm in everything.items() if _is_fresh(norm)}
        if not norms:
            return {}
        trained = [norm for name, norm in everything.items() if name not in norms]
        for norm in trained:
            norm.trainable = False  # Keras: then it keeps its statistics
        for name, norm in norms.items():
            if damped_norms and re.search(damped_norms, name):
                norm.gamma.assign(self.tf.fill(norm.gamma.shape, _DAMPED_SCALE))
            norm.momentum = 0.0  # the moving statistics become this batch's
        self.model(list(arrays) if len(arrays) > 1 else arrays[0], training=True)
        for norm in trained:
            norm.trainable = True
        return {
            f"{name}.{part}": getattr(norm, part).numpy()
            for name, norm in norms.items()
            for part in ("gamma", "moving_mean", "moving_variance")
        }

    def restore(self, tensors: Tensors) -> None:
        """Assign conditioned tensors by name."""
        norms = self._batch_norms()
        for key, value in tensors.items():
            name, _, part = key.rpartition(".")
            getattr(norms[name], part).assign(value)

    def place(self, settings: Mapping[str, Value]) -> None:
        """Keep the settings; tracing and freezing need the batch size and happen per program."""
        self._settings = dict(settings)
        self._functions.clear()

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind constants to the concrete function for their shapes.

        Executed on the CPU, a call returns when its outputs are ready.
        """
        tensors = tuple(map(self.tf.constant, arrays))
        is_new = _shapes(tensors) not in self._functions
        function = self._traced(tensors)
        if is_new:
            self._execution = evidence.collected(
                self._context.context(), lambda: function(*tensors)
            )
        return lambda: function(*tensors)

    def given(self, tensor: Any) -> Any:
        """Return an input as the function takes it."""
        return self.tf.convert_to_tensor(tensor)

    def function(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the model as a function of tensors of these shapes, with the model's outputs."""
        traced = self._traced(tensors)
        if not self._settings.get("tensorflow.frozen"):
            return traced
        nest = self.tf.nest
        structure = nest.map_structure(lambda part: None if part is None else 0, self._structure)

        def packed(*given: Any) -> Any:  # freezing flattens the outputs into a list, without None
            parts = iter(nest.flatten(traced(*given)))
            return nest.map_structure(lambda p: None if p is None else next(parts), structure)

        return packed

    def _traced(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the concrete function for tensors of these shapes, traced once for each."""
        shapes = _shapes(tensors)
        if shapes not in self._functions:
            self._functions[shapes] = self._trace(tensors)
        traced: Callable[..., Any] = self._functions[shapes]
        return traced

    def _trace(self, tensors: Sequence[Any]) -> Any:
        """Trace one concrete function; freeze it, and compile it with XLA, where that is set.

        Freezing inlines the function and loses its jit_compile, so XLA goes around the frozen one.
        """
        freezes = bool(self._settings.get("tensorflow.frozen"))
        compiles = bool(self._settings.get("tensorflow.jit_compile"))
        specs = [self.tf.TensorSpec(t.shape, t.dtype) for t in tensors]

        def forward(*x: Any) -> Any:
            return self.model(x[0] if len(x) == 1 else list(x), training=False)

        def concrete(function: Any, jit: bool) -> Any:
            traced = self.tf.function(function, jit_compile=jit or None, autograph=False)
            return traced.get_concrete_function(*specs)

        function = concrete(forward, compiles and not freezes)
        self._structure = function.structured_outputs
        if freezes:
            function = _frozen(function)
            if compiles:
                function = concrete(function, True)
        self._variables = len(function.variables)
        return function

    def outputs(self, result: Any) -> list[Array]:
        """Flatten tensors, sequences and mappings in the order of tf.nest, without None."""
        from tensorflow.python.util import nest

        found = []
        for place, part in nest.flatten_with_tuple_paths(result):
            if part is None:
                continue
            name = "outputs" + "".join(f"[{key!r}]" for key in place)
            if not isinstance(part, self.tf.Tensor):  # sparse, ragged
                raise not_comparable(name, f"a {type(part).__name__}")
            if part.dtype in (self.tf.string, self.tf.resource, self.tf.variant) or (
                part.dtype.is_complex
            ):
                raise not_comparable(name, f"a tensor of {part.dtype.name}")
            found.append(self.tf.cast(part, self.tf.float32).numpy())
        if not found:
            raise no_output(result)
        return found

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Return what each operator took, over all threads."""
        return profiler.operators(self.tf, calls)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Nothing to enter: precision and compilation are in the graph."""
        yield

    def clock(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.perf_counter()

    def versions(self) -> dict[str, str]:
        """Return the versions that were really imported."""
        return {"tensorflow": self.tf.__version__, "keras": self.tf.keras.__version__}

    def parameters(self) -> list[Parameter]:
        """Name the trainable variables."""
        return [
            Parameter(
                getattr(v, "path", v.name),
                tuple(v.shape),
                int(np.prod(v.shape)) * self.tf.as_dtype(v.dtype).size,
            )
            for v in self.model.trainable_variables
        ]

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None:
        """Count nothing: TensorFlow's own counter knows no Einsum, and takes additions for work."""
        return None

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name what an exhausted memory raises."""
        return (MemoryError, self.tf.errors.ResourceExhaustedError)

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """List the operators of the default's concrete function, as traced.

        A saved model's lie in functions of its own, which freezing inlines.
        """
        function = self._functions[_shapes(arrays)]
        if not isinstance(self.model, self.tf.keras.Model):
            function = _frozen(function)
        return [
            Node(op.name, op.type, tuple(tensor.op.name for tensor in op.inputs))
            for op in function.graph.get_operations()
        ]

    def read_back(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        """Look at the threads that were created and at the graph that was executed."""
        seen = self._execution
        found = [
            *evidence.threads(self._pools, settings),
            *evidence.compilation(seen, self._variables, settings),
            *evidence.precision(self.tf, seen, settings),
            *evidence.grappler(self.tf, settings),
            *evidence.onednn(seen, settings),
        ]
        fpmath = "env.ONEDNN_DEFAULT_FPMATH_MODE"
        if fpmath in settings:
            ways = evidence.multiplications(self.tf)
            found.append(products.read_back(fpmath, settings[fpmath], ways))
        return found


def _shapes(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a concrete function is made for: shapes and types."""
    return tuple((tuple(tensor.shape), np.dtype(_name(tensor.dtype))) for tensor in tensors)


def _name(dtype: Any) -> Any:
    return getattr(dtype, "as_numpy_dtype", dtype)


def _frozen(function: Any) -> Any:
    """Return a concrete function with its variables as constants and its calls inlined."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(function)


def _is_fresh(norm: Any) -> bool:
    """Tell whether a batch norm has the statistics that it was made with: it saw no data yet."""
    mean, variance = norm.moving_mean.numpy(), norm.moving_variance.numpy()
    return norm.gamma is not None and not mean.any() and bool((variance == 1).all())
