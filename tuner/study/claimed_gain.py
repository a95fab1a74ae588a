"""How much of a claimed gain is there: fresh rounds compared with those behind the claim.

Two intervals that overlap may still differ, so the difference is tested itself: the mean log
speedup of the fresh rounds less that of the claim's, by the scatter and the rounds of both.
`benchmarks/verification.py` simulates what that finds, and how often it is wrong.

The gain is speedup - 1: of a claimed 1.30x, a measured 1.15x is half. It is looked at once, after
as many rounds as the scatter asks for, whatever they say: looking until the verdict pleases would
spend the error rate many times over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from scipy.special import fdtrc, ndtri, stdtrit  # scipy.stats takes 0.3 s to import

from tuner.measurement.confirmation import (
    ALPHA,
    FIRST_LOOK,
    MIN_FLOOR,
    WORTH_HAVING,
    Noise,
    early_interval,
    plain_interval,
    t_interval,
)
from tuner.record.interval import Interval
from tuner.record.recommendation import ShippedClaim

HALF = 0.5
"""The share of the claimed gain that rounds must distinguish from all of it, by default."""
_MARGIN = 1.5
"""Times by which half an interval is narrower than the shortfall that it is to find: of shortfalls
as large as that, nine in ten are found then."""
_DIFFER = 0.1
"""Below this p value on either side (F test) two scatters are not pooled. Pooled, twelve rounds of
launches that scatter by 3 % wrongly refuted 12 of 100 claims of launches that scatter by 10 %."""
_OLD_LEVEL = 0.01421
"""Of a look with one open class, in files that do not tell the scatter of launches."""
_KNOWN = 1e6
"""Degrees of freedom of a scatter that is as good as known."""
_UNBOUNDED = 1e6
"""A share of the claimed gain that is as good as unbounded."""


class Mean(msgspec.Struct, frozen=True):
    """A mean log speedup with its error."""

    value: float
    variance: float
    """Of the mean."""
    freedom: float
    n_rounds: int
    """0 of a prediction."""


class Gain(msgspec.Struct, frozen=True):
    """The speedup in rounds, and its share of the claimed gain."""

    speedup: Interval
    share: Interval | None = None
    """The share of the claimed gain, with the claim's own error; None if no gain is claimed."""
    is_less: bool = False
    """Whether it is surely less than claimed."""
    is_more: bool = False
    is_limited_by_claim: bool = False
    """Whether nearly all of the share's error is the claim's own, which no round makes smaller."""


def mean_of(ratios: Sequence[float]) -> Mean | None:
    """Return the mean of rounds' log speedups; None of fewer than two."""
    n = len(ratios)
    if n < 2:
        return None
    return Mean(float(np.mean(ratios)), float(np.var(ratios, ddof=1)) / n, n - 1, n)


def claimed_mean(claim: ShippedClaim) -> Mean | None:
    """Return the claimed gain with its error; None if no gain is claimed.

    A prediction has no rounds: its interval is all that is known about its error.
    """
    claimed, n = claim.speedup, claim.n_rounds
    if claimed is None or claimed.point <= 1:
        return None
    value, half = math.log(claimed.point), math.log(claimed.point / claimed.low)
    if n < 2:
        error = half / float(ndtri((1 + claimed.confidence) / 2))
        return Mean(value, error**2, _KNOWN, 0)
    if claim.launch_sd is not None and claim.launch_freedom:
        # of all arms, so that a sample of few rounds that made the verdict by its small scatter
        # is not taken at its word
        return Mean(value, 2 * claim.launch_sd**2 / n, claim.launch_freedom, n)
    # Older files tell it by the interval alone, at the level of a look, divided by the number of
    # classes that were open (Holm), which they do not tell: with one class the scatter is largest.
    error = half / float(-stdtrit(n - 1, _OLD_LEVEL / 2))
    return Mean(value, error**2, n - 1, n)


def gain_of(
    ratios: Sequence[float], claim: ShippedClaim, *, is_scatter_known: bool = False
) -> Gain | None:
    """Evaluate the log speedups of rounds; None if they are too few.

    is_scatter_known: launches scatter here as they did in the study, so that fewer rounds than a
    first look suffice.
    """
    speedup = _speedup(ratios, claim, is_scatter_known=is_scatter_known)
    here, claimed = mean_of(ratios), claimed_mean(claim)
    if speedup is None or here is None:
        return None
    if claimed is None:
        return Gain(speedup)
    compared = _Compared(claimed, here)
    share, apart = compared.share(), here.value - claimed.value
    floor = math.log1p(MIN_FLOOR)  # a smaller difference is irrelevant
    return Gain(
        speedup,
        share,
        is_less=share.high < 1 and apart < -floor,
        is_more=share.low > 1 and apart > floor,
        is_limited_by_claim=compared.is_limited_by_claim,
    )


def _speedup(
    ratios: Sequence[float], claim: ShippedClaim, *, is_scatter_known: bool
) -> Interval | None:
    if len(ratios) >= FIRST_LOOK:
        return plain_interval(ratios)
    if not is_scatter_known or not claim.launch_sd or not claim.launch_freedom:
        return None
    return early_interval(ratios, Noise(claim.launch_sd, claim.launch_freedom))


def is_precise(ratios: Sequence[float], claim: ShippedClaim, at_least: float | None = None) -> bool:
    """Tell whether there are enough rounds, by their scatter and not by their mean.

    There are enough if they would distinguish the whole claimed gain from `at_least` of it, or if
    nearly all of the error is the claim's own, which more rounds cannot reduce.
    """
    here, claimed = mean_of(ratios), claimed_mean(claim)
    if here is None or len(ratios) < FIRST_LOOK:
        return False
    mean, low, _ = t_interval(ratios, ALPHA)
    gain = math.log1p(WORTH_HAVING) if claimed is None else claimed.value
    if mean - low > gain / _MARGIN:
        return False  # it would not tell the gain from none
    if claimed is None:
        return True
    compared = _Compared(claimed, here)
    return (
        compared.half_width(1.0)
        <= (claimed.value - compared.log_speedup(at_least or HALF)) / _MARGIN
        or compared.is_limited_by_claim
    )


class _Compared:
    """The difference of two means, by their scatter together or by each one's own."""

    def __init__(self, claimed: Mean, here: Mean) -> None:
        self._here = here.value
        self._gain = math.expm1(claimed.value)
        self.claim_variance, self.here_variance = claimed.variance, here.variance
        if claimed.n_rounds and not _scatters_differ(claimed, here):
            self._freedom = claimed.freedom + here.freedom
            squares = sum(m.freedom * m.variance * m.n_rounds for m in (claimed, here))
            scatter = squares / self._freedom
            self.claim_variance = scatter / claimed.n_rounds
            self.here_variance = scatter / here.n_rounds
        else:  # Welch (1947)
            squares = claimed.variance**2 / claimed.freedom + here.variance**2 / here.freedom
            both = (claimed.variance + here.variance) ** 2
            self._freedom = min(both / squares, _KNOWN) if squares else _KNOWN

    @property
    def is_limited_by_claim(self) -> bool:
        """Whether further rounds would hardly narrow anything: the claim's own error remains."""
        return 4 * self.here_variance <= self.claim_variance

    def log_speedup(self, share: float) -> float:
        """Return the log speedup at a share of the claimed gain."""
        return math.log1p(share * self._gain)

    def half_width(self, share: float) -> float:
        """Return the 95 % half-width of the log speedup here less that at a share of the claim.

        The claim's error moves the latter the less, the smaller the share is.
        """
        moves = max(0.0, share) * (1 + self._gain) / (1 + share * self._gain)
        variance = self.here_variance + moves**2 * self.claim_variance
        return float(-stdtrit(self._freedom, ALPHA / 2)) * math.sqrt(variance)

    def share(self) -> Interval:
        """Return the share of the claimed gain that is here: all that the rounds do not exclude."""

        def excess(share: float) -> float:
            return self._here - self.log_speedup(share)

        return Interval(
            math.expm1(self._here) / self._gain,
            self._root(lambda share: excess(share) - self.half_width(share)),
            self._root(lambda share: excess(share) + self.half_width(share)),
            1 - ALPHA,
        )

    def _root(self, falling: Callable[[float], float]) -> float:
        """Return the root of a falling function of the share, by bisection."""
        low, high = (1e-12 - 1) / self._gain, 1.0
        while falling(high) > 0 and high < _UNBOUNDED:
            high *= 2
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if falling(middle) > 0 else (low, middle)
        return (low + high) / 2


def _scatters_differ(one: Mean, other: Mean) -> bool:
    """Tell whether rounds scatter differently, by an F test."""
    a, b = one.variance * one.n_rounds, other.variance * other.n_rounds
    if a == b or a + b == 0:
        return False
    above = float(fdtrc(one.freedom, other.freedom, a / b)) if b else 0.0
    return min(above, 1 - above) < _DIFFER
