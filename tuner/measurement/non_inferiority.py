"""Does a configuration need more steps than the default to learn as much?

The unit is a pair: one run of each, with the same first weights and samples. d is the log
ratio of the steps to the target. That d scatters around zero is no evidence: with few pairs, a
configuration that needs 10 % more steps is "not significantly worse" more often than not. What is
tested is "it needs at least a margin more", and rejecting it takes an upper bound of the mean d
below the margin (one-sided, 95 %).

The number of pairs is set by the scatter of the first ones, before their mean is looked at. The
test then keeps the scatter, and the degrees of freedom, of the first pairs alone, so that its error
rate is exact for normal d (Stein 1945, doi:10.1214/aoms/1177731088).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from tuner.record.interval import Interval
from tuner.record.time_to_target import QualityVerdict

FIRST_PAIRS = 5
"""Pairs from which the scatter is taken. With three, Student's t more than doubles the number that
a small scatter needs."""
MARGIN = 0.05
"""Share of additional steps that is not accepted, by default."""
_ONE_SIDED = 0.05
"""Error rate of "as good"; of "worse" likewise."""
_MISSED = 0.2
"""Chance that as many pairs as are asked for do not decide on equal arms."""


class Judged(NamedTuple):
    """What pairs of runs show."""

    verdict: QualityVerdict
    ratio: Interval | None
    """Of the steps, at 95 %, two-sided; None if a run did not reach the target."""


def pairs_needed(first: Sequence[float], margin: float) -> int:
    """Return how many pairs probably decide. first: log ratios of FIRST_PAIRS pairs."""
    t = -float(stdtrit(len(first) - 1, _ONE_SIDED) + stdtrit(len(first) - 1, _MISSED))
    scatter = float(np.std(first, ddof=1))
    return max(len(first), math.floor((t * scatter / math.log1p(margin)) ** 2) + 1)


def judged(log_ratios: Sequence[float], margin: float, *, is_censored: bool = False) -> Judged:
    """Judge all pairs, the first ones in front; at least FIRST_PAIRS.

    is_censored: whether some log ratios are lower bounds, as the configuration did not reach the
    target: they can show that it is worse, and not that it is as good.
    """
    first, n = log_ratios[:FIRST_PAIRS], len(log_ratios)
    freedom, mean = len(first) - 1, float(np.mean(log_ratios))
    error = float(np.std(first, ddof=1)) / math.sqrt(n)
    bound = -float(stdtrit(freedom, _ONE_SIDED)) * error
    allowed = math.log1p(margin)
    verdict: QualityVerdict = "undecided"
    if mean - bound > allowed:
        verdict = "worse"
    elif mean + bound < allowed and not is_censored:
        verdict = "as_good"
    if is_censored:
        return Judged(verdict, None)
    half = -float(stdtrit(freedom, _ONE_SIDED / 2)) * error
    ratio = Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), 0.95)
    return Judged(verdict, ratio)
