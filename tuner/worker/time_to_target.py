"""A run of training from new weights until the model reaches the target that its file states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.host.numa import apply_memory_policy
from tuner.record.load import TRAINING
from tuner.record.protocol import LearnToTarget
from tuner.record.time_to_target import MOST_STEPS, TrainingRun
from tuner.space.knobs_of.torch import RANKS
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.training import Learner
from tuner.worker.gallery.statement import TargetFunctions, batch_axis
from tuner.worker.training import TrainingSession

_KINDS = {"f": "floats", "i": "integers", "u": "integers"}
"""By NumPy's kinds of types."""


class TimeToTargetSession(TrainingSession):
    """The state of a process that trains a model once, to its target."""

    _stated: list[tuple[tuple[int, ...], str]] | None = None
    """Shapes and kinds of a batch of inputs and targets; None until they are needed."""

    def learn_to_target(self, order: LearnToTarget) -> TrainingRun:
        """Build the model by the seed, without a reference, and train it.

        Raises UsageError if its file states no target, or its functions return something else.
        """
        if order.settings.get(RANKS, 1) != 1:
            raise UsageError(f"{RANKS}: several processes are not trained to a target")
        apply_memory_policy(order.memory_policy)
        self._settings = order.settings
        self._load(order.model, order.framework, order.seed, TRAINING, order.device)
        stated, target = self._source.target_functions(order.framework), self._spec.target
        samples, quality = stated.samples, stated.quality
        if target is None or samples is None or stated.held_out is None or quality is None:
            raise UsageError(_missing(stated, has_target=target is not None))
        self.framework.build.place(order.settings)
        held_out = self._arrays("held_out()", stated.held_out)
        first = order.seed * MOST_STEPS  # no two runs are given the same samples
        work, clock = self._work, self._work.clock
        evaluations: list[tuple[int, float]] = []
        seconds: list[float] = []
        with work.running():
            learner = work.learner(self._drawn(samples, order.batch, first))
            self._seed_all(order.seed)  # whatever building has drawn
            for n in range(target.most_steps + 1):
                if n % target.every == 0:
                    self._tell(f"step {n} of at most {target.most_steps}")
                    found = self._quality(quality, learner, held_out, order.batch)
                    if not math.isfinite(found):
                        break
                    evaluations.append((n, found))
                    if not n and found >= target.at_least:
                        raise UsageError(
                            f"{target.quality} is {found:.4g} before the first step, and the "
                            f"target {target.at_least:g}: state a higher one, or new weights"
                        )
                    if found >= target.at_least or n == target.most_steps:
                        break
                given = self._drawn(samples, order.batch, first + n)
                begun = clock()
                learner.step(given)
                seconds.append(clock() - begun)
        rest = seconds[1:]
        return TrainingRun(
            target,
            tuple(evaluations),
            sum(rest) / len(rest) if rest else 0.0,
            sum(seconds),
            self.framework.build.versions(),
        )

    def _drawn(
        self, samples: Callable[[int, int], Sequence[Any]], n: int, seed: int
    ) -> list[Array]:
        """Return n samples; raises UsageError if there are fewer, or more."""
        found = self._arrays(f"samples({n}, {seed})", lambda: samples(n, seed))
        if self._stated is None:
            self._stated = list(map(_form, self._inputs(0, n)))
        given = list(map(_form, found[: len(self._stated)]))
        if given != self._stated and self._spec.n_shapes() == 1:
            raise UsageError(
                f"samples({n}, {seed}) returned {_listed(given)}; the file states "
                f"{_listed(self._stated)}, inputs and then targets"
            )
        return found

    def _arrays(self, name: str, make: Callable[[], Sequence[Any]]) -> list[Array]:
        """Return what a function of the file returns; raises UsageError for other things."""
        found = _called(name, make)
        spec = self._spec
        n, has_loss = len(spec.inputs) + len(spec.targets), self._work.task.loss is not None
        if not spec.targets and not has_loss:
            raise UsageError(
                "the file states no targets, so that nothing is learnt: state them, "
                "MODEL = Model(..., targets=(Integers((), 0, 9),)), or a loss(model, batch)"
            )
        if not isinstance(found, list | tuple) or not all(
            isinstance(each, np.ndarray) and each.ndim for each in found
        ):
            raise UsageError(
                f"{name} returned a {type(found).__name__}; it must return a list or tuple of "
                "NumPy arrays: the inputs, then the targets"
            )
        if len(found) != n and (spec.targets or len(found) < n):
            raise UsageError(
                f"{name} returned {len(found)} arrays; the file states {len(spec.inputs)} input(s) "
                f"and {len(spec.targets)} target(s)"
            )
        return [np.ascontiguousarray(each) for each in found]

    def _samples_first(self, output: Array, n: int) -> Array:
        """Return an output of n samples with these as its first dimension."""
        axes = [axis for axis, size in enumerate(output.shape) if size == n]
        if not axes:
            raise UsageError(
                f"an output of the model has the shape {output.shape} for {n} held-out samples: it "
                "must have an entry for each"
            )
        stated = self._spec.batch_dim or 0
        return np.moveaxis(output, stated if stated in axes else axes[0], 0)

    def _axis(self, array: Array) -> int:
        return batch_axis(self._spec.batch_dim, array.ndim)

    def _quality(
        self,
        quality: Callable[[Sequence[Any], Sequence[Any]], float],
        learner: Learner,
        held_out: Sequence[Array],
        batch: int,
    ) -> float:
        """Return the quality on the held-out samples, which are answered a batch at a time."""
        n_inputs = len(self._spec.inputs)
        inputs, targets = held_out[:n_inputs], held_out[n_inputs:]
        n = inputs[0].shape[self._axis(inputs[0])]
        parts = []
        for begin in range(0, n, batch):
            rows = range(begin, min(n, begin + batch))
            given = [np.ascontiguousarray(a.take(rows, self._axis(a))) for a in inputs]
            parts.append([self._samples_first(y, len(rows)) for y in learner.evaluate(given)])
        outputs = [np.concatenate(each) for each in zip(*parts, strict=True)]
        found = _called("quality()", lambda: quality(outputs, targets))
        try:
            return float(found)
        except (TypeError, ValueError):
            raise UsageError(
                f"quality() returned a {type(found).__name__}; it must return a number"
            ) from None


def _form(array: Array) -> tuple[tuple[int, ...], str]:
    """Return the shape of an array, and whether it holds floats, integers or something else."""
    return array.shape, _KINDS.get(array.dtype.kind, array.dtype.name)


def _listed(forms: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{kind} {shape}" for shape, kind in forms)


def _called(name: str, function: Callable[[], Any]) -> Any:
    """Call a function of the file; raises UsageError for whatever it raises."""
    try:
        return function()
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise UsageError(f"{name} raised {type(error).__name__}: {first_line}") from error


def _missing(stated: TargetFunctions, *, has_target: bool) -> str:
    """Name what the file does not state."""
    parts = {
        'MODEL = Model(..., target=Target("accuracy", 0.9, every=20, most_steps=2000))': has_target,
        "samples(n, seed)": stated.samples,
        "held_out()": stated.held_out,
        "quality(outputs, targets)": stated.quality,
    }
    lacking = ", ".join(name for name, there in parts.items() if not there)
    return f"the model's file states no quality target: it lacks {lacking} (docs/training.md)"
