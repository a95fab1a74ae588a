"""What a study's launches say about every configuration: scores, costs and faults.

Everything is computed from what is stored. Launches of the confirmation take no part: they test
what was chosen, and choose nothing.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
import numpy as np
from scipy.special import stdtrit

from tuner.measurement.estimates import Estimates, kept
from tuner.measurement.queueing import misses_when_idle
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import UNPACED, LaunchRecord, Purpose
from tuner.record.objective import THROUGHPUT, Bound, Objective, timed_of
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.study.resource_costs import resource_costs_of

DEGRADED = 0.5
"""Next to a busy neighbour: what keeps less than this of the share that the default keeps."""
_CLEARLY = 0.1
"""Logarithm: single slices next to a neighbour scatter by several percent."""
_NO_FAULT = (Outcome.MEASURED, Outcome.INTERRUPTED, Outcome.PRUNED)
_LEAST_FLOOR = 0.01
"""Logarithm: scores that differ by less are never told apart."""


class FaultKind(StrEnum):
    """Why a configuration cannot win."""

    FAILED = "failed"
    OVER_BOUND = "over_bound"
    DEGRADES = "degrades"


class Fault(msgspec.Struct, frozen=True):
    """A reason why a configuration cannot win."""

    kind: FaultKind
    text: str
    """For a reader."""


class Row(msgspec.Struct, frozen=True):
    """What is known about a configuration, apart from its score and costs."""

    unobservable: frozenset[str]
    """Settings whose effect nothing in the process shows."""
    retained: float | None
    """Logarithm of the share of its value that is left next to a busy neighbour; None if unknown.
    """
    exceeds: str
    """The bound that it surely exceeds, in words; empty if none."""
    degrades: bool
    """Whether it is known to lose more than the default next to a busy neighbour."""
    faults: tuple[Fault, ...]

    @property
    def has_failed(self) -> bool:
        """Whether any launch failed by the configuration's own fault."""
        return any(fault.kind is FaultKind.FAILED for fault in self.faults)

    @property
    def over_bound(self) -> str:
        """The bound that disqualifies it, in words; empty if none."""
        return next((f.text for f in self.faults if f.kind is FaultKind.OVER_BOUND), "")

    @property
    def may_win(self) -> bool:
        """Whether it neither failed nor exceeds a bound."""
        return not self.has_failed and not self.over_bound

    @property
    def ship_fault(self) -> str:
        """Why it cannot win although it works, in words; empty if it can."""
        return next((f.text for f in self.faults if f.kind is not FaultKind.FAILED), "")


class Evaluation:
    """A view of a store. Call `refresh` after each measurement."""

    def __init__(
        self,
        store: Store,
        reference_batch: int,
        batches: tuple[int, ...],
        objective: Objective = THROUGHPUT,
        stand_in: Configuration | None = None,
        last_launch: int | None = None,
    ) -> None:
        """Evaluate what a store holds.

        batches: those at which the default, and every baseline that works there, is measured.
        stand_in: the configuration that answers if the default, a server, does not. last_launch:
        its number; later launches are ignored. None for all.
        """
        self._store = store
        self._last_launch = last_launch
        self.stand_in = stand_in
        self.objective = objective
        self.reference_batch = reference_batch
        self.batches = batches
        self.version = 0
        """Grows with each refresh."""
        self.refresh()

    def refresh(self) -> None:
        """Evaluate all launches again."""
        launches = self._launches()
        paced = [record for record in launches if record.request.purpose not in UNPACED]
        self.estimates = Estimates({r.request.id: r for r in launches}, self.objective)
        self.floor = max(_LEAST_FLOOR, self.estimates.launch_sd)
        """Scores that differ by less than this (log) are not told apart."""
        self.resource_costs = resource_costs_of(paced)
        """Memory and latency of every configuration that was launched."""
        self.version += 1
        self._rows: dict[Configuration, Row] = {}
        self._tried: dict[Configuration, float | None] = {}
        self._n_noted = -1
        self._measured: dict[tuple[int, WinnerClass], dict[Configuration, float]] = {}
        self._failed = {
            record.request.configuration
            for record in launches
            if record.ending is not None and record.ending.outcome not in _NO_FAULT
        }
        self._exceeds = beyond(launches, self.objective.bounds)
        self._unobservable = _unobservable(launches)
        self._retained = _retained(paced, self.objective)
        default = self.default_at_best()
        self.default_exceeds = "" if default is None else self._exceeds.get(default[0], "")
        """The bound that the default exceeds at its best batch, in words; empty if none."""
        at_batches = (self.at_batch(Configuration(), batch) for batch in self.batches)
        of_default = [self._retained[c] for c in at_batches if c in self._retained]
        self.default_retained = statistics.fmean(of_default) if of_default else None
        """What the default retains next to a busy neighbour, over its batches; None if unknown."""
        self.default_is_late = self.objective.slo is not None and self._is_default_late()
        """Whether a server misses the latency bound with the default even without a queue."""
        self.default_is_silent = self.stand_in is not None and default is None
        """Whether the default is a server that answers no request: nothing is compared with it."""

    def _is_default_late(self) -> bool:
        records = (r for r in self._launches() if is_default(r.request.configuration))
        timed = [taken for record in records for taken in timed_of(record.slices)]
        return 2 * sum(map(misses_when_idle, timed)) > len(timed)

    def trials(self) -> list[TrialNoted]:
        """Return every finished trial, oldest first."""
        trials = self._store.all(TrialNoted)
        if self._last_launch is None:
            return trials
        return [t for t in trials if all(launch <= self._last_launch for launch in t.launches)]

    def _launches(self) -> list[LaunchRecord]:
        last = math.inf if self._last_launch is None else self._last_launch
        return [r for number, r in self._store.launches.items() if number <= last]

    def at_batch(self, configuration: Configuration, batch: int) -> Configuration:
        """Return the canonical configuration with another batch."""
        bare = configuration.without(BATCH)
        return bare if batch == self.reference_batch else bare.with_value(BATCH, batch)

    # ---------------------------------------------------------------- one configuration

    def row(self, configuration: Configuration) -> Row:
        """Return what is known about a configuration."""
        if configuration not in self._rows:
            degrades = self._degrades(configuration)
            self._rows[configuration] = Row(
                unobservable=self._unobservable.get(configuration, frozenset()),
                retained=self._retained.get(configuration),
                exceeds=self._exceeds.get(configuration, ""),
                degrades=degrades,
                faults=tuple(self._faults(configuration, degrades=degrades)),
            )
        return self._rows[configuration]

    def _faults(self, configuration: Configuration, *, degrades: bool) -> Iterable[Fault]:
        if configuration in self._failed:
            yield Fault(FaultKind.FAILED, "it failed")
        exceeds = self._exceeds.get(configuration, "")
        # everything is compared with the default: a batch of it is disqualified only if it was
        # measured within the bounds at another
        if exceeds and (not is_default(configuration) or self._is_default_within()):
            yield Fault(FaultKind.OVER_BOUND, exceeds)
        if degrades and self.objective.bears_neighbours:
            yield Fault(FaultKind.DEGRADES, "it degrades next to a busy neighbour")

    def _is_default_within(self) -> bool:
        """Tell whether the default was measured within all bounds at any batch."""
        at_batches = (self.at_batch(Configuration(), batch) for batch in self.batches)
        return any(self.score(c) is not None and c not in self._exceeds for c in at_batches)

    def _degrades(self, configuration: Configuration) -> bool:
        """Tell whether a configuration keeps less than half of what the default keeps.

        Or is clearly slower than the default next to a busy neighbour. From a slice or two: a
        preference of the search, not a claim.
        """
        default, score = self.default_at_best(), self.score(configuration)
        retained, default_retained = self._retained.get(configuration), self.default_retained
        if default is None or score is None or retained is None or default_retained is None:
            return False
        lead = score + retained - default[1] - default_retained
        return retained < math.log(DEGRADED) + default_retained or lead < -_CLEARLY

    def may_win(self, configuration: Configuration) -> bool:
        """Tell whether a configuration neither failed nor exceeds a bound."""
        return self.row(configuration).may_win

    def score(self, configuration: Configuration) -> float | None:
        """Return the logarithm of a configuration's value, without drift; None if unmeasured."""
        return self.estimates.score(configuration)

    def n_launches(self, configuration: Configuration) -> int:
        """Return the number of launches that a score rests on."""
        return self.estimates.n_launches(configuration)

    def score_sd(self, configuration: Configuration) -> float:
        """Return the standard error of a score (log). That of a single slice is larger."""
        n = self.n_launches(configuration)
        if n:
            return self.estimates.launch_sd / math.sqrt(n)
        return math.hypot(self.estimates.scatter.between, self.estimates.scatter.within)

    def noise(self, a: Configuration, b: Configuration) -> float:
        """Return the standard error of the difference of two scores, at least 1 %."""
        return max(_LEAST_FLOOR, self.estimates.standard_error(a, b))

    # ---------------------------------------------------------------- all of them

    def tried(self) -> dict[Configuration, float | None]:
        """Return the score of every configuration that Optuna was told; None if it cannot win.

        A pruned one has the score of its only slice.
        """
        trials = self.trials()
        if len(trials) != self._n_noted:  # asked for many times between two launches
            self._n_noted = len(trials)
            self._tried = {
                trial.configuration: (
                    self.score(trial.configuration)
                    if trial.ending.outcome is Outcome.MEASURED
                    else trial.score
                )
                if self.may_win(trial.configuration)
                else None
                for trial in trials
            }
        return self._tried

    def measured(self, winner_class: WinnerClass) -> dict[Configuration, float]:
        """Return the score of every configuration that may win a class.

        It was measured to its end, with its outputs checked, and has not failed since.
        """
        trials = self.trials()
        key = len(trials), winner_class
        if key not in self._measured:  # asked for many times between two launches
            complete = (t.configuration for t in trials if t.ending.outcome is Outcome.MEASURED)
            self._measured[key] = {
                c: score
                for c in complete
                if allowed_in(winner_class, c) and (score := self.score(c)) is not None
                if self.may_win(c)
            }
        return self._measured[key]

    def best(self, candidates: Iterable[Configuration]) -> tuple[Configuration, float] | None:
        """Return the candidate with the highest score, and the score; None if none has one."""
        scored = [(c, s) for c in candidates if (s := self.score(c)) is not None]
        return max(scored, key=lambda pair: pair[1], default=None)

    # ---------------------------------------------------------------- the default

    def default_at_best(self) -> tuple[Configuration, float] | None:
        """Return the default at its best batch, and its score; None if it was never measured.

        The best batch within the bounds; if there is none, the best of all.
        """
        at_batches = [self.at_batch(Configuration(), batch) for batch in self.batches]
        return self.best(c for c in at_batches if c not in self._exceeds) or self.best(at_batches)

    def ratio(self, configuration: Configuration) -> float | None:
        """Return the search's ratio to the default, both at their best batch. Not a claim.

        None if the default answers no request in time.
        """
        if self.default_is_late:
            return None
        default, score = self.default_at_best(), self.score(configuration)
        return math.exp(score - default[1]) if default and score is not None else None

    def ratio_after(self, record: LaunchRecord) -> float | None:
        """Refresh after a launch, and return the ratio of its configuration.

        None for the default, for what failed, and for launches outside the search.
        """
        purpose, configuration = record.request.purpose, record.request.configuration
        is_measured = record.ending is not None and record.ending.outcome is Outcome.MEASURED
        if not is_measured or purpose in (Purpose.PACER, *UNPACED) or is_default(configuration):
            return None
        self.refresh()
        return self.ratio(configuration)


def as_of(evaluation: Evaluation, last_launch: int) -> Evaluation:
    """Return an evaluation as it was after a launch."""
    return Evaluation(
        evaluation._store,
        evaluation.reference_batch,
        evaluation.batches,
        evaluation.objective,
        evaluation.stand_in,
        last_launch,
    )


def _unobservable(launches: Iterable[LaunchRecord]) -> dict[Configuration, frozenset[str]]:
    """Return, per configuration, the settings whose effect its first launch does not show."""
    found: dict[Configuration, frozenset[str]] = {}
    for record in launches:
        if record.prepared is None or record.request.configuration in found:
            continue
        found[record.request.configuration] = frozenset(
            item.knob
            for item in record.prepared.read_back
            if item.evidence == "environment_only" and item.requested is not None
        )
    return found


def _retained(launches: Iterable[LaunchRecord], objective: Objective) -> dict[Configuration, float]:
    """Return the log share of the value that is left next to a busy neighbour, where measured."""
    found: dict[Configuration, list[float]] = defaultdict(list)
    for record in launches:
        if record.contended and record.slices:
            found[record.request.configuration].append(kept(record, objective))
    return {configuration: statistics.fmean(shares) for configuration, shares in found.items()}


_PRIOR_SD = 0.02
"""SD of the logarithm of a launch's memory, before launches tell: peaks of resident memory of
repeated launches differ by 1 to 2 %."""
_PRIOR_FREEDOM = 4
"""Degrees of freedom of that prior."""
_LEVEL = 0.05
"""Two-sided level at which a bound counts as exceeded."""


def beyond(launches: Iterable[LaunchRecord], bounds: Sequence[Bound]) -> dict[Configuration, str]:
    """Return, for each configuration that surely exceeds a bound, the bound in words."""
    records = list(launches)
    found: dict[Configuration, str] = {}
    for bound in bounds:
        figures: dict[Configuration, list[float]] = defaultdict(list)
        for record in records:
            if figure := bound.of(record):
                figures[record.request.configuration].append(math.log(figure))
        for configuration, logs in figures.items():
            sd, freedom = _scatter(logs)
            quantile = -float(stdtrit(freedom, _LEVEL / 2))
            least = statistics.fmean(logs) - quantile * sd / math.sqrt(len(logs))
            if least > math.log(bound.most):
                words = (
                    f"{bound.in_words(math.exp(statistics.fmean(logs)))} is more than {bound.asked}"
                )
                found.setdefault(configuration, words)
    return found


def _scatter(logs: Sequence[float]) -> tuple[float, float]:
    """Return the SD of a launch's figure (log) with its freedom, by a configuration's own launches.

    Not by others': a compiler's cold start may take twice the memory of a warm one, which excuses
    no other configuration.
    """
    squares = _PRIOR_SD**2 * _PRIOR_FREEDOM
    if len(logs) > 1:
        squares += float(np.var(logs, ddof=1)) * (len(logs) - 1)
    freedom = _PRIOR_FREEDOM + len(logs) - 1
    return math.sqrt(squares / freedom), float(freedom)
