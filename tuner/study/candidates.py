"""Leaders, candidates and finalists: the order of what was measured, by winner class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import Belief
from tuner.search.search import Search
from tuner.space.catalogue import allowed_in, is_default
from tuner.study.evaluation import Evaluation


class Candidates:
    """The candidates of the winner classes."""

    def __init__(self, store: Store, evaluation: Evaluation, search: Search) -> None:
        self._store = store
        self._evaluation = evaluation
        self._search = search
        self._beliefs: dict[Configuration, Belief] = {}
        self._believed_at = (-1, -1)

    def finalists(self) -> dict[WinnerClass, Configuration]:
        """Return the finalist of each class; before the race, the present candidate."""
        found: dict[WinnerClass, Configuration] = {}
        for winner_class in WinnerClass:
            named = [
                n for n in self._store.current(FinalistNamed) if n.winner_class is winner_class
            ]
            found[winner_class] = named[-1].configuration if named else self.candidate(winner_class)
        return found

    def candidate(
        self, winner_class: WinnerClass, allows: Callable[[Configuration], bool] = lambda _: True
    ) -> Configuration:
        """Return what a class would confirm: its best configuration that may beat the default.

        It may score below the default: only the confirmation can say that nothing is better.
        Configurations that cannot ship are skipped.
        """

        def may_be(c: Configuration) -> bool:
            return allows(c) and not self._evaluation.row(c).ship_fault

        best = challenger(self._evaluation, winner_class, may_be, self.believed())
        default = self._evaluation.default_at_best()
        return best or (default[0] if default else Configuration())

    def believed(self) -> dict[Configuration, float]:
        """Return the surrogate's estimate of the score of everything measured to its end.

        Scores alone mislead: the highest of many is lucky, and similar configurations show by how
        much.
        """
        return {c: belief.mean for c, belief in self.beliefs().items()}

    def beliefs(self) -> dict[Configuration, Belief]:
        """Return the same with by how much each may be off."""
        now = self._evaluation.version, len(self._evaluation.trials())
        if now != self._believed_at:  # asked for many times between two launches
            self._believed_at = now
            measured = list(self._evaluation.measured(WinnerClass.REDUCED_PRECISION))
            found = self._search.beliefs(measured) if measured else []
            self._beliefs = dict(zip(measured, found, strict=True))
        return self._beliefs

    def leader(self, winner_class: WinnerClass) -> Configuration:
        """Return what a class would recommend if the study ended now; it may be the default."""
        believed = self.believed()
        allowed = [c for c in believed if allowed_in(winner_class, c)]
        return max(allowed, key=believed.__getitem__, default=Configuration())


MAX_LAG_SE = 3.0
"""Standard errors: a configuration that is further behind the default is not confirmed."""


def n_tried(evaluation: Evaluation, winner_class: WinnerClass) -> int:
    """Return how many configurations of a class, other than the default, were measured."""
    good = (Outcome.MEASURED, Outcome.PRUNED)
    return sum(
        allowed_in(winner_class, t.configuration) and not is_default(t.configuration)
        for t in evaluation.trials()
        if t.ending.outcome in good and not evaluation.row(t.configuration).over_bound
    )


def n_over_bounds(evaluation: Evaluation, winner_class: WinnerClass) -> int:
    """Return how many configurations of a class exceed a bound."""
    tried = (t.configuration for t in evaluation.trials())
    return sum(allowed_in(winner_class, c) and bool(evaluation.row(c).over_bound) for c in tried)


def known_score(evaluation: Evaluation, configuration: Configuration) -> float | None:
    """Return a score, even if it is that of a single slice; None if there is none."""
    score = evaluation.score(configuration)
    return evaluation.tried().get(configuration) if score is None else score


def best_in(
    evaluation: Evaluation, winner_class: WinnerClass
) -> tuple[Configuration, float] | None:
    """Return the best measured configuration that a class allows, and its score."""
    measured = evaluation.measured(winner_class)
    return max(measured.items(), key=lambda pair: pair[1], default=None)


def challenger(
    evaluation: Evaluation,
    winner_class: WinnerClass,
    allows: Callable[[Configuration], bool] = lambda _: True,
    rank: Mapping[Configuration, float] | None = None,
) -> Configuration | None:
    """Return a class's best configuration other than the default; None if none can be better.

    One whose score is below the default's by less than the noise may yet be better.
    rank: the surrogate's estimates, used in place of scores where they are known.
    """
    default = evaluation.default_at_best()
    best = _best_other(evaluation, winner_class, allows, rank)
    if best is not None and evaluation.default_is_silent:
        return best[0]
    if best is None or default is None:
        return None
    behind = default[1] - best[1]
    return best[0] if behind < MAX_LAG_SE * evaluation.noise(best[0], default[0]) else None


def lag_of_best(evaluation: Evaluation, winner_class: WinnerClass) -> float | None:
    """Return by how much (log) a class's best is behind the default; None if unknown."""
    default = evaluation.default_at_best()
    best = _best_other(evaluation, winner_class, lambda _: True, None)
    return default[1] - best[1] if default and best else None


def _best_other(
    evaluation: Evaluation,
    winner_class: WinnerClass,
    allows: Callable[[Configuration], bool],
    rank: Mapping[Configuration, float] | None,
) -> tuple[Configuration, float] | None:
    scores = evaluation.measured(winner_class)
    order = scores if rank is None else rank
    others = [c for c in scores if not is_default(c) and allows(c)]
    best = max(others, key=lambda c: order.get(c, scores[c]), default=None)
    return None if best is None else (best, scores[best])


def beats_default(evaluation: Evaluation, configuration: Configuration) -> bool:
    """Tell whether a configuration scored above the default at its best batch.

    Whatever answers beats a default that does not.
    """
    default, score = evaluation.default_at_best(), evaluation.score(configuration)
    if is_default(configuration) or score is None:
        return False
    if evaluation.default_is_silent:
        return True
    return default is not None and score > default[1]
