"""A model in this process: imported, built, fed with inputs, its outputs read."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tuner.errors import UsageError
from tuner.host.gpu_watch import watch_on
from tuner.host.interference import Watch
from tuner.record.configuration import Value
from tuner.record.load import INFERENCE
from tuner.record.workload import CPU, ModelRef
from tuner.worker import inputs, reference
from tuner.worker.accuracy import Scores, scores_of
from tuner.worker.frameworks import Array, Framework, framework
from tuner.worker.gallery import Input, Model, Recorded
from tuner.worker.gallery.sources import Source, source_of
from tuner.worker.gallery.statement import Accuracy, as_called, batch_axis
from tuner.worker.independence import Independence
from tuner.worker.kept import Kept, joined, keep
from tuner.worker.own_settings import OwnSettings

Tell = Callable[[str], None]


class LoadedModel:
    """A model in its framework; `tell` reports the current activity."""

    framework: Framework
    _spec: Model
    _accuracy: Accuracy | None
    _own: OwnSettings
    _source: Source

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._watch = Watch()
        self._settings: dict[str, Value] = {}
        self._seed = 0
        self._import_s = 0.0
        self._output_dims: tuple[int, ...] | None = None
        """Which dimension of each output is the batch; None until it is known."""

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
        self._seed_all(seed)
        self._own = OwnSettings(self.framework.build.setters)
        with self._own.watched():
            source = source_of(ref)
            if weights is not None and weights.exists():
                made = self.framework.build.rebuilt(lambda: source.build(name), weights)
            else:
                made = source.build(name)
        self.framework.build.adopt(made)
        self._source = source
        stated = source.state()
        self._spec, self._accuracy = as_called(stated, ref.batch, ref.batch_dim), source.accuracy
        self.framework.build.calibration = self._calibration
        self._is_loaded()
        return time.perf_counter() - start

    def _is_loaded(self) -> None:
        """Do what a kind of session does once the model is there."""

    def _seed_all(self, seed: int) -> None:
        """Seed the random numbers from which a user's file may draw weights or outputs."""
        random.seed(seed)
        np.random.seed(seed)
        self.framework.build.seed(seed)

    def _inputs(self, first: int, count: int, shape: int = 0) -> list[Array]:
        """Return one batch of inputs, in the framework's layout."""
        return inputs.generate(
            self._given(),
            first,
            count,
            self._seed,
            shape=shape,
            channels_first=self.framework.build.channels_first,
            batch_dim=self._spec.batch_dim,
        )

    def _calibration(self, example: Sequence[Array]) -> Iterator[list[Array]]:
        """Yield inputs like an example: the first recorded ones, or made-up ones never checked."""
        if not all(each.ndim for each in example):
            return
        batch = example[0].shape[batch_axis(self._spec.batch_dim, example[0].ndim)]
        is_recorded = any(isinstance(each, Recorded) for each in self._spec.inputs)
        first = 0 if is_recorded else reference.FIRST_CALIBRATION_INPUT
        kinds = [(each.shape, each.dtype) for each in example]
        for shape in range(self._spec.n_shapes()):
            for i in range(0, reference.N_CALIBRATION_INPUTS, batch):
                made = self._inputs(first + i, batch, shape)
                if [(each.shape, each.dtype) for each in made] != kinds:
                    break
                yield made

    def _given(self) -> tuple[Input, ...]:
        """Return what a call is given."""
        return self._spec.inputs

    def _call(self, arrays: list[Array]) -> list[Array]:
        return self.framework.work.outputs(self.framework.work.program(arrays)())

    def _check_answers(self, arrays: list[Array], batch: int) -> None:
        """Make the default's first calls, and check what its answers depend on.

        Raises UsageError with advice for a model that takes one sample at a time, and if the
        outputs depend on more than a sample.
        """
        probe = Independence(self._spec, self._inputs, self._call, self._to_front, self._seed_all)
        outputs: list[Array] = []
        try:
            outputs = self._call(arrays)
            self._to_front(outputs, batch)
        except self.framework.build.out_of_memory_errors():
            raise
        except Exception as error:
            if outputs and (fault := probe.other_dimension(arrays, outputs)):
                raise UsageError(fault) from error
            if batch > 1 and self._answers_one():
                first_line = str(error).strip().partition("\n")[0]
                kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
                raise UsageError(
                    f"the model answers one sample and not {batch} at a time: give --batch 1, or "
                    f"state reference_batch=1 and batches=(1,) in its Model ({kind}{first_line})"
                ) from error
            raise
        probe.check(arrays, outputs, batch)

    def _answers_one(self) -> bool:
        with contextlib.suppress(Exception):  # whatever it raises, that is no answer
            return all(y.ndim and len(y) == 1 for y in self._call(self._inputs(0, 1)))
        return False

    def _outputs(
        self, batch: int, n_inputs: int, sample_seed: int
    ) -> tuple[list[Kept], Scores | None]:
        """Return the outputs for the first check inputs, and the user's scores of them.

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
                    made = self._to_front(self._call(arrays), batch)
                    pieces.append(self._kept(made, sample_seed))
                    dim = self._spec.batch_dim
                    given.append([np.moveaxis(a, batch_axis(dim, a.ndim), 0) for a in arrays])
            found += [joined(parts).first(each) for parts in zip(*pieces, strict=True)]
        if self._accuracy is None:
            return found, None
        rows = [np.concatenate(parts)[:each] for parts in zip(*given, strict=True)]
        return found, scores_of(self._accuracy([kept.values for kept in found], rows), each)

    def _to_front(self, outputs: list[Array], batch: int) -> list[Array]:
        """Return outputs with the batch, of this size, as their first dimension.

        Raises UsageError for one that has no such dimension.
        """
        if self._output_dims is None:
            self._output_dims = self._find_output_dims(outputs, batch)
        if len(outputs) != len(self._output_dims):  # the comparison says so
            return outputs
        moved = []
        for index, (y, dim) in enumerate(zip(outputs, self._output_dims, strict=True)):
            if y.ndim <= dim or y.shape[dim] != batch:
                raise _without_batch(index, y, batch)
            moved.append(np.moveaxis(y, dim, 0))
        return moved

    def _find_output_dims(self, outputs: list[Array], batch: int) -> tuple[int, ...]:
        """Return the batch dimension of each output: the one that grows with the batch.

        If only the first dimension has its size, no other call is made.
        """
        stated = self._spec.batch_dim or 0
        if not stated and all(_has_batch_first_alone(y.shape, batch) for y in outputs):
            return (0,) * len(outputs)
        larger: list[Array] = []
        with contextlib.suppress(Exception):  # one that takes this batch alone may raise anything
            larger = self._call(self._inputs(0, batch + 1))
        dims = []
        for index, y in enumerate(outputs):
            found = [d for d, size in enumerate(y.shape) if size == batch]
            if len(larger) == len(outputs) and larger[index].ndim == y.ndim:
                grown = [d for d in found if larger[index].shape[d] == batch + 1]
                found = grown or (found if batch == 1 else [])
            if not found:
                raise _without_batch(index, y, batch)
            dims.append(stated if stated in found else found[0])
        return tuple(dims)

    def _kept(self, outputs: list[Array], sample_seed: int) -> list[Kept]:
        """Return what is kept of a call's outputs: all of those that other steps need whole."""
        kept = []
        for index, output in enumerate(outputs):
            is_needed = (index == 0 and self._spec.n_classes) or self._accuracy is not None
            kept.append(Kept(output) if is_needed else keep(output, sample_seed, len(outputs)))
        return kept


def _has_batch_first_alone(shape: tuple[int, ...], batch: int) -> bool:
    return shape[:1] == (batch,) and (batch == 1 or batch not in shape[1:])


def _without_batch(index: int, output: Array, batch: int) -> UsageError:
    return UsageError(
        f"output {index} of the model has the shape {output.shape} for {batch} inputs: every "
        "output must have an entry for each; let the model return those alone"
    )
