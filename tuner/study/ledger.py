"""What a study knows so far: every configuration tried, its score, its cost."""

from __future__ import annotations

import math
import statistics

from tuner.measurement.bench import CONFIRM_PASSES
from tuner.measurement.estimates import Estimates
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted, WinnerClass
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.space.catalogue import BATCH
from tuner.space.knobs import winner_class

_CLASSES = list(WinnerClass)
_UNKNOWN_S = 30.0
_NO_FAULT = (Outcome.MEASURED, Outcome.INTERRUPTED, Outcome.PRUNED)


def allowed_in(klass: WinnerClass, configuration: Configuration) -> bool:
    """Tell whether a winner class allows a configuration."""
    return _CLASSES.index(winner_class(configuration)) <= _CLASSES.index(klass)


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
        confirm_passes: int = CONFIRM_PASSES,
    ) -> None:
        self._store = store
        self._confirm_passes = confirm_passes
        self.reference_batch = reference_batch
        self.batches = batches
        """The batches over which the default and every baseline are measured."""
        self.refresh()

    def refresh(self) -> None:
        """Estimate everything again."""
        self.estimates = Estimates(self._store.launches)

    def trials(self) -> list[TrialNoted]:
        """Return every trial that was told, oldest first."""
        return self._store.all(TrialNoted)

    def at_batch(self, configuration: Configuration, batch: int) -> Configuration:
        """Return the canonical configuration with another batch."""
        bare = configuration.without(BATCH)
        return bare if batch == self.reference_batch else bare.with_value(BATCH, batch)

    def score(self, configuration: Configuration) -> float | None:
        """Return the log rate of a configuration, drift taken out; None if never measured."""
        return self.estimates.score(configuration)

    def n_launches(self, configuration: Configuration) -> int:
        """Return how many launches its score rests on."""
        return self.estimates.n_launches(configuration)

    def has_failed(self, configuration: Configuration) -> bool:
        """Tell whether any launch of the configuration failed by its own fault."""
        return any(
            record.ending is not None and record.ending.outcome not in _NO_FAULT
            for record in self._store.launches.values()
            if record.request.configuration == configuration
        )

    def tried(self) -> dict[Configuration, float | None]:
        """Return the score of every configuration told to Optuna; None for failures.

        A pruned one has the score of its only slice.
        """
        return {
            trial.configuration: (
                self.score(trial.configuration)
                if trial.ending.outcome is Outcome.MEASURED
                else trial.score
            )
            for trial in self.trials()
        }

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

        Measured to the end, its outputs checked, and never failed since.
        """
        candidates = (
            t.configuration for t in self.trials() if t.ending.outcome is Outcome.MEASURED
        )
        return {
            c: score
            for c in candidates
            if allowed_in(klass, c) and (score := self.score(c)) is not None
            if not self.has_failed(c)
        }

    def default_at_best(self) -> tuple[Configuration, float] | None:
        """Return the default at its fastest batch, with its score; None if never measured."""
        return self.best([self.at_batch(Configuration(), batch) for batch in self.batches])

    def best(self, candidates: list[Configuration]) -> tuple[Configuration, float] | None:
        """Return the highest-scoring candidate; None if none was measured."""
        scored = [(c, s) for c in candidates if (s := self.score(c)) is not None]
        return max(scored, key=lambda pair: pair[1], default=None)

    def best_in(self, klass: WinnerClass) -> tuple[Configuration, float] | None:
        """Return the best measured configuration that a class allows."""
        return max(self.measured(klass).items(), key=lambda pair: pair[1], default=None)

    def ratio(self, configuration: Configuration) -> float | None:
        """Return the search's rate against the default, both at their best batch: no claim."""
        default, score = self.default_at_best(), self.score(configuration)
        return math.exp(score - default[1]) if default and score is not None else None

    def floor(self) -> float:
        """Return what two search scores may differ by without meaning anything: at least 1 %."""
        return max(0.01, self.estimates.launch_sd)

    def noise(self, a: Configuration, b: Configuration) -> float:
        """Return the standard error of the difference of two scores: at least 1 %."""
        return max(0.01, self.estimates.standard_error(a, b))

    def _ended(self) -> list[LaunchRecord]:
        """Return the launches whose seconds are known and say what a launch costs: no pacer."""
        return [
            record
            for record in self._store.launches.values()
            if record.prepared is not None and record.ending is not None
            if record.ending.outcome is not Outcome.INTERRUPTED  # its seconds are not known
            if record.request.purpose is not Purpose.PACER
        ]

    def cost_s(self, configuration: Configuration) -> float:
        """Estimate the seconds of a configuration's launch, without the pacer's slices around it.

        From launches of it, else of its class, else of any.
        """
        measured = self._ended()
        klass = winner_class(configuration)
        for group in (
            [r for r in measured if r.request.configuration == configuration],
            [r for r in measured if winner_class(r.request.configuration) is klass],
            measured,
        ):
            if group:
                return statistics.fmean(r.total_s for r in group)
        return _UNKNOWN_S

    def repeat_cost_s(self, configuration: Configuration) -> float:
        """Estimate the seconds of a configuration's launch in the confirmation.

        It was launched before, so that the compiler's cache is warm and its outputs are checked; a
        confirming launch takes more slices, each after a discarded call.
        """
        own = [record for record in self._ended() if record.request.configuration == configuration]
        if not own:
            return self.cost_s(configuration)
        shortest = min(own, key=lambda r: r.total_s - r.check_s)
        slice_s = shortest.slicing_s / max(1, len(shortest.slices))
        extra = max(0, self._confirm_passes - len(shortest.slices))
        return shortest.total_s - shortest.check_s + extra * slice_s
