"""One launch in which a model learns: its calls are steps, its outputs losses and gradients.

A configuration trains as the default does if, on the same batches and from the same weights, its
gradients and its losses over a few steps are the default's. How far they are off is measured
against how much they differ between batches (losses also between steps): rounding that adds a share
s to a gradient adds s^2 to the variance that the choice of a batch has anyway. Where no setting
changes the numerics, the bound is what moving every weight by a few roundings does to the default
itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import cast

import msgspec
import numpy as np

from tuner.errors import UsageError
from tuner.record.launch import Built, Compiled, Prepared
from tuner.record.numerics import Level
from tuner.record.output_check import Bounds, OutputCheck, bounds_of
from tuner.record.protocol import Begin, Idle, Measure, Measured, Prepare
from tuner.space.knobs_of.torch import RANKS
from tuner.worker import check, reference
from tuner.worker.accuracy import Scores
from tuner.worker.evidence.process import proportional_bytes
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.training import Loading, Task, Trainer
from tuner.worker.gallery import Input
from tuner.worker.kept import Kept, joined, keep
from tuner.worker.reference import OwnError
from tuner.worker.scenarios import SCENARIOS
from tuner.worker.scenarios.timing import Call, in_turn, timed, until_steady
from tuner.worker.session import Session

_N_BATCHES = 4
_N_STEPS = 3
"""On each batch: the second loss shows the first update, the third that gradients are not added
up."""
_NUDGE = 2.0**-20
"""Of every weight, 8 units in the last place of fp32: about what sums in another order come to in a
network of some tens of layers."""
_NUDGE_OF_TF32 = 2.0**-10
"""The same for a default that multiplies in TF32, as on a card: one rounding of it."""
_WAITS = 0.1
"""Share of a step that it waits for its batch, from which on none was ready."""
_IDLE_S, _FULL_S = 0.1, 10.0
"""A loader whose processes use no CPU for so long has made all batches ahead; seconds until it is
no longer waited for."""
_THERE_S = 1.0
"""Seconds for which steps are timed whose batch is there."""
_SMALL = 1e-3
"""Share of the whole gradient's size below which a parameter's own may be rounding alone, as that
of a bias before a norm is."""
_MOST_SHRUNK = 0.5
"""A parameter's gradient, and its update, have at least this share of their size in the default,
and at most its inverse: of one that is cut off nothing is left, one that is not reset is doubled,
and updates that are rounded away move nothing."""
_PER_BATCH = 3
"""Arrays that are kept of a batch: losses, the gradient, the sizes of its parts and of updates."""


class TrainingSession(Session):
    """The state of a launch inside the worker, of a model that learns."""

    _fed: Call | None = None
    """A step on the next batch of the user's loader."""
    _loading: Loading | None = None
    """None if every step has the same batch, which lies in memory."""
    _others: Sequence[int] = ()
    """The process numbers of those that train the model together with this one."""
    _names: Sequence[str] = ()
    """Of the parameters that learn."""
    _there: Call | None = None
    """A step whose batch is there, in a launch whose other steps wait for theirs."""

    def _is_loaded(self) -> None:
        """Tell the framework what the model learns."""
        loss, optimizer, loader = self._source.learning(self._framework_name)
        self._work.task = Task(
            loss,
            optimizer,
            loader,
            self._spec.n_classes,
            len(self._spec.inputs),
            self._spec.batch_dim or 0,
        )

    @property
    def _work(self) -> Trainer:
        return cast("Trainer", self.framework.work)

    def _given(self) -> tuple[Input, ...]:
        return (*self._spec.inputs, *self._spec.targets)

    def _stated_macs(self) -> int:
        """A file states those of an answer; a step has those of the backward pass, too."""
        return 0

    def _in_words(self) -> str:
        """Say what the model learns, and by which optimizer."""
        work = self._work
        of = ", of its file" if self._spec.targets or work.task.loss is not None else (
            " with random targets, as its file states none"
        )  # fmt: skip
        data = f"; batches from a {self._loading.in_words()}" if self._loading else ""
        return f"{work.loss_name}{of}; {work.optimizer_name}{data}"

    def _feed(self, batch: int) -> None:
        """Let the next steps wait for their batches, if the model's file states a loader."""
        if self._work.task.loader is None:
            return
        if self._spec.n_shapes() > 1:
            raise UsageError(
                "inputs of several lengths are not measured with a loader: state one length, or "
                "remove loader() to train on batches in memory"
            )
        self._fed, self._loading = self._work.fed(batch)
        self._watch.include(self._loading.workers, with_children=True)

    @property
    def _has_loader(self) -> bool:
        return self._loading is not None

    def _as_timed(self, call: Call) -> Call:
        return self._fed or call

    def begin(self, order: Begin) -> Built:
        """Build the model here and, if several processes train it, in the others."""
        built = super().begin(order)
        self._start_others(order)
        return built

    def _start_others(self, order: Begin) -> None:
        """Start them where the framework's own threads may run, and not where this one is bound."""
        if order.settings.get(RANKS, 1) != 1 and self._work.task.loader is not None:
            raise UsageError(
                "several processes would each need a part of each batch of the loader, which is "
                "not measured"
            )
        if others := self._work.start_others(order, self._cpus):
            self._others = others
            self._watch.include(lambda: others)

    def prepare(self, order: Prepare) -> Compiled:
        """Compile, and take the first step, with its batch there."""
        if self._others and self._spec.n_shapes() > 1:
            raise UsageError("several processes are not measured with inputs of several lengths")
        compiled = super().prepare(order)
        batch, work = order.load.batch, self._work
        self._feed(batch)
        if self._fed is not None:
            self._there = in_turn(self._calls)
            self._calls, self._by_size = [self._fed], {batch: [self._fed]}
            self._scenario = SCENARIOS[order.load.scenario](order.load, self._by_size, work)
        return compiled

    def warm_up(self) -> Prepared:
        """Make steps until they are steady."""
        prepared = super().warm_up()
        others = [*self._others, *(self._loading.workers() if self._loading else ())]
        held = [proportional_bytes(pid) for pid in others]
        return msgspec.structs.replace(
            prepared,
            call_there_s=self._call_there_s(),
            memory_peak_bytes=prepared.memory_peak_bytes + sum(each for each, _ in held),
            memory_private_bytes=prepared.memory_private_bytes + sum(own for _, own in held),
        )

    def _call_there_s(self) -> float:
        """Return the mean seconds of a step whose batch is there; 0 where none is waited for.

        After steps from the loader, whose allocations change how malloc serves those that follow,
        and once the loader has made all batches that it makes ahead.
        """
        if self._there is None or self._loading is None:
            return 0.0
        begun, used_s = time.monotonic(), -1.0
        while used_s != (used_s := self._loading.used_s()) and time.monotonic() - begun < _FULL_S:
            time.sleep(_IDLE_S)
        clock = self._work.clock
        with self._work.running():
            until_steady(self._there, clock)
            taken = timed([self._there], clock, _THERE_S)
        return taken.seconds / len(taken.took_s)

    def measure(self, order: Measure) -> Measured | Idle:
        """Time steps, after those whose batches were made while nothing was timed."""
        if self._fed is not None and self._loading is not None:
            with self._work.running():
                self._use_up(self._fed, self._loading, order.seconds)
        return super().measure(order)

    def _use_up(self, step: Call, loading: Loading, most_s: float) -> None:
        """Take steps until one has to wait; a loader that keeps up for `most_s` is steady, too."""
        clock = self._work.clock
        first = clock()
        for _ in range(loading.n_ahead):
            begun = clock()
            step()
            now = clock()
            if loading.wait_s > _WAITS * (now - begun) or now - first > most_s:
                return

    def _check_answers(self, arrays: list[Array], batch: int) -> None:
        """Take the default's first steps.

        Raises UsageError for a loss that teaches nothing, or a step that changes its inputs.
        """
        work, stated = self._work, self._work.task.loss is not None
        before = [array.copy() for array in arrays]  # PyTorch's tensors share their memory
        try:
            step = work.program(arrays)
            step()
        except UsageError:
            raise
        except Exception as error:
            if not stated or isinstance(error, self.framework.build.out_of_memory_errors()):
                raise
            raise UsageError(self._fault_of_loss(error)) from error
        moves = work.moves(step)
        learned = work.learn(step, _N_STEPS)
        sizes = [float(np.abs(g).max(initial=0.0)) for g in learned.gradients]
        if not np.isfinite([*learned.losses, *sizes]).all():
            losses = ", ".join(f"{loss:.4g}" for loss in learned.losses)
            raise UsageError(
                f"the loss is {losses} in the default's first steps, or a gradient is not finite: "
                "nothing can be learnt from it; give inputs and targets that the model is made for"
            )
        if not any(sizes):
            raise UsageError("every gradient is 0: the loss does not depend on the weights")
        if moves:
            raise UsageError(
                f"{work.optimizer_name} moves the weights even at a learning rate of 0, at which "
                "steps are timed: their times would depend on what was learnt. State another "
                "optimizer, such as AdamW or SGD: its update takes about as long"
            )
        self._step_memory = work.memory(step, batch)
        self._feed(batch)
        if self._fed is not None:
            self._fed()
        if not work.unchanged(before):
            raise UsageError(
                "a step changes its inputs in place, so that the next one is given others: let the "
                "model work on a copy of them"
            )

    def _fault_of_loss(self, error: Exception) -> str:
        """Say what a file's loss raised, and what it was given."""
        first_line = str(error).strip().partition("\n")[0].rstrip(".")
        spec = self._spec
        given = [f"{len(spec.inputs)} array(s) of inputs", f"{len(spec.targets)} of targets"]
        text = (
            f"{self._work.loss_name} raised {type(error).__name__}: {first_line}; its batch holds "
            f"{' and '.join(given)}"
        )
        if spec.targets:
            return text
        return (
            f"{text}. Targets are stated in the file: MODEL = Model(..., targets=(Integers((), 0, "
            "9),)) gives it a class from 0 to 9 for each sample; or let the function return them "
            "in its batch"
        )

    def _outputs(
        self, batch: int, n_inputs: int, sample_seed: int
    ) -> tuple[list[Kept], Scores | None]:
        """Return losses and gradients on the first check batches, for each shape of inputs."""
        return self._learned(batch, sample_seed, _N_BATCHES), None

    def _learned(self, batch: int, sample_seed: int, n_batches: int) -> list[Kept]:
        found: list[Kept] = []
        with self.framework.work.running():
            if self._draws is None:
                self._draws = self._step_draws(batch)
            if self._draws:
                self._work.quiet()
            for shape in range(self._spec.n_shapes()):
                pieces = [
                    self._trajectory(batch, number, shape, sample_seed)
                    for number in range(n_batches)
                ]
                found += [joined(parts) for parts in zip(*pieces, strict=True)]
        return found

    def _trajectory(self, batch: int, number: int, shape: int, sample_seed: int) -> list[Kept]:
        first = reference.FIRST_CHECK_INPUT + number * batch
        step = self._work.program(self._inputs(first, batch, shape))
        self._seed_all(self._seed)
        learned = self._work.learn(step, _N_STEPS)
        self._names = learned.names
        sizes = [float(np.linalg.norm(g.astype(np.float64))) for g in learned.gradients]
        whole = np.concatenate([g.ravel() for g in learned.gradients])
        return [
            Kept(learned.losses[:, None]),
            keep(whole[None], sample_seed),
            Kept(np.array([[*sizes, *learned.moved]])),
        ]

    def _step_draws(self, batch: int) -> bool:
        """Tell whether a step depends on the seed of random numbers."""
        step = self._work.program(self._inputs(reference.FIRST_CHECK_INPUT, batch))
        losses = []
        for seed in (self._seed, self._seed + 1):
            self._seed_all(seed)
            losses.append(self._work.learn(step, 1).losses)
        return not np.array_equal(losses[0], losses[1])

    def _exact(self, outputs: list[Kept], n: int, seed: int) -> tuple[list[Kept], OwnError]:
        """Return the default's outputs, and how far moved weights take one batch of them."""
        is_fp32 = self.framework.build.exact() is None
        self._work.nudge(_NUDGE if is_fp32 else _NUDGE_OF_TF32, seed)
        moved = self._learned(self._spec.reference_batch, seed, 1)
        drift = self._compared(moved, outputs, bounds_of(Level.REDUCED, default_drift=1.0)).drift
        if not math.isfinite(drift):
            raise UsageError(
                "the loss or its gradient is not finite, or changes its shape from step to step: "
                "nothing can be compared with it"
            )
        return outputs, OwnError(drift)

    def _blind_spot(self, outputs: list[Kept], bounds: Bounds) -> str:
        """Random steps cannot be compared: what draws must be a layer's."""
        if fault := check.blind_spot(_without_sizes(outputs), bounds.default_rounding):
            return fault
        with self.framework.work.running():
            if self._draws and self._step_draws(self._spec.reference_batch):
                return (
                    "the loss is random even with dropout switched off, so that no setting can be "
                    f"shown to train alike: draw random numbers by {self._work.how_to_draw}"
                )
        return ""

    def _compared(self, outputs: list[Kept], expected: list[Kept], bounds: Bounds) -> OutputCheck:
        n_shapes = self._spec.n_shapes()
        loss, gradient = (
            check.compare(outputs[i::_PER_BATCH], expected[i::_PER_BATCH], bounds, False, n_shapes)
            for i in (0, 1)
        )
        return OutputCheck(
            drift=max(loss.drift, gradient.drift),
            n_inputs=gradient.n_inputs,
            channel="the loss" if loss.drift > gradient.drift else "the gradient",
            unrelated=self._lost(outputs, expected),
        )

    def _lost(self, outputs: list[Kept], expected: list[Kept]) -> str:
        """Name the first parameter that is cut off, is not updated, or adds up; empty for none."""
        own, default = (each[_PER_BATCH - 1 :: _PER_BATCH] for each in (outputs, expected))
        for found, whole in zip(own, default, strict=True):
            sizes, usual = found.values, whole.values[: len(found.values)]
            if sizes.shape != usual.shape:
                return "the number of parameters is not"
            size, size0 = (np.sqrt((a**2).sum(axis=0)).reshape(2, -1) for a in (sizes, usual))
            counts = size0[0] > _SMALL * np.linalg.norm(size0[0])
            ratio = np.divide(size, size0, out=np.ones_like(size), where=size0 > 0)
            for kind, ratios in zip(("gradient", "update"), ratio, strict=True):
                wrong = counts & ((ratios < _MOST_SHRUNK) | (ratios > 1 / _MOST_SHRUNK))
                if wrong.any():
                    index = int(np.argmax(wrong))
                    return f"the {kind} of {self._names[index]} has {ratios[index]:.2g} times"
        return ""

    def _fault(self, result: OutputCheck, bounds: Bounds) -> str | None:
        if not math.isfinite(result.drift):
            return "a loss or a gradient is not finite, or of another shape than the default's"
        if result.unrelated:
            return f"{result.unrelated} the size that it has in the default"
        if result.drift > bounds.drift:
            return (
                f"{result.channel} drifts by {result.drift:.2g} from the default's, relative to "
                f"how much it differs between batches and steps; allowed is {bounds.drift:.2g}"
            )
        return None

    def keep_weights(self) -> None:
        """Keep none: to show that they give the same model would take as long as it saves."""


def _without_sizes(kept: list[Kept]) -> list[Kept]:
    """Return losses and gradients alone, shape by shape."""
    return [each for index, each in enumerate(kept) if index % _PER_BATCH != _PER_BATCH - 1]
