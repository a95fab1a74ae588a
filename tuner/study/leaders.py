"""The order of what was measured: the best of each class, and what may yet beat the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.record.configuration import Configuration
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, is_default
from tuner.study.evaluation import Evaluation

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
