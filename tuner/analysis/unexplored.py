"""What may still be found: how much of the space may be better than the best that was tried."""

from __future__ import annotations

from tuner.record.study_stats import LeftToFind
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import RANDOM
from tuner.space.catalogue import narrowest_class
from tuner.study.evaluation import Evaluation

_MISSED = 0.05
"""How probable it is, at the most, that more of the space is better than is said."""


def unexplored_bound(evaluation: Evaluation) -> dict[WinnerClass, LeftToFind]:
    """Return, per class that anything was drawn of, what its draws at random leave open.

    If a share p of a class is better than the best of m independent draws, all of them missed it:
    with probability (1 - p)^m. So at most 1 - 0.05^(1/m) is better, with 95 % confidence; and what
    was tried beside the draws can only have raised the best. Counted are draws that did not ask
    what was measured before (search/sampler.py), of the configurations that no narrower class
    allows. They are uniform over the configurations of a space that is small enough to be listed,
    else over the values of its settings. Failures are draws, too: they are no better. Better is
    what launches of the search call so, each of which scatters.
    """
    drawn = [narrowest_class(t.configuration) for t in evaluation.trials() if t.source == RANDOM]
    counts = {winner_class: drawn.count(winner_class) for winner_class in WinnerClass}
    return {
        winner_class: LeftToFind(n, round(1 - _MISSED ** (1 / n), 4))
        for winner_class, n in counts.items()
        if n
    }
