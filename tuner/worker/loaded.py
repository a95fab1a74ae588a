"""A model in this process: imported, built, fed with inputs, its outputs read."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tuner.errors import UsageError
from tuner.host.gpu_watch import watch_on
from tuner.host.interference import Watch
from tuner.record.configuration import Value
from tuner.record.workload import CPU, INFERENCE, ModelRef
from tuner.worker import inputs, reference
from tuner.worker.frameworks import Array, Framework, framework
from tuner.worker.gallery import Model, Recorded
from tuner.worker.gallery.sources import source_of
from tuner.worker.gallery.statement import Accuracy
from tuner.worker.kept import Kept, joined, keep

Tell = Callable[[str], None]


class LoadedModel:
    """A model in its framework; `tell` says what is done with it now."""

    framework: Framework
    _spec: Model
    _accuracy: Accuracy | None

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._watch = Watch()
        self._settings: dict[str, Value] = {}
        self._seed = 0
        self._import_s = 0.0

    def _load(
        self,
        ref: ModelRef,
        name: str,
        seed: int,
        mode: str = INFERENCE,
        device: str = CPU,
        weights: Path | None = None,
    ) -> float:
        """Import the framework and build the model in its default form; return build seconds.

        weights: a file of them, if there is one.
        """
        self._tell("importing")
        self._framework_name = name
        self._cpus = os.sched_getaffinity(0)  # before any library binds its threads
        start = time.perf_counter()
        self._seed = seed
        self.framework = framework(name, mode, device)
        self._watch = watch_on(device)
        self.framework.build.start(self._settings)
        self._import_s = time.perf_counter() - start
        self._tell("building")
        start = time.perf_counter()
        random.seed(seed)
        np.random.seed(seed)  # a user's file may draw its weights from it
        self.framework.build.seed(seed)
        source = source_of(ref)
        if weights is not None and weights.exists():
            made = self.framework.build.rebuilt(lambda: source.build(name), weights)
        else:
            made = source.build(name)
        self.framework.build.adopt(made)
        self._spec, self._accuracy = source.state(), source.accuracy
        return time.perf_counter() - start

    def _inputs(self, first: int, count: int, shape: int = 0) -> list[Array]:
        """Return one batch of inputs, in the framework's layout."""
        return inputs.generate(
            self._spec.inputs,
            first,
            count,
            self._seed,
            shape=shape,
            channels_first=self.framework.build.channels_first,
        )

    def _outputs(
        self, batch: int, n_inputs: int, sample_seed: int
    ) -> tuple[list[Kept], float | None]:
        """Return the outputs for the first check inputs, and the user's accuracy over them.

        n_inputs: how many, over all shapes; of recorded inputs no more than there are.
        sample_seed: which elements of large outputs are kept.
        """
        found: list[Kept] = []
        given: list[list[Array]] = []
        first_of_all = reference.FIRST_CHECK_INPUT
        n_shapes = self._spec.n_shapes()
        each = -(-n_inputs // n_shapes)
        recorded = [i for i in self._spec.inputs if isinstance(i, Recorded)]
        if recorded:
            each, first_of_all = min(each, inputs.n_recorded(recorded[0])), 0
        for shape in range(n_shapes):
            pieces: list[list[Kept]] = []
            with self.framework.work.running():
                for first in range(0, each, batch):
                    arrays = self._inputs(first_of_all + first, batch, shape)
                    made = self.framework.work.outputs(self.framework.work.program(arrays)())
                    pieces.append(self._kept(made, batch, sample_seed))
                    given.append(arrays)
            found += [joined(parts).first(each) for parts in zip(*pieces, strict=True)]
        if self._accuracy is None:
            return found, None
        rows = [np.concatenate(parts)[:each] for parts in zip(*given, strict=True)]
        return found, float(self._accuracy([kept.values for kept in found], rows))

    def _kept(self, outputs: list[Array], batch: int, sample_seed: int) -> list[Kept]:
        """Return what is kept of a call's outputs: all of those that something else needs whole."""
        kept = []
        for index, output in enumerate(outputs):
            if output.ndim < 1 or len(output) != batch:
                raise UsageError(
                    f"output {index} of the model has the shape {output.shape} for {batch} inputs: "
                    "every output must have the batch first; let the model return those alone"
                )
            is_needed = (index == 0 and self._spec.n_classes) or self._accuracy is not None
            kept.append(Kept(output) if is_needed else keep(output, sample_seed, len(outputs)))
        return kept
