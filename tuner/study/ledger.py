"""What a study knows so far: every configuration tried, its score, its cost."""

from __future__ import annotations

import math

from tuner.measurement.estimates import Estimates
from tuner.measurement.queueing import misses_when_idle
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import UNPACED, LaunchRecord, Purpose
from tuner.record.objective import THROUGHPUT, Objective, timed_of
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.space.catalogue import is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.study.eligibility import Eligibility
from tuner.study.leaders import Leaders
from tuner.study.resource_costs import resource_costs_of


class Ledger:
    """A view over the store; `refresh` after something was measured."""

    def __init__(
        self,
        store: Store,
        reference_batch: int,
        batches: tuple[int, ...],
        objective: Objective = THROUGHPUT,
        stand_in: Configuration | None = None,
    ) -> None:
        """stand_in: answers where the default was found not to; None where the default does."""
        self._store = store
        self.stand_in = stand_in
        self.objective = objective
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
        launches = self._store.launches.values()
        self.resource_costs = resource_costs_of(
            r for r in launches if r.request.purpose not in UNPACED
        )
        """What configurations cost in memory and time per call, by launches of the search; those of
        the confirmation choose nothing."""
        self.version += 1
        self._n_told = -1
        self.eligible = Eligibility(self, self._store.launches)
        """What is said against configurations."""
        self.leaders = Leaders(self)
        """The order of the others."""
        self.default_is_late = self.objective.slo is not None and self._is_default_late()
        """Whether requests take longer than the bound in the default although nobody is before
        them in line."""
        self.default_is_silent = (
            self.stand_in is not None and self.leaders.default_at_best() is None
        )
        """Whether the default is a server that answers no request: nothing is compared with it."""

    def _is_default_late(self) -> bool:
        records = (r for r in self._store.launches.values() if is_default(r.request.configuration))
        timed = [taken for record in records for taken in timed_of(record.slices)]
        return 2 * sum(map(misses_when_idle, timed)) > len(timed)

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

    def known_score(self, configuration: Configuration) -> float | None:
        """Return the score of a configuration, be it of its only slice; None if it has none."""
        score = self.score(configuration)
        return self.tried().get(configuration) if score is None else score

    def n_launches(self, configuration: Configuration) -> int:
        """Return how many launches its score rests on."""
        return self.estimates.n_launches(configuration)

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
                if self.eligible.may_win(trial.configuration)
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

    def ratio(self, configuration: Configuration) -> float | None:
        """Return the search's ratio to the default, both at their best batch: no claim.

        None where the default serves nobody in time.
        """
        if self.default_is_late:
            return None
        default, score = self.leaders.default_at_best(), self.score(configuration)
        return math.exp(score - default[1]) if default and score is not None else None

    def ratio_after(self, record: LaunchRecord) -> float | None:
        """Return the ratio of what was just launched, the launch included.

        None for the default, for what failed, and for launches that are no part of the search.
        """
        purpose, configuration = record.request.purpose, record.request.configuration
        is_measured = record.ending is not None and record.ending.outcome is Outcome.MEASURED
        if not is_measured or purpose in (Purpose.PACER, *UNPACED) or is_default(configuration):
            return None
        self.refresh()
        return self.ratio(configuration)

    def floor(self) -> float:
        """Return what two search scores may differ by without meaning anything: at least 1 %."""
        return max(0.01, self.estimates.launch_sd)

    def noise(self, a: Configuration, b: Configuration) -> float:
        """Return the standard error of the difference of two scores: at least 1 %."""
        return max(0.01, self.estimates.standard_error(a, b))
