"""Claims: intervals over fresh, interleaved launches, with the error rate kept over looks.

The unit is the round: one fresh launch of each arm, slices interleaved; d = worth of an arm less
the default's in the same round, so that whatever all arms share cancels. n is the number of rounds.

Intervals are Student's t on the d. They are looked at after 4, 6, 9, 12 and 18 rounds, each time at
the same nominal level (Pocock 1977), chosen by simulation so that over all five looks together a
true null is rejected with the family's error rate; over the classes the error rate is kept by Holm
(1979). A budget that ends between two looks makes its last round a look, which rejects no oftener.
`benchmarks/looks.py` repeats the simulation. Arms beyond the finalists have simultaneous intervals,
each at the level divided by their number (Bonferroni).
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
FIRST_LOOK = LOOKS[0]
"""Rounds before which nothing is claimed."""
ONE_SIDED = 1.64
"""Standard errors of a one-sided 95 % bound."""
ALPHA = 0.05
MIN_FLOOR = 0.01
WORTH_HAVING = 0.1
"""A gain beyond which nobody would keep the default; where noise hides more, nothing is decided."""

# Overall two-sided error rate (over all five looks, t tests on 4 ... 18 normal differences) to the
# nominal rate of each look: simulated studies, numpy PCG64 seed 1, benchmarks/looks.py; 400,000 for
# the first three, 1,600,000 for the rest.
_NOMINAL = {
    0.05: 0.01421,
    0.025: 0.00661,
    0.05 / 3: 0.00426,
    0.01: 0.00246,
    0.005: 0.00119,
    0.0025: 0.000585,
    0.00125: 0.000286,
}


def nominal_alpha(alpha: float) -> float:
    """Return the error rate of a single look; between the simulated ones, log-linear.

    Raises ValueError outside them.
    """
    known = sorted(_NOMINAL)
    if not known[0] - 1e-9 <= alpha <= known[-1] + 1e-9:
        raise ValueError(f"alpha {alpha} is outside {known[0]:.4f} ... {known[-1]:.4f}")
    logs = np.interp(math.log(alpha), np.log(known), [math.log(_NOMINAL[a]) for a in known])
    return float(math.exp(logs))


def shared_alpha(n_intervals: int) -> float:
    """Return the error rate of each of several intervals, so that 95 % hold all together."""
    return max(ALPHA / max(1, n_intervals), min(_NOMINAL))


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


def p_value(values: Sequence[float]) -> float:
    """Return the two-sided p value of "the mean is zero"; 1 for fewer than two values."""
    n = len(values)
    if n < 2:
        return 1.0
    sd = float(np.std(values, ddof=1))
    if sd == 0:
        return 0.0 if float(np.mean(values)) != 0 else 1.0
    t = abs(float(np.mean(values))) / (sd / math.sqrt(n))
    return float(2 * stdtr(n - 1, -t))


def holm_alphas(differences: dict[str, Sequence[float]], alpha: float = ALPHA) -> dict[str, float]:
    """Return the level at which Holm's step-down tests each hypothesis "no difference".

    The smallest p value is tested at alpha / m, the next at alpha / (m - 1), and so on; after the
    first that is not rejected, the rest keep its level.
    """
    order = sorted(differences, key=lambda name: p_value(differences[name]))
    levels: dict[str, float] = {}
    level, stopped = alpha, False
    for i, name in enumerate(order):
        if not stopped:
            level = alpha / (len(order) - i)
        levels[name] = level
        stopped = stopped or p_value(differences[name]) > nominal_alpha(level)
    return levels


def speedup_interval(differences: Sequence[float], alpha: float) -> Interval:
    """Turn log differences into a ratio with its interval at the family's confidence."""
    point, low, high = t_interval(differences, nominal_alpha(alpha))
    return Interval(math.exp(point), math.exp(low), _exp(high), 1 - ALPHA)


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


def simultaneous_interval(differences: Sequence[float], noise: Noise, n_intervals: int) -> Interval:
    """Return the ratio of one of several arms, so that 95 % hold for all their intervals together.

    Few rounds say little of an arm's own scatter, and at so small a level the price for that is
    high: the scatter of all arms stands in for it where it is larger than its own, and lends its
    degrees of freedom (as in Dunnett's comparisons). An arm that scatters more than the others has
    its own only.
    """
    n, level = len(differences), nominal_alpha(shared_alpha(n_intervals))
    mean = float(np.mean(differences))
    own, pooled = float(np.std(differences, ddof=1)), math.sqrt(2) * noise.launch_sd
    freedom = max(noise.freedom, n - 1) if pooled >= own else n - 1
    half = float(-stdtrit(freedom, level / 2)) * max(own, pooled) / math.sqrt(n)
    return Interval(math.exp(mean), math.exp(mean - half), _exp(mean + half), 1 - ALPHA)


def plain_interval(differences: Sequence[float]) -> Interval:
    """Return exp(mean) of worths, or of differences, looked at once, with its 95 % interval."""
    point, low, high = t_interval(differences, ALPHA)
    return Interval(math.exp(point), math.exp(low), _exp(high), 1 - ALPHA)


class Noise(msgspec.Struct, frozen=True):
    """How much identical arms differ."""

    launch_sd: float
    """SD of one launch's worth within a round."""
    freedom: int
    """Degrees of freedom of that estimate."""

    def floor(self, n_rounds: int) -> float:
        """Return the larger of 1 % and the 95 % quantile of |A/A log ratio| after `n_rounds`.

        Two identical arms differ after n rounds by launch_sd sqrt(2/n).
        """
        quantile = float(-stdtrit(self.freedom, 0.025)) * self.launch_sd * math.sqrt(2 / n_rounds)
        return max(MIN_FLOOR, math.expm1(quantile))


def expected_half_width(launch_sd: float, n_rounds: int, n_arms: int) -> float:
    """Return the log half-width to expect of the first of `n_arms` at a look after `n_rounds`."""
    level = nominal_alpha(ALPHA / n_arms)
    return float(-stdtrit(n_rounds - 1, level / 2)) * launch_sd * math.sqrt(2 / n_rounds)


def estimate_noise(table: Sequence[Sequence[float | None]]) -> Noise | None:
    """Estimate the noise from rounds x arms of worths, None where an arm took no part.

    Each value is its round's effect plus its arm's plus what is left: the spread of single
    launches. Returns None where nothing is left to estimate it from.
    """
    cells = [(i, j, y) for i, row in enumerate(table) for j, y in enumerate(row) if y is not None]
    if not cells:
        return None
    rounds, arms, values = (np.array(column) for column in zip(*cells, strict=True))
    design = np.hstack([rounds[:, None] == np.unique(rounds), arms[:, None] == np.unique(arms)])
    fit, _, rank, _ = np.linalg.lstsq(design.astype(float), values, rcond=None)
    freedom = len(values) - int(rank)
    if freedom < 1:
        return None
    residual = values - design @ fit
    return Noise(float(np.sqrt((residual**2).sum() / freedom)), freedom)


def judge(interval: Interval, floor: float) -> Verdict:
    """Say what an interval means: faster, keep_default, or ambiguous.

    faster: the lower bound is above 1 and the point above 1 + floor. keep_default: the lower bound
    is not above 1, and the upper bound above neither 1 + floor nor what anybody would want to have:
    however noisy the host, nothing worth having can be there.
    """
    if interval.low > 1 and interval.point > 1 + floor:
        return "faster"
    if interval.low <= 1 and interval.high <= 1 + min(floor, WORTH_HAVING):
        return "keep_default"
    return "ambiguous"


def early_interval(differences: Sequence[float], known: Noise) -> Interval | None:
    """Return the interval of fewer rounds than a first look has, by a known scatter of launches.

    Pooled with what the rounds themselves scatter by: a noisier hour makes it wider. None of a
    single round, which does not show whether this hour is like that in which the scatter was seen.
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
    """Worths of one arm at one batch, one per round; None where the launch failed."""

    values: tuple[float | None, ...]

    def against(self, other: ArmSeries) -> list[float]:
        """Return this arm less another, over the rounds in which both were measured."""
        pairs = zip(self.values, other.values, strict=True)
        return [a - b for a, b in pairs if a is not None and b is not None]

    def known(self) -> list[float]:
        """Return the measured values."""
        return [value for value in self.values if value is not None]
