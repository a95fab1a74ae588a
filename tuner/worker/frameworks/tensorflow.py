"""TensorFlow on the CPU.

The default, the denominator of every speedup: one concrete tf.function of model(x, training=False)
with a fixed signature, no XLA, variables not frozen, fp32.
"""

from __future__ import annotations

import re
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.host.libraries import missing_framework
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.record.workload import ModelRef
from tuner.worker import gallery
from tuner.worker.evidence.process import threads_by_name
from tuner.worker.frameworks import Array, Tensors, products
from tuner.worker.graph import Node

_DAMPED_SCALE = 0.2
_COMPUTE_OPS = ("Conv2D", "Conv3D", "MatMul", "BatchMatMulV2", "Einsum")


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

    def __init__(self) -> None:
        self._settings: dict[str, Value] = {}
        self._pools: Counter[str] = Counter()
        self._functions: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._executed: list[Any] = []
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

    def build(self, module: types.ModuleType, ref: ModelRef, seed: int) -> None:
        """Build the Keras model."""
        self.tf.keras.utils.set_random_seed(seed)
        self.spec: gallery.Model = module.MODEL
        self.model = gallery.build(module, "tensorflow", ref)

    def _batch_norms(self) -> dict[str, Any]:
        kind = self.tf.keras.layers.BatchNormalization
        layers = self.model._flatten_layers(include_self=False)
        return {layer.name: layer for layer in layers if isinstance(layer, kind)}

    def condition(self, arrays: Sequence[Array]) -> Tensors:
        """Take batch-norm statistics from the arrays in one pass, with damped residual blocks."""
        norms = self._batch_norms()
        if not norms:
            return {}
        for name, norm in norms.items():
            if self.spec.damped_norms and re.search(self.spec.damped_norms, name):
                norm.gamma.assign(self.tf.fill(norm.gamma.shape, _DAMPED_SCALE))
            norm.momentum = 0.0  # the moving statistics become this batch's
        self.model(list(arrays) if len(arrays) > 1 else arrays[0], training=True)
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
        shapes = tuple(array.shape for array in arrays)
        if shapes not in self._functions:
            self._functions[shapes] = self._trace(tensors)
            # graphs are collected when a function is first instantiated, and only then
            self._context.context().enable_graph_collection()
            try:
                self._functions[shapes](*tensors)
                metadata = self._context.context().export_run_metadata()
            finally:
                self._context.context().disable_graph_collection()
            self._executed = list(metadata.partition_graphs)
        function = self._functions[shapes]
        return lambda: function(*tensors)

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
        if freezes:
            from tensorflow.python.framework.convert_to_constants import (
                convert_variables_to_constants_v2,
            )

            function = convert_variables_to_constants_v2(function)
            if compiles:
                function = concrete(function, True)
        self._variables = len(function.variables)
        return function

    def outputs(self, result: Any) -> list[Array]:
        """Flatten tensors, sequences and mappings in order."""
        return [self.tf.cast(t, self.tf.float32).numpy() for t in self.tf.nest.flatten(result)]

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

    def n_parameters(self) -> int:
        """Count trainable parameters."""
        return int(sum(v.shape.num_elements() for v in self.model.trainable_variables))

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name what an exhausted memory raises."""
        return (MemoryError, self.tf.errors.ResourceExhaustedError)

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """List the operators of the default's concrete function, as traced."""
        shapes = tuple(array.shape for array in arrays)
        return [
            Node(op.name, op.type, tuple(tensor.op.name for tensor in op.inputs))
            for op in self._functions[shapes].graph.get_operations()
        ]

    def read_back(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        """Look at the threads that were created and at the graph that was executed."""
        nodes = [node for graph in self._executed for node in _all_nodes(graph)]
        found = [*self._threads(settings), *self._compilation(nodes, settings)]
        found += self._precision(nodes, settings)
        found += self._grappler(settings)
        n_onednn = sum(node.op.startswith(("_Mkl", "_OneDnn")) for node in nodes)
        if nodes:
            found.append(
                ReadBack(
                    "env.TF_ENABLE_ONEDNN_OPTS",
                    settings.get("env.TF_ENABLE_ONEDNN_OPTS"),
                    int(n_onednn > 0),
                    "effective",
                    f"{n_onednn} of {len(nodes)} executed nodes are oneDNN's",
                )
            )
        fpmath = "env.ONEDNN_DEFAULT_FPMATH_MODE"
        if fpmath in settings:
            found.append(products.read_back(fpmath, settings[fpmath], self._products()))
        return found

    def _threads(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        return [
            ReadBack(
                "env.TF_NUM_INTRAOP_THREADS",
                settings.get("env.TF_NUM_INTRAOP_THREADS"),
                self._pools["intra"],
                "effective",
                "threads that appeared when the pools were created",
            ),
            ReadBack(
                "env.TF_NUM_INTEROP_THREADS",
                settings.get("env.TF_NUM_INTEROP_THREADS"),
                self._pools["tf_Compute"],
                "effective",
                "threads named tf_Compute",
            ),
        ]

    def _compilation(self, nodes: list[Any], settings: Mapping[str, Value]) -> list[ReadBack]:
        reads = sum(n.op in ("ReadVariableOp", "VarHandleOp") for n in nodes)
        clusters = sum(n.op == "_XlaRun" for n in nodes)
        xla_threads = sum(name == "tf_XLAEigen" for name in threads_by_name().values())
        xla = xla_threads > 0 and not nodes  # a compiled function executes no partitioned graph
        frozen = self._variables == 0 and (xla or (bool(nodes) and reads == 0))
        found = [
            ReadBack(
                "tensorflow.frozen",
                settings.get("tensorflow.frozen"),
                frozen,
                "effective",
                f"{reads} variable reads among {len(nodes)} executed nodes, "
                f"{self._variables} captured variables",
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
            found.append(
                ReadBack(
                    "env.TF_XLA_FLAGS",
                    flags,
                    flags if clusters else "unset",
                    "effective",
                    f"{clusters} clusters run by XLA among {len(nodes)} executed nodes",
                )
            )
        return found

    def _precision(self, nodes: list[Any], settings: Mapping[str, Value]) -> list[ReadBack]:
        """Tell bf16 by grappler from bf16 by Keras's policy: by the policy that is in force."""
        bf16 = self.tf.bfloat16.as_datatype_enum
        compute = [n for n in nodes if any(op in n.op for op in _COMPUTE_OPS)]
        low = sum(n.attr["T"].type == bf16 for n in compute if "T" in n.attr)
        policy = self.tf.keras.mixed_precision.global_policy().name
        is_low = 2 * low > len(compute) and low > 0
        how = f"{low} of {len(compute)} convolutions and products executed in bf16"
        asked = settings.get("tensorflow.keras_policy")
        # compiled by XLA, no node is executed by itself: the policy was accepted, and no more
        kept = policy if is_low or not nodes else "float32"
        return [
            ReadBack(
                "tensorflow.auto_mixed_precision",
                settings.get("tensorflow.auto_mixed_precision"),
                "bf16" if is_low and policy == "float32" else "off",
                "effective",
                how,
            ),
            ReadBack(
                "tensorflow.keras_policy",
                asked,
                kept,
                "effective" if nodes else "accepted",
                f"global policy {policy}; {how}",
            ),
        ]

    def _grappler(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        options = self.tf.config.optimizer.get_experimental_options()
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

    def _products(self) -> list[products.Multiply]:
        tf = self.tf

        def matrix(a: Array, b: Array) -> Array:
            result: Array = tf.linalg.matmul(a, b).numpy()
            return result

        def convolution(a: Array, b: Array) -> Array:
            side = int(len(a) ** 0.5)
            image = tf.reshape(a, (1, side, side, a.shape[1]))
            result: Array = tf.nn.conv2d(image, b[None, None], 1, "VALID").numpy()
            return result.reshape(len(a), b.shape[1])

        return [matrix, convolution]


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
