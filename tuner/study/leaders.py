"""Who leads: the default at its best, the best of each class, and what may yet be better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tuner.record.configuration import Configuration
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, is_default

if TYPE_CHECKING:
    from tuner.study.ledger import Ledger

MAX_LAG_SE = 3.0
"""What lags behind the default by more standard errors than this is not confirmed any more."""


class Leaders:
    """The order of what was measured, by the scores of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._measured: dict[tuple[int, WinnerClass], dict[Configuration, float]] = {}

    def n_tried(self, winner_class: WinnerClass) -> int:
        """Return how many configurations of a class, the default apart, were measured."""
        good = (Outcome.MEASURED, Outcome.PRUNED)
        return sum(
            allowed_in(winner_class, t.configuration) and not is_default(t.configuration)
            for t in self._ledger.trials()
            if t.ending.outcome in good and not self._ledger.eligible.over_bound(t.configuration)
        )

    def n_over_bounds(self, winner_class: WinnerClass) -> int:
        """Return how many configurations of a class lie beyond a bound."""
        over = (t.configuration for t in self._ledger.trials())
        return sum(
            allowed_in(winner_class, c) and bool(self._ledger.eligible.over_bound(c)) for c in over
        )

    def measured(self, winner_class: WinnerClass) -> dict[Configuration, float]:
        """Return the score of every configuration that may win a class.

        Measured to the end, its outputs checked, never failed since, and within all bounds.
        """
        trials = self._ledger.trials()
        key = len(trials), winner_class
        if key not in self._measured:  # asked for many times between two launches
            candidates = (t.configuration for t in trials if t.ending.outcome is Outcome.MEASURED)
            self._measured[key] = {
                c: score
                for c in candidates
                if allowed_in(winner_class, c) and (score := self._ledger.score(c)) is not None
                if self._ledger.eligible.may_win(c)
            }
        return self._measured[key]

    def default_at_best(self) -> tuple[Configuration, float] | None:
        """Return the default at its best batch within the bounds; None if never measured.

        With its score. Where no batch is within them, at its best batch of all.
        """
        at_batches = [
            self._ledger.at_batch(Configuration(), batch) for batch in self._ledger.batches
        ]
        within = [c for c in at_batches if not self._ledger.eligible.is_beyond(c)]
        return self.best(within) or self.best(at_batches)

    def best_in(self, winner_class: WinnerClass) -> tuple[Configuration, float] | None:
        """Return the best measured configuration that a class allows."""
        return max(self.measured(winner_class).items(), key=lambda pair: pair[1], default=None)

    def best(self, candidates: list[Configuration]) -> tuple[Configuration, float] | None:
        """Return the highest-scoring candidate; None if none was measured."""
        scored = [(c, s) for c in candidates if (s := self._ledger.score(c)) is not None]
        return max(scored, key=lambda pair: pair[1], default=None)

    def challenger(
        self,
        winner_class: WinnerClass,
        allows: Callable[[Configuration], bool] = lambda _: True,
        rank: Mapping[Configuration, float] | None = None,
    ) -> Configuration | None:
        """Return a class's best configuration beside the default; None if none can be better.

        One that scored below the default by less than the noise may yet be better. rank: what is
        believed of each, where that is more than its score.
        """
        default = self.default_at_best()
        best = self._best_other(winner_class, allows, rank)
        if best is not None and self._ledger.default_is_silent:
            return best[0]
        if best is None or default is None:
            return None
        lag = default[1] - best[1]
        return best[0] if lag < MAX_LAG_SE * self._ledger.noise(best[0], default[0]) else None

    def lag(self, winner_class: WinnerClass) -> float | None:
        """Return by how much (log) a class's best is behind the default; None if unknown."""
        default, best = self.default_at_best(), self._best_other(winner_class, lambda _: True, None)
        return default[1] - best[1] if default and best else None

    def _best_other(
        self,
        winner_class: WinnerClass,
        allows: Callable[[Configuration], bool],
        rank: Mapping[Configuration, float] | None,
    ) -> tuple[Configuration, float] | None:
        scores = self.measured(winner_class)
        order = scores if rank is None else rank
        others = [c for c in scores if not is_default(c) and allows(c)]
        best = max(others, key=lambda c: order.get(c, scores[c]), default=None)
        return None if best is None else (best, scores[best])

    def beats_default(self, configuration: Configuration) -> bool:
        """Tell whether a configuration scored above the default at its best batch.

        Whatever answers is better than a default that does not.
        """
        default, score = self.default_at_best(), self._ledger.score(configuration)
        if is_default(configuration) or score is None:
            return False
        if self._ledger.default_is_silent:
            return True
        return default is not None and score > default[1]
