"""What a study knows so far: every configuration tried, its score, its cost."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping

from tuner.measurement.estimates import Estimates
from tuner.measurement.estimates import kept as kept_by
from tuner.measurement.replication import CONFIRM, Replication, n_needed
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted, WinnerClass
from tuner.record.launch import IN_ROUNDS, LaunchRecord, Purpose
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.space.catalogue import allowed_in, winner_class
from tuner.space.knobs_of.launch import BATCH
from tuner.study.bounds import beyond
from tuner.study.prices import prices_of

COLLAPSE = 0.5
"""Beside a busy neighbour: what keeps less than this of the share that the default keeps."""
_CLEARLY = 0.1
"""Worth: single slices beside a neighbour scatter by several percent."""
_UNKNOWN_S = 30.0
_RECKONED = 8
"""Slices of a confirming launch that time is kept for, at the most: rounds take more where time
is left, and are cut short where a first look would not fit; the search needs time as well."""
BEHIND = 3.0
"""What lags behind the default by more standard errors than this is not confirmed any more."""
_NO_FAULT = (Outcome.MEASURED, Outcome.INTERRUPTED, Outcome.PRUNED)


def is_default(configuration: Configuration) -> bool:
    """Tell whether a configuration is the default, at whatever batch."""
    return not configuration.without(BATCH).settings


class Ledger:
    """A view over the store; `refresh` after something was measured."""

    def __init__(
        self,
        store: Store,
        reference_batch: int,
        batches: tuple[int, ...],
        objective: Objective = THROUGHPUT,
        confirming: Replication = CONFIRM,
    ) -> None:
        self._store = store
        self.objective = objective
        self._confirming = confirming
        self.reference_batch = reference_batch
        self.version = 0
        """Grows whenever what is known may have changed."""
        self._tried: dict[Configuration, float | None] = {}
        self.batches = batches
        """The batches over which the default, and where it works every baseline, are measured."""
        self.refresh()

    def refresh(self) -> None:
        """Estimate everything again."""
        self.estimates = Estimates(self._store.launches, self.objective)
        self._find_costs()
        launches = self._store.launches.values()
        self.prices = prices_of(r for r in launches if r.request.purpose not in IN_ROUNDS)
        """What configurations cost in memory and time per call, by launches of the search; those of
        the confirmation choose nothing."""
        self._beyond = beyond(launches, self.objective.bounds)
        self.version += 1
        self._n_told = -1
        self._measured: dict[tuple[int, WinnerClass], dict[Configuration, float]] = {}
        self._failed = {
            record.request.configuration
            for record in self._store.launches.values()
            if record.ending is not None and record.ending.outcome not in _NO_FAULT
        }

    def trials(self) -> list[TrialNoted]:
        """Return every trial that was told, oldest first."""
        return self._store.all(TrialNoted)

    def at_batch(self, configuration: Configuration, batch: int) -> Configuration:
        """Return the canonical configuration with another batch."""
        bare = configuration.without(BATCH)
        return bare if batch == self.reference_batch else bare.with_value(BATCH, batch)

    def score(self, configuration: Configuration) -> float | None:
        """Return the worth of a configuration, drift taken out; None if never measured."""
        return self.estimates.score(configuration)

    def n_launches(self, configuration: Configuration) -> int:
        """Return how many launches its score rests on."""
        return self.estimates.n_launches(configuration)

    def has_failed(self, configuration: Configuration) -> bool:
        """Tell whether any launch of the configuration failed by its own fault."""
        return configuration in self._failed

    def over_bound(self, configuration: Configuration) -> str:
        """Say which bound a configuration surely exceeds; empty if none.

        The default is never out of the question for it: it is what everything is compared with.
        """
        return "" if is_default(configuration) else self._beyond.get(configuration, "")

    def default_beyond(self) -> str:
        """Say which bound the default exceeds, at its best batch; empty if none."""
        default = self.default_at_best()
        return "" if default is None else self._beyond.get(default[0], "")

    def refusal(self, configuration: Configuration) -> str:
        """Say why a configuration is no winner although it works; empty if nothing is known.

        It lies beyond a bound, or collapses beside a busy neighbour where winners must bear one.
        """
        if why := self.over_bound(configuration):
            return why
        if self.objective.bears_neighbours and self.collapses(configuration):
            return "it collapses beside a busy neighbour"
        return ""

    def may_win(self, configuration: Configuration) -> bool:
        """Tell whether a configuration neither failed nor lies beyond a bound."""
        return not self.has_failed(configuration) and not self.over_bound(configuration)

    def tried(self) -> dict[Configuration, float | None]:
        """Return the score of every configuration told to Optuna; None for what ever failed.

        None as well for what lies beyond a bound: the search learns to keep away from there. A
        pruned one has the score of its only slice.
        """
        trials = self.trials()
        if len(trials) != self._n_told:  # asked for many times between two launches
            self._n_told = len(trials)
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

    def score_sd(self, configuration: Configuration) -> float:
        """Return by how much a score may be off (log); that of one slice by more."""
        n = self.n_launches(configuration)
        if n:
            return self.estimates.launch_sd / math.sqrt(n)
        return math.hypot(self.estimates.scatter.between, self.estimates.scatter.within)

    def unobservable(self, configuration: Configuration) -> set[str]:
        """Return the settings of a configuration whose effect nothing in the process shows."""
        for record in self._store.launches.values():
            if record.request.configuration == configuration and record.prepared is not None:
                return {
                    item.knob
                    for item in record.prepared.read_back
                    if item.evidence == "environment_only" and item.requested is not None
                }
        return set()

    def n_tried(self, klass: WinnerClass) -> int:
        """Return how many configurations of a class, the default apart, were measured."""
        good = (Outcome.MEASURED, Outcome.PRUNED)
        return sum(
            allowed_in(klass, t.configuration) and not is_default(t.configuration)
            for t in self.trials()
            if t.ending.outcome in good
        )

    def measured(self, klass: WinnerClass) -> dict[Configuration, float]:
        """Return the score of every configuration that may win a class.

        Measured to the end, its outputs checked, never failed since, and within all bounds.
        """
        trials = self.trials()
        key = len(trials), klass
        if key not in self._measured:  # asked for many times between two launches
            candidates = (t.configuration for t in trials if t.ending.outcome is Outcome.MEASURED)
            self._measured[key] = {
                c: score
                for c in candidates
                if allowed_in(klass, c) and (score := self.score(c)) is not None
                if self.may_win(c)
            }
        return self._measured[key]

    def default_at_best(self) -> tuple[Configuration, float] | None:
        """Return the default at its best batch within the bounds; None if never measured.

        With its score. Where no batch is within them, at its best batch of all.
        """
        at_batches = [self.at_batch(Configuration(), batch) for batch in self.batches]
        within = [c for c in at_batches if c not in self._beyond]
        return self.best(within) or self.best(at_batches)

    def best(self, candidates: list[Configuration]) -> tuple[Configuration, float] | None:
        """Return the highest-scoring candidate; None if none was measured."""
        scored = [(c, s) for c in candidates if (s := self.score(c)) is not None]
        return max(scored, key=lambda pair: pair[1], default=None)

    def best_in(self, klass: WinnerClass) -> tuple[Configuration, float] | None:
        """Return the best measured configuration that a class allows."""
        return max(self.measured(klass).items(), key=lambda pair: pair[1], default=None)

    def challenger(
        self,
        klass: WinnerClass,
        allows: Callable[[Configuration], bool] = lambda _: True,
        rank: Mapping[Configuration, float] | None = None,
    ) -> Configuration | None:
        """Return a class's best configuration beside the default; None if none can be better.

        One that scored below the default by less than the noise may yet be better. rank: what is
        believed of each, where that is more than its score.
        """
        default = self.default_at_best()
        best = self._best_other(klass, allows, rank)
        if best is None or default is None:
            return None
        lag = default[1] - best[1]
        return best[0] if lag < BEHIND * self.noise(best[0], default[0]) else None

    def lag(self, klass: WinnerClass) -> float | None:
        """Return by how much (log) a class's best is behind the default; None if unknown."""
        default, best = self.default_at_best(), self._best_other(klass, lambda _: True, None)
        return default[1] - best[1] if default and best else None

    def _best_other(
        self,
        klass: WinnerClass,
        allows: Callable[[Configuration], bool],
        rank: Mapping[Configuration, float] | None,
    ) -> tuple[Configuration, float] | None:
        scores = self.measured(klass)
        order = scores if rank is None else rank
        others = [c for c in scores if not is_default(c) and allows(c)]
        best = max(others, key=lambda c: order.get(c, scores[c]), default=None)
        return None if best is None else (best, scores[best])

    def kept(self, configuration: Configuration) -> float | None:
        """Return the log share of its worth that is left beside a busy neighbour; None if unknown.

        From launches of the search; those of the confirmation choose nothing.
        """
        found = [
            kept_by(record, self.objective)
            for record in self._store.launches.values()
            if record.request.configuration == configuration and record.beside and record.slices
            if record.request.purpose not in IN_ROUNDS
        ]
        return statistics.fmean(found) if found else None

    def default_kept(self) -> float | None:
        """Return what the default keeps beside a busy neighbour, at any batch; None if unknown."""
        found = [self.kept(self.at_batch(Configuration(), batch)) for batch in self.batches]
        known = [kept for kept in found if kept is not None]
        return statistics.fmean(known) if known else None

    def collapses(self, configuration: Configuration) -> bool:
        """Tell whether a configuration is known to collapse beside a busy neighbour.

        It then keeps less than half of what the default keeps, or is clearly slower there than the
        default. From a slice or two: a preference of the search, no claim.
        """
        default, score = self.default_at_best(), self.score(configuration)
        kept, default_kept = self.kept(configuration), self.default_kept()
        if default is None or score is None or kept is None or default_kept is None:
            return False
        lead = score + kept - default[1] - default_kept
        return kept < math.log(COLLAPSE) + default_kept or lead < -_CLEARLY

    def slice_s(self, configuration: Configuration) -> float:
        """Return the seconds of a slice with its discarded call, in an earlier launch; 1 if none.

        The first call after a pause takes as long as the timed ones.
        """
        own = [r for r in self._ended.get(configuration, []) if r.slices]
        return own[-1].slicing_s / len(own[-1].slices) if own else 1.0

    def ratio(self, configuration: Configuration) -> float | None:
        """Return the search's ratio to the default, both at their best batch: no claim."""
        default, score = self.default_at_best(), self.score(configuration)
        return math.exp(score - default[1]) if default and score is not None else None

    def ratio_after(self, record: LaunchRecord) -> float | None:
        """Return the ratio of what was just launched, the launch included.

        None for the default, for what failed, and for launches that are no part of the search.
        """
        purpose, configuration = record.request.purpose, record.request.configuration
        is_measured = record.ending is not None and record.ending.outcome is Outcome.MEASURED
        if not is_measured or purpose in (Purpose.PACER, *IN_ROUNDS) or is_default(configuration):
            return None
        self.refresh()
        return self.ratio(configuration)

    def floor(self) -> float:
        """Return what two search scores may differ by without meaning anything: at least 1 %."""
        return max(0.01, self.estimates.launch_sd)

    def noise(self, a: Configuration, b: Configuration) -> float:
        """Return the standard error of the difference of two scores: at least 1 %."""
        return max(0.01, self.estimates.standard_error(a, b))

    def _find_costs(self) -> None:
        """Sort the launches whose seconds are known and say what a launch costs: no pacer."""
        self._ended: dict[Configuration, list[LaunchRecord]] = defaultdict(list)
        of_class: dict[WinnerClass, list[float]] = defaultdict(list)
        for record in self._store.launches.values():
            if (
                record.prepared is None
                or record.ending is None
                or record.ending.outcome is Outcome.INTERRUPTED  # its seconds are not known
                or record.request.purpose is Purpose.PACER
            ):
                continue
            self._ended[record.request.configuration].append(record)
            of_class[winner_class(record.request.configuration)].append(record.total_s)
        self._class_cost_s = {k: statistics.fmean(seconds) for k, seconds in of_class.items()}
        everything = list(itertools.chain(*of_class.values()))
        self._mean_cost_s = statistics.fmean(everything) if everything else _UNKNOWN_S

    def cost_s(self, configuration: Configuration) -> float:
        """Estimate the seconds of a configuration's launch, without the pacer's slices around it.

        From launches of it, else of its class, else of any.
        """
        if configuration in self._ended:
            return statistics.fmean(r.total_s for r in self._ended[configuration])
        return self._class_cost_s.get(winner_class(configuration), self._mean_cost_s)

    def repeat_cost_s(self, configuration: Configuration, *, in_haste: bool = False) -> float:
        """Estimate the seconds of a configuration's launch in the confirmation.

        It was launched before, so that the compiler's cache is warm and its outputs are checked; a
        confirming launch takes more slices, each after a discarded call; in_haste: the fewest.
        """
        own = self._ended.get(configuration, [])
        if not own:
            return self.cost_s(configuration)
        shortest = min(own, key=lambda r: r.total_s - r.check_s)
        slice_s = shortest.slicing_s / max(1, len(shortest.slices))
        fixed_s = shortest.total_s - shortest.check_s - shortest.slicing_s
        needed = self._confirming.least
        if not in_haste:
            wanted = n_needed(self._confirming, self.estimates.scatter, fixed_s, slice_s)
            needed = min(_RECKONED, wanted)
        return fixed_s + needed * slice_s

    def compiling_s(self, configuration: Configuration) -> float:
        """Return what the only launch of a configuration took to compile; 0 after several.

        Another launch may find it in the compiler's cache.
        """
        own = self._ended.get(configuration, [])
        return own[0].compile_s if len(own) == 1 else 0.0
