"""The rate at which a server answers late as often as its latency bound allows, from trials.

In a trial, requests arrive at a rate, and some are answered later than the bound. Late requests
come in clusters, so that most short trials at the true rate have fewer late requests than allowed,
and a few have many: whether a trial kept the bound says little, and the median of such verdicts is
10 % too high. The *share* of late requests is unbiased at every length if a trial begins and ends
with an idle server (a regenerative estimate, Glynn 2006, doi:10.1016/S0927-0507(06)13016-9).

There are two estimates of the rate, each from the trials of all launches of a configuration:

- By shares alone. The share p is modelled as ln p = a + s ln(rate) near the rate in question, and
  the counts of late requests are fitted by quasi-Poisson regression. A launch's rates count in
  proportion to its speed, if all launches were timed.
- By simulation. The requests of every trial are sent to a simulation of the server too, whose
  service times are those that the launch showed. Its rates are scaled by one factor, the same for
  all, so that as many of its requests are late as of the real ones. The rate is the one that the
  simulated servers keep for good, divided by that factor. What luck the arrivals bring is the same
  on both sides and cancels: intervals are three to six times as narrow. It is used if real and
  simulated counts of late requests agree trial by trial. They do not if service times scatter
  widely, or if the server stalls while requests arrive.

Launches are the replicates: the interval is a jackknife over them. benchmarks/server_rates.py has
the errors of both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize_scalar

from tuner.record.serving import CLUSTER

USUAL_SLOPE = 6.0
"""Of servers about which nothing is known: a tenth more load makes 1.8 times as many late."""
_LEAST_SLOPE, _MOST_SLOPE = 0.3, 100.0
_SLOPE_SD = 0.7
"""SD of the logarithm of a slope around the expected one."""
_NONE_LATE = 0.5
"""Taken for the count where no request was late."""
_NEAR, _NEAR_SIMULATED = 2.0, 1.3
"""Trials count whose share is expected to be within this factor (log) of the allowed one: far away
the model does not hold, and hundreds of late requests would outweigh the rest."""
_OVERLOADED = 0.3
"""Share of late requests from which on a trial says only that its rate is too high: the queue grew
all along, and how many were late depends on how long the trial went on."""
_MANY_TIMES = 10.0
"""Multiple of the allowed share that an overloaded trial exceeds as well: of a bound on the median,
half of the requests may be late."""
_MOST_WINDOWS = 5
"""Times that the window of trials is moved to the fitted rate."""
_FAR = 1.15
"""A rate beyond those that a launch has tried, by this factor, is tried itself."""
_STEP = 1.3
"""The largest factor between the rates that were tried and the next one."""
STEPS = (-1.5, -0.35, 0.7)
"""Logarithms of the expected over the allowed share, in the trials of a launch."""
_BEYOND = 1.2
"""Times the capacity of a server: a higher rate tells nothing more."""
_NARROWEST, _WIDEST = 0.65, 1.35
"""Factors between the estimated rate and the one that is tried."""
_MOST_TRIALS = 8
"""Of a launch, if the rate lies outside of those that were tried."""
_AT_LEAST, _BELOW = 1.05, 0.05
"""The lowest useful rate was tried within this factor; a rate is below all that were tried if it is
by more than this (log)."""
SCALE_STEP = 0.02
"""Between the logarithms of the scales at which trials are simulated."""
_MOST_STEPS = 30
"""On either side: no model describes a server that differs from it by a factor of 1.8."""
_SAME_SCALE = 0.3
"""In steps: the window of trials need not be moved."""
_AGREES = 0.5
"""Mean square of the difference of real and simulated counts, over their sum: above it they do not
agree. It is 1 of independent counts without clusters; by simulation, 0 to 0.3 of nearly all servers
that are as they were timed, and 1 to 10 of nearly all others."""
_ALIKE = 1.5
"""Factor between the rates of models of one configuration: one that is further off was timed while
something disturbed it."""


class Trial(NamedTuple):
    """Requests that arrived at a rate at an idle server, until it was idle again."""

    rate: float
    """Requests per second."""
    n_requests: int
    n_late: int
    seed: int | None = None
    """Of the arrivals, if they can be simulated."""


class Speed(NamedTuple):
    """How fast a server is, by its timed calls."""

    log: float
    """Logarithm, in any unit that all launches share."""
    sd: float
    """Its error."""


class Model(Protocol):
    """A simulated server."""

    @property
    def speed(self) -> Speed:
        """How fast it was timed."""

    @property
    def rate(self) -> float:
        """Requests per second at which, for good, as many are late as the bound allows."""

    @property
    def slope(self) -> float:
        """Relative increase of the share of late requests by that of the rate, there."""

    def n_late(self, trial: Trial, steps: int) -> int:
        """Return how many of a trial's requests are late at its rate times exp(0.02 * steps)."""


class Launched(NamedTuple):
    """The trials of a launch."""

    trials: Sequence[Trial]
    model: Model | None = None
    """None if nothing is known that could be simulated."""


class Fit(NamedTuple):
    """A rate by the trials of several launches."""

    log_rate: float
    """Logarithm of the rate, in requests per second, at which the allowed share is late."""
    slope: float
    """Relative increase of the late share by that of the rate, at that rate."""
    log_scale: float | None = None
    """Logarithm of the factor between simulated and real rates; None of a fit by shares alone."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return math.exp(self.log_rate)

    def rate_of(self, launch: Launched) -> float:
        """Return the rate of one launch: of a faster one it is higher, if a model shows that."""
        if self.log_scale is None or launch.model is None:
            return self.rate
        return launch.model.rate / math.exp(self.log_scale)


def fit(launches: Sequence[Launched], allowed: float) -> Fit:
    """Fit the rate at which a share `allowed` of the requests is late.

    launches: of one configuration, with at least one trial altogether.
    """
    scale = _log_scale(launches)
    if scale is not None and _agrees(launches, scale):
        return _by_simulation(launches, scale)
    return _by_shares(launches, allowed, _slope(launches))


def log_rates(
    launches: Sequence[Launched], allowed: float, most: float = math.inf
) -> list[float] | None:
    """Return a logarithmic rate for each launch; their mean is that of all launches together.

    None if the rate is lower than all that were tried.

    These are a jackknife's pseudo-values: the SD of their mean is the jackknife's estimate of the
    error of the fit, and the differences of two configurations' are those of a paired comparison.
    By shares alone they scatter by at least as much as counts of late requests do.
    launches: each has trials. most: requests per second that the server answers when it is never
    idle.
    """
    whole = fit(launches, allowed)
    tried = [math.log(trial.rate) for launch in launches for trial in launch.trials]
    if whole.log_rate < min(tried) - _BELOW:
        return None
    # where no rate was too high, the highest that was tried is kept, and more is not known; how far
    # off the rate may be is known all the same
    middle = min(whole.log_rate, max(tried), math.log(most))
    if len(launches) < 2:
        return [middle] * len(launches)
    slope = _slope(launches)

    def without(left_out: int) -> float:
        others = [launch for k, launch in enumerate(launches) if k != left_out]
        scale = None if whole.log_scale is None else _log_scale(others)
        if scale is not None:
            return _by_simulation(others, scale).log_rate
        return _by_shares(others, allowed, slope).log_rate

    left_out = [without(k) for k in range(len(launches))]
    mean = statistics.fmean(left_out)
    deviations = [(len(launches) - 1) * (mean - each) for each in left_out]
    if whole.log_scale is None:
        deviations = _as_wide_as_clusters(deviations, launches, whole, allowed)
    return [middle + each for each in deviations]


def _as_wide_as_clusters(
    deviations: list[float], launches: Sequence[Launched], found: Fit, allowed: float
) -> list[float]:
    """Widen deviations until their mean has at least the error that clustered counts make.

    Rates are chosen by the counts of all launches before, so that launches are not independent; and
    few have had a long queue. Both make a jackknife too narrow.
    """
    near = [
        (trial, trial.n_requests * allowed * math.exp(at))
        for launch in _as_fast_as_the_mean(launches)
        for trial in launch.trials
        if abs(at := found.slope * (math.log(trial.rate) - found.log_rate)) <= _NEAR
    ]
    scatter = sum((trial.n_late - expected) ** 2 / expected for trial, expected in near)
    dispersion = max(CLUSTER, scatter / max(1, len(near) - 2))
    n_late = max(_NONE_LATE, sum(trial.n_late for trial, _ in near))
    least = math.sqrt(dispersion / n_late) / found.slope
    error = statistics.stdev(deviations) / math.sqrt(len(deviations))
    return [each * max(1.0, least / error) for each in deviations] if error else deviations


def _slope(launches: Sequence[Launched]) -> float:
    """Return the expected slope."""
    known = [launch.model.slope for launch in launches if launch.model is not None]
    return statistics.fmean(known) if known else USUAL_SLOPE


# ------------------------------------------------------------------------ by shares


def by_shares(trials: Sequence[Trial], allowed: float, expected_slope: float) -> Fit:
    """Fit the rate to the shares of late requests alone, of at least one trial of one launch.

    The rate lies within a factor of 1.3 of those that were tried.
    """
    return _by_shares([Launched(trials)], allowed, expected_slope)


def _by_shares(launches: Sequence[Launched], allowed: float, expected_slope: float) -> Fit:
    launches = _as_fast_as_the_mean(launches)
    trials = [t for launch in launches for t in launch.trials]
    lowest, highest = min(t.rate for t in trials), max(t.rate for t in trials)
    too_high = [t for launch in launches for t in _overloaded(launch.trials, allowed)]
    near = useful = [t for t in trials if t not in too_high] or trials
    found = _regression(near, allowed, expected_slope)
    for _ in range(_MOST_WINDOWS):
        closer = _within(useful, found)
        if closer == near or len(closer) < 2:
            break
        near = closer
        found = _regression(near, allowed, expected_slope)
    kept = _most_kept(trials, allowed)  # by a faster launch, perhaps
    most = min([highest * _STEP, *(t.rate for t in too_high if t.rate > kept)])
    bounded = min(max(found.log_rate, math.log(lowest / _STEP)), math.log(most))
    return found._replace(log_rate=bounded)


def _as_fast_as_the_mean(launches: Sequence[Launched]) -> list[Launched]:
    """Return launches with the rates that they would have been sent, had all been equally fast.

    How fast each was is known by its timed calls, with an error: of the difference to the mean, the
    share counts that is no error (the reliability of a measurement with noise; Fuller 1987,
    Measurement Error Models, section 1.1).
    """
    speeds = [launch.model.speed for launch in launches if launch.model is not None]
    if len(speeds) < max(2, len(launches)):
        return list(launches)
    logs = [speed.log for speed in speeds]
    scatter = statistics.variance(logs)
    if not scatter or max(logs) - min(logs) > math.log(_ALIKE):
        return list(launches)
    share = max(0.0, 1 - statistics.fmean(speed.sd**2 for speed in speeds) / scatter)
    mean = statistics.fmean(logs)
    return [
        launch._replace(
            trials=[t._replace(rate=t.rate * math.exp(share * (mean - log))) for t in launch.trials]
        )
        for launch, log in zip(launches, logs, strict=True)
    ]


def _overloaded(trials: Sequence[Trial], allowed: float) -> list[Trial]:
    """Return the trials of a launch in which the queue grew all along.

    Where a higher rate was kept, a pause of the server made the requests late: they count.
    """
    kept, share = _most_kept(trials, allowed), max(_OVERLOADED, _MANY_TIMES * allowed)
    return [t for t in trials if t.n_late > share * t.n_requests and t.rate > kept]


def _most_kept(trials: Sequence[Trial], allowed: float) -> float:
    return max((t.rate for t in trials if t.n_late <= allowed * t.n_requests), default=0.0)


def _within(trials: Sequence[Trial], found: Fit) -> list[Trial]:
    """Return the trials near a rate; if none of them has late requests, the nearest that has."""
    far = {t: abs(math.log(t.rate) - found.log_rate) for t in trials}
    near = {t for t in trials if far[t] <= _NEAR / found.slope}
    late = [t for t in trials if t.n_late]
    if late and not any(t.n_late for t in near):
        near.add(min(late, key=lambda t: far[t]))
    return [t for t in trials if t in near]


def _regression(trials: Sequence[Trial], allowed: float, expected_slope: float) -> Fit:
    n_late = np.array([t.n_late for t in trials], float)
    n = np.array([t.n_requests for t in trials], float)
    logs = np.log([t.rate for t in trials])
    middle = float(np.average(logs, weights=n))
    x = logs - middle
    total = max(float(n_late.sum()), _NONE_LATE)

    def intercept(slope: float) -> float:
        return math.log(total / float(n @ np.exp(slope * x)))

    def loss(log_slope: float) -> float:
        slope = math.exp(log_slope)
        likelihood = total * intercept(slope) + slope * float(n_late @ x)
        surprise = (log_slope - math.log(expected_slope)) / _SLOPE_SD
        return surprise**2 / 2 - likelihood / CLUSTER

    limits = math.log(_LEAST_SLOPE), math.log(_MOST_SLOPE)
    slope = math.exp(float(minimize_scalar(loss, bounds=limits, method="bounded").x))
    return Fit(middle + (math.log(allowed) - intercept(slope)) / slope, slope)


# ------------------------------------------------------------------------ by simulation


class _Pair(NamedTuple):
    trial: Trial
    model: Model

    def distance(self, log_scale: float) -> float:
        """Return how far its expected share is from the allowed one (log), about."""
        return (math.log(self.trial.rate / self.model.rate) + log_scale) * self.model.slope

    def n_late(self, steps: int) -> int:
        return self.model.n_late(self.trial, steps)


def _pairs(launches: Sequence[Launched]) -> list[_Pair] | None:
    """Return all trials with their models; None unless each has one, and there are some."""
    if any(launch.trials and launch.model is None for launch in launches):
        return None
    found = [
        _Pair(trial, launch.model)
        for launch in launches
        if launch.model is not None
        for trial in launch.trials
    ]
    return found if found and all(pair.trial.seed is not None for pair in found) else None


def _near(pairs: Sequence[_Pair], log_scale: float) -> list[_Pair]:
    return [pair for pair in pairs if abs(pair.distance(log_scale)) <= _NEAR_SIMULATED]


def _log_scale(launches: Sequence[Launched]) -> float | None:
    """Return the scale of rates at which the models are as often late as the real servers.

    None if there are no models, or no scale makes them so.
    """
    pairs = _pairs(launches)
    if pairs is None:
        return None
    steps = 0.0
    for _ in range(_MOST_WINDOWS):
        near = _near(pairs, steps * SCALE_STEP) or pairs
        found = _crossing(
            lambda at, near=near: sum(pair.n_late(at) for pair in near),  # type: ignore[misc]
            sum(pair.trial.n_late for pair in near),
        )
        is_settled = abs(found - steps) < _SAME_SCALE
        steps = found
        if is_settled:
            break
    return steps * SCALE_STEP if abs(steps) < _MOST_STEPS else None


def _crossing(n_late: Callable[[int], int], wanted: int) -> float:
    """Return the step at which a count, which rises with the steps, reaches the wanted one.

    Of several the one next to 0: where none is late on either side, nothing speaks for another.
    """
    if (here := n_late(0)) == wanted:
        return 0.0
    sign = 1 if here < wanted else -1

    def is_before(at: int) -> bool:
        return n_late(at) < wanted if sign > 0 else n_late(at) > wanted

    before, beyond = 0, sign * _MOST_STEPS
    if is_before(beyond):
        return float(beyond)
    while abs(beyond - before) > 1:
        middle = (before + beyond) // 2
        if is_before(middle):
            before = middle
        else:
            beyond = middle
    low, high, at = (math.log(max(_NONE_LATE, n)) for n in (n_late(before), n_late(beyond), wanted))
    if low == high:
        return float(beyond)
    return before + (beyond - before) * min(max((at - low) / (high - low), 0.0), 1.0)


def _agrees(launches: Sequence[Launched], log_scale: float) -> bool:
    """Tell whether the models are like one another, and late in the same trials as the servers.

    Where neither is late, that is agreement, too: no rate above those that were tried is claimed.
    """
    pairs = _pairs(launches) or []
    rates = [pair.model.rate for pair in pairs]
    if rates and max(rates) > _ALIKE * min(rates):
        return False
    pairs = _near(pairs, log_scale)
    steps = round(log_scale / SCALE_STEP)
    counts = [(pair.trial.n_late, pair.n_late(steps)) for pair in pairs]
    n_late = sum(real + simulated for real, simulated in counts)
    scatter = sum((real - simulated) ** 2 for real, simulated in counts)
    return scatter <= _AGREES * n_late


def _by_simulation(launches: Sequence[Launched], log_scale: float) -> Fit:
    models = [each.model for each in launches if each.trials and each.model is not None]
    middle = statistics.fmean(math.log(model.rate) for model in models)
    return Fit(middle - log_scale, _slope(launches), log_scale)


# ------------------------------------------------------------------------ the next trial


def misses(trials: Sequence[Trial], allowed: float, least: float, slope: float) -> bool:
    """Tell whether requests are late more often than allowed even at the least useful rate."""
    is_tried = any(t.rate <= least * _AT_LEAST for t in trials)
    return is_tried and by_shares(trials, allowed, slope).rate < least


def next_rate(
    earlier: Sequence[Launched],
    own: Launched,
    allowed: float,
    *,
    start: float,
    least: float,
    most: float = math.inf,
) -> float | None:
    """Return the rate of a launch's next trial; None if the launch has made enough.

    Three trials around the rate by everything that is known so far; more while that lies outside of
    what was tried. earlier: other launches of the configuration. start: the expected rate. least:
    below it no server is useful.
    """
    launches = [*earlier, own] if own.trials else list(earlier)
    slope = _slope([own])
    if any(launch.trials for launch in launches):
        found = fit(launches, allowed)
        known = [t for launch in launches for t in launch.trials]
        if own.trials and misses(known, allowed, least, found.slope):
            return None
        n_own = len(own.trials)
        if n_own >= len(STEPS) and (n_own >= _MOST_TRIALS or _is_located(launches, found)):
            return None
        start, slope = found.rate_of(own), found.slope
        tried = [t.rate for t in own.trials]
        if tried and not min(tried) / _FAR <= start <= max(tried) * _FAR:
            # first of all, the rate is looked for
            return max(least, min(start, _BEYOND * most))
    factor = math.exp(STEPS[len(own.trials) % len(STEPS)] / slope)
    rate = start * min(max(factor, _NARROWEST), _WIDEST)
    return max(least, min(rate, _BEYOND * most))


def _is_located(launches: Sequence[Launched], found: Fit) -> bool:
    """Tell whether a rate lies among those that were tried, some of which had late requests."""
    of_all = [t.rate / found.rate_of(each) for each in launches for t in each.trials]
    return min(of_all) <= 1 <= max(of_all) and any(t.n_late for e in launches for t in e.trials)
