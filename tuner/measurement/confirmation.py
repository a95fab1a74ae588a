"""Claims: intervals over new, interleaved launches, with one error rate for a whole study.

The unit is the round: one new launch of each arm, slices interleaved. d is the log value of an arm
less the default's in the same round, so that whatever all arms share cancels. n is the number of
rounds.

Intervals are Student's t on the d. Four choices keep them narrow (benchmarks/looks.py has the error
rates and widths):

- The last round that the budget holds is the one look at the whole error rate. Looks before it,
  after 4, 6, 9, 12 and 18 rounds, end the confirmation early only at a rate that costs next to
  nothing (Haybittle 1971, Peto 1976).
- The best configuration so far may have an early verdict, after four rounds of its own while the
  search continues. It is tested at its own level, 0.01, which the later verdicts give up.
- The classes are tested in an order fixed by the search, the surest first. Each has a share of the
  error rate, and passes it on to the next if it is rejected (the fallback procedure, Wiens 2003).
- The scatter of all arms replaces an arm's own if it is larger, and lends its degrees of freedom,
  as in Dunnett's comparisons. An arm that scatters more than the others has its own only.

From nine rounds on, correlation between successive differences (lag one) widens the interval. Arms
beyond the finalists have simultaneous intervals, each at the level divided by their number
(Bonferroni).

A continued study looks once more, at all rounds of an arm. The last looks share the error rate: the
first has 80 %, each later one 80 % of what those before it left (`look_level`). The error rate
therefore holds however often a study continues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.special import stdtr, stdtrit  # scipy.stats takes 0.3 s to import

from tuner.record.interval import Interval
from tuner.record.result import Verdict

LOOKS = (4, 6, 9, 12, 18)
"""Rounds after which a confirmation may end; the last one is the most that it makes."""
FIRST_LOOK = LOOKS[0]
"""Rounds before which nothing is claimed."""
ONE_SIDED = 1.64
"""Standard errors of a one-sided 95 % bound."""
ALPHA = 0.05
"""Two-sided error rate of a study, over all looks and winner classes."""
MIN_FLOOR = 0.01
"""The least noise floor: smaller gains are never claimed."""
WORTH_HAVING = 0.1
"""A gain above this is worth having. If noise may hide a larger one, nothing is decided."""

INTERIM_ALPHA = 0.001
"""Two-sided level of a look before the last round: five of them add 0.3 % to the error rate. It is
less by as much as the level of the last look is (`interim_level`)."""
EARLY_ALPHA = 0.01
"""Two-sided level of an early verdict, which the later ones do without: one arm, at four rounds. A
gain of 5.8 standard errors is decided on then; at INTERIM_ALPHA it would take 12.9."""
WEIGHTS = (0.8, 0.1, 0.1)
"""Shares of the error rate of the first, second and third class. One that is not rejected leaves
those after it a tenth of it each; with (1, 0, 0) it would leave them nothing."""
LOOK_SHARE = 0.8
"""Share of the error rate left by earlier last looks that a last look uses. More would leave next
to nothing to a continuation; less would widen the intervals of studies without one, which are most.
"""
POWER_Z = 0.84
"""Standard errors: rounds are said to be enough for a gain if they decide on it four times out of
five, not every other time."""
_CORRELATED_FROM = 9
"""Rounds from which on a lag-one correlation can be seen: with fewer, its estimate is noise."""
_MOST_CORRELATION = 0.8
"""The largest lag-one correlation that is used: beyond it the interval would be unbounded."""


def shared_alpha(n_intervals: int, alpha: float = ALPHA) -> float:
    """Return the error rate of each of several intervals, so that 95 % hold all together."""
    return alpha / max(1, n_intervals)


def look_level(n_before: int, spent: float = 0.0) -> float:
    """Return the two-sided error rate of a study's last look after `n_before` earlier last looks.

    0.04, 0.008, 0.0016, ...: together less than 0.05. spent: what an early verdict has used.
    """
    return (ALPHA - spent) * LOOK_SHARE * (1 - LOOK_SHARE) ** n_before


def interim_level(last_level: float) -> float:
    """Return the two-sided level of a look before a last one that has `last_level`."""
    return INTERIM_ALPHA * last_level / ALPHA


def t_interval(values: Sequence[float], alpha: float) -> tuple[float, float, float]:
    """Return mean, lower and upper bound of the mean of `values` at two-sided level `alpha`.

    One value has an infinite interval.
    """
    mean = float(np.mean(values))
    n = len(values)
    if n < 2:
        return mean, -math.inf, math.inf
    half = float(-stdtrit(n - 1, alpha / 2) * np.std(values, ddof=1) / math.sqrt(n))
    return mean, mean - half, mean + half


def fallback_alphas(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """Return the level at which each of at most three hypotheses is tested, in their fixed order.

    Each has its share of alpha, and what the one before it passes on: its level if it was rejected,
    otherwise nothing. The first of 0.05: 0.04; the second 0.045 after a rejection, otherwise 0.005.
    The error rate over all is at most alpha (Wiens 2003, doi:10.1002/pst.64).
    """
    weights = WEIGHTS[: len(p_values)]
    levels: list[float] = []
    passed = 0.0
    for p, weight in zip(p_values, weights, strict=True):
        level = alpha * weight / sum(weights) + passed
        levels.append(level)
        passed = level if p <= level else 0.0
    return levels


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


class Difference(msgspec.Struct, frozen=True):
    """The mean of an arm's log differences, with its error."""

    mean: float
    error: float
    """Its standard error."""
    freedom: float
    """Degrees of freedom of that."""

    def p_value(self) -> float:
        """Return the two-sided p value of "the mean is zero"."""
        if self.error == 0:
            return 0.0 if self.mean else 1.0
        return float(2 * stdtr(self.freedom, -abs(self.mean) / self.error))

    def interval(self, alpha: float) -> Interval:
        """Return the ratio with its interval at a two-sided level."""
        half = float(-stdtrit(self.freedom, alpha / 2)) * self.error
        low, high = math.exp(self.mean - half), _exp(self.mean + half)
        return Interval(math.exp(self.mean), low, high, 1 - ALPHA)

    def likely_interval(self, alpha: float) -> Interval:
        """Return the interval that will be reached with the planned power.

        It is wider: further rounds will have another mean.
        """
        found, margin = self.interval(alpha), math.exp(POWER_Z * self.error)
        return Interval(found.point, found.low / margin, found.high * margin, found.confidence)


def difference(differences: Sequence[float], noise: Noise) -> Difference:
    """Return the mean of at least two log differences, with the larger of two scatters.

    The scatter of all arms' launches brings its degrees of freedom; an arm that scatters more has
    its own alone. noise: that of all arms, over the same rounds.
    """
    n = len(differences)
    own, pooled = float(np.std(differences, ddof=1)), math.sqrt(2) * noise.launch_sd
    freedom: float = max(noise.freedom, n - 1) if pooled >= own else n - 1
    error = max(own, pooled) / math.sqrt(n)
    correlation = _correlation(differences)
    if correlation:
        ratio = (1 + correlation) / (1 - correlation)
        error *= math.sqrt(ratio)
        freedom = max(float(FIRST_LOOK - 1), (n - 1) / ratio)
    return Difference(float(np.mean(differences)), error, freedom)


def _correlation(differences: Sequence[float]) -> float:
    """Return the lag-one correlation of differences if it is visible, otherwise 0.

    It is visible above one standard error (1 / sqrt(n)), with the estimate's bias of -1 / n
    removed.
    """
    n = len(differences)
    centred = np.asarray(differences) - np.mean(differences)
    squares = float((centred**2).sum())
    if n < _CORRELATED_FROM or squares == 0:
        return 0.0
    found = float((centred[1:] * centred[:-1]).sum()) / squares + 1 / n
    return min(found, _MOST_CORRELATION) if found > 1 / math.sqrt(n) else 0.0


def plain_interval(differences: Sequence[float]) -> Interval:
    """Return exp(mean) of log values or differences, looked at once, with its 95 % interval."""
    point, low, high = t_interval(differences, ALPHA)
    return Interval(math.exp(point), math.exp(low), _exp(high), 1 - ALPHA)


class Noise(msgspec.Struct, frozen=True):
    """How much identical arms differ."""

    launch_sd: float
    """SD of one launch's log value within a round."""
    freedom: int
    """Degrees of freedom of that estimate."""

    def floor(self, n_rounds: int) -> float:
        """Return the larger of 1 % and the 95 % quantile of |A/A log ratio| after `n_rounds`.

        Two identical arms differ after n rounds by launch_sd sqrt(2/n).
        """
        quantile = float(-stdtrit(self.freedom, 0.025)) * self.launch_sd * math.sqrt(2 / n_rounds)
        return max(MIN_FLOOR, math.expm1(quantile))


def expected_half_width(
    launch_sd: float, n_rounds: int, n_arms: int, alpha: float = INTERIM_ALPHA
) -> float:
    """Return the log half-width to expect of each of `n_arms`, by default at an interim look."""
    freedom = (n_rounds - 1) * n_arms
    return float(-stdtrit(freedom, alpha / 2)) * launch_sd * math.sqrt(2 / n_rounds)


class RoundFit(msgspec.Struct, frozen=True):
    """The log values of rounds as sums of a round's effect, an arm's effect, and a residual."""

    effects: list[float | None]
    """Of each arm; None of one that took no part. Differences of them mean something."""
    noise: Noise | None
    """The scatter of single launches; None if nothing is left to estimate it from."""


def fit_rounds(table: Sequence[Sequence[float | None]]) -> RoundFit:
    """Fit rounds x arms of log values by least squares; None where an arm took no part.

    The effect of each round is removed, also for arms that took part in different rounds.
    """
    cells = [(i, j, y) for i, row in enumerate(table) for j, y in enumerate(row) if y is not None]
    n_arms = max(map(len, table), default=0)
    if not cells:
        return RoundFit([None] * n_arms, None)
    rounds, arms, values = (np.array(column) for column in zip(*cells, strict=True))
    known_rounds, known_arms = np.unique(rounds), np.unique(arms)
    design = np.hstack([rounds[:, None] == known_rounds, arms[:, None] == known_arms])
    fit, _, rank, _ = np.linalg.lstsq(design.astype(float), values, rcond=None)
    found = dict(zip(known_arms.tolist(), fit[len(known_rounds) :].tolist(), strict=True))
    effects = [found.get(j) for j in range(n_arms)]
    freedom = len(values) - int(rank)
    if freedom < 1:
        return RoundFit(effects, None)
    residual = values - design @ fit
    return RoundFit(effects, Noise(float(np.sqrt((residual**2).sum() / freedom)), freedom))


def decidable_gain(launch_sd: float, n_rounds: int, n_arms: int) -> float:
    """Return the smallest log gain that the last look at n rounds will probably decide on.

    For the first of all classes, in a study that was not continued. n_arms: arms that share their
    scatter.
    """
    half = expected_half_width(launch_sd, n_rounds, n_arms, look_level(0) * WEIGHTS[0])
    return half + POWER_Z * launch_sd * math.sqrt(2 / n_rounds)


def judge(interval: Interval, floor: float) -> Verdict:
    """Return the meaning of an interval: faster, keep_default, or ambiguous.

    faster: the lower bound is above 1 and the point above 1 + floor. keep_default: the lower bound
    is not above 1, and the upper bound is below 1 + floor and below 1.1. However noisy the host, no
    gain worth having can be there.
    """
    if interval.low > 1 and interval.point > 1 + floor:
        return "faster"
    if interval.low <= 1 and interval.high <= 1 + min(floor, WORTH_HAVING):
        return "keep_default"
    return "ambiguous"


def early_interval(differences: Sequence[float], known: Noise) -> Interval | None:
    """Return the interval for fewer rounds than a first look, with a known scatter of launches.

    It is pooled with the scatter of the rounds themselves: a noisier hour widens the interval. None
    for a single round, which does not show whether the noise is still the same.
    """
    n = len(differences)
    if n < 2:
        return None
    mean = float(np.mean(differences))
    freedom = known.freedom + n - 1
    squares = 2 * known.launch_sd**2 * known.freedom + float(np.var(differences, ddof=1)) * (n - 1)
    half = float(-stdtrit(freedom, ALPHA / 2)) * math.sqrt(squares / freedom / n)
    return Interval(math.exp(mean), math.exp(mean - half), _exp(mean + half), 1 - ALPHA)


class ArmSeries(msgspec.Struct, frozen=True):
    """Log values of one arm at one batch, one per round; None if the launch failed."""

    values: tuple[float | None, ...]

    def against(self, other: ArmSeries) -> list[float]:
        """Return this arm less another, over the rounds in which both were measured."""
        pairs = zip(self.values, other.values, strict=True)
        return [a - b for a, b in pairs if a is not None and b is not None]

    def known(self) -> list[float]:
        """Return the measured values."""
        return [value for value in self.values if value is not None]
