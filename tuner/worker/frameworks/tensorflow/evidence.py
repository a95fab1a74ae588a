"""The properties of a TensorFlow model, and the settings in force after a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.record.why import ModelWork
from tuner.record.workload import Parameter
from tuner.worker import engines
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.tensorflow import knobs
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild
from tuner.worker.frameworks.tensorflow.inference import TensorFlowInference, frozen
from tuner.worker.frameworks.tensorflow.work import operators
from tuner.worker.graph import Node


class TensorFlowEvidence:
    """Looks at the threads that were created and at the graph that was executed."""

    def __init__(self, build: TensorFlowBuild, work: TensorFlowInference) -> None:
        self._build = build
        self._work = work

    def read_back(self, settings: Mapping[str, Value], *, traces: bool = True) -> list[ReadBack]:
        """Report what is in force, for every knob of TensorFlow."""
        work = self._work
        seen_there = work.engine.read_back() if work.engine else []
        seen = knobs.Seen(
            self._build.tf,
            dict(settings),
            self._build.pools,
            work.execution,
            work.n_variables,
            {i.knob: i for i in (*engines.unused(settings), *seen_there)},
        )
        found = (way.read(seen) for way in knobs.ADAPTERS.values())
        return [item for item in found if item is not None]

    def parameters(self) -> list[Parameter]:
        """Name the trainable variables."""
        return [
            Parameter(
                getattr(v, "path", v.name),
                tuple(v.shape),
                int(np.prod(v.shape)) * self._build.tf.as_dtype(v.dtype).size,
            )
            for v in self._build.model.trainable_variables
        ]

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None:
        """Count nothing: TensorFlow's own counter knows no Einsum, and takes additions for work."""
        return None

    def work(self, call: Callable[[], Any], arrays: Sequence[Array], batch: int) -> ModelWork:
        """Count by the shapes in the default's frozen graph."""
        counted = operators(frozen(self._work.traced(arrays), keeps_loops=True), batch)
        return ModelWork(tuple(counted), "the shapes in the frozen graph")

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """List the operators of the default's concrete function, as traced.

        A saved model's lie in functions of its own, which freezing inlines.
        """
        function: Any = self._work.traced(arrays)
        if not isinstance(self._build.model, self._build.tf.keras.Model):
            function = frozen(function)
        return [
            Node(op.name, op.type, tuple(tensor.op.name for tensor in op.inputs))
            for op in function.graph.get_operations()
        ]
