"""How many slices a launch gets: as long as they tell more than another launch would.

The launch is the replicate; slices only sharpen its one number. Let launches scatter by l (SD of
the log value) and slices within one by s. The median of n slices has the variance l^2 + k s^2 / n,
with k = pi / 2 for a median, and costs c + n d seconds, c for the launch and d for a slice.
Variance times cost, which is the cost of precision, is least at n = sqrt(k c / d) s / l: the
two-level rule of Kalibera and Jones (2013), https://kar.kent.ac.uk/33611/. It is applied again
after every slice.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from tuner.record.workload import PROGRAM, ModelCard

EXTRA_SHARE = 0.5
"""Disturbed slices or passes are taken again, at most half as many as are needed."""
_MAD_TO_SD = 1.4826
"""The SD of normal values over their median absolute deviation."""
_SMALL = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
"""Correction of the same for few values, by their number (Croux and Rousseeuw 1992)."""
_MEDIAN = math.pi / 2
"""Variance of a median over that of a mean, for normal values."""
_WEIGHT = 6
"""Slices that the scatter of earlier launches counts for."""


class Replication(msgspec.Struct, frozen=True):
    """The least and the most undisturbed slices of a launch."""

    least: int
    most: int


SEARCH = Replication(3, 8)
"""Slices of a launch of the search."""
CONFIRM = Replication(4, 20)
"""Slices of a confirming launch."""
FIXED = Replication(6, 6)
"""If memory does not hold all launches of a round at once: as many slices for each."""
_PROGRAM = Replication(2, 2)
"""Slices of a program are whole runs, each started anew."""


def replication(planned: Replication, card: ModelCard) -> Replication:
    """Return how often a launch of a model is sliced."""
    return _PROGRAM if card.form == PROGRAM else planned


def scatter(values: Sequence[float]) -> float:
    """Return the SD of values, from their median absolute deviation: a stray one counts little.

    With the factors for few values of Croux and Rousseeuw (1992), Time-efficient algorithms for
    two highly robust estimators of scale. 0 for a single value.
    """
    n = len(values)
    if n < 2:
        return 0.0
    small = _SMALL[n] if n in _SMALL else n / (n - 0.8)
    middle = statistics.median(values)
    return _MAD_TO_SD * small * statistics.median(abs(value - middle) for value in values)


def variance_of_median(values: Sequence[float]) -> float:
    """Return the variance of the median of a launch's slices."""
    return _MEDIAN * scatter(values) ** 2 / len(values)


class Scatter(msgspec.Struct, frozen=True):
    """SDs of log values: between launches of one configuration, and of slices within a launch."""

    between: float
    within: float
    is_guess: bool = False
    """Before any launch: launches are then taken to scatter by no less than slices do."""

    def with_slices(self, within: float, n: int) -> Scatter:
        """Return it with what `n` more slices scatter by: a few alone are often alike by luck."""
        if self.is_guess:
            return Scatter(max(self.between, within), within) if n else self
        pooled = (_WEIGHT * self.within**2 + n * within**2) / (_WEIGHT + n)
        return Scatter(self.between, math.sqrt(pooled))


def n_needed(planned: Replication, noise: Scatter, launch_s: float, slice_s: float) -> int:
    """Return the number of slices at which a launch tells most for its seconds.

    launch_s: seconds of a launch without its slices; slice_s: of one slice, with those of the pacer
    or of the other arms around it.
    """
    if noise.between <= 0 or slice_s <= 0:
        return planned.most if noise.between <= 0 < noise.within else planned.least
    ratio = noise.within / noise.between
    best = math.ceil(math.sqrt(_MEDIAN * launch_s / slice_s) * ratio)
    return min(planned.most, max(planned.least, best))


def wants_more(n_clean: int, n_taken: int, needed: int) -> bool:
    """Tell whether to go on: until enough are clean, or half as many again were taken."""
    return n_clean < needed and n_taken < needed + int(EXTRA_SHARE * needed)
