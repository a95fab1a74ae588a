"""A bound on what is left to find: how much of the space may be better than the best tried."""

from __future__ import annotations

from tuner.record.study_stats import LeftToFind
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import RANDOM
from tuner.space.catalogue import narrowest_class
from tuner.study.evaluation import Evaluation

_MISSED = 0.05
"""The probability that more of the space is better than stated, at most."""


def unexplored_bound(evaluation: Evaluation) -> dict[WinnerClass, LeftToFind]:
    """Return, per class with random draws, how much of the class may still be better.

    If a share p of a class is better than the best of m independent draws, all of them missed it:
    with probability (1 - p)^m. So at most 1 - 0.05^(1/m) is better, with 95 % confidence. Other
    proposals can only have raised the best. Draws count if they did not depend on any measurement
    (search/sampler.py), and if no narrower class allows the configuration. They are uniform over
    the configurations of a listed space, otherwise over the values of its settings. Failures count
    as draws: they are no better. "Better" rests on the noisy launches of the search.
    """
    drawn = [narrowest_class(t.configuration) for t in evaluation.trials() if t.source == RANDOM]
    counts = {winner_class: drawn.count(winner_class) for winner_class in WinnerClass}
    return {
        winner_class: LeftToFind(n, round(1 - _MISSED ** (1 / n), 4))
        for winner_class, n in counts.items()
        if n
    }
