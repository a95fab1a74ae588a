"""What a launch does in its next slice, and whether it has done enough for a value.

A server's confirming launch first times its batches, from which a simulation estimates the maximum
rate. Then requests arrive at rates around it (record/max_rate.py), each time with an empty queue.
In the same trial of a round all arms get the same arrivals, scaled in time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tuner.measurement.queueing import IDLE
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.load import Offer, Slo
from tuner.record.max_rate import edge_of, is_lowest, next_rate
from tuner.record.objective import Objective, capacity_of, offered_of, timed_of, trials_of
from tuner.record.trace import proved_by

TRIAL_S = 3.0
"""Seconds in which requests arrive, at least; more if these hold too few for the quantile."""
N_TRIALS = 6
"""Trials that it takes to find the maximum rate, on average: for estimates of time."""
_BOUNDS, _BOUNDS_OF_OWN = 10, 20
"""Times the bound that a trial lasts: in a shorter one, no line has time to grow. A server of the
user's own may answer more than callers in a closed loop have shown, so that nothing else stops a
rate that is too high."""
_LONG_S, _LONGEST_S = 60.0, 120.0
"""Seconds of a trial: from the first on, as few requests as say anything of the quantile; and where
those would take longer than the second, none are sent: who serves so few is no server."""
_MOST_REQUESTS = 4000
"""Requests of one trial, at most, however fast they arrive."""
_MOST_SEEDS = 100
"""Of a launch; there are fewer trials."""
_MOST_TRIALS = 12
"""Disturbed ones included, which are made again."""
_LEAST_SHARE = 0.1
"""Of the capacity: rates below are not tried, unless the edge is expected there."""
_IN_HASTE = 3
"""Trials that are enough when time is up."""


def is_settled(record: LaunchRecord, objective: Objective, *, minimal: bool = False) -> bool:
    """Tell whether a launch has made as many calls, or trials, as its value rests on."""
    if sum(s.calls for s in record.slices) < objective.least_calls:
        return False
    if not uses_arrivals(record, objective):
        return True
    if minimal and len(offered_of(record.slices)) >= _IN_HASTE:
        return True
    return bool(timed_of(record.slices)) and next_offer(record, objective) is None


def uses_arrivals(record: LaunchRecord, objective: Objective) -> bool:
    """Tell whether requests are sent to a launch: they are in rounds, which claims rest on."""
    is_in_round = record.request.purpose in (Purpose.CONFIRM, Purpose.EXPLAIN)
    return objective.slo is not None and is_in_round and record.request.round > 0


def next_offer(record: LaunchRecord, objective: Objective) -> Offer | None:
    """Return the requests of the next trial; None if none is needed."""
    slo, timed = objective.slo, timed_of(record.slices)
    if slo is None or not timed or not uses_arrivals(record, objective):
        return None
    n_made = len(offered_of(record.slices))
    if n_made >= _MOST_TRIALS:
        return None
    trials = trials_of(record.slices, slo) if n_made else []
    start, least = _range(timed, slo)
    rate = next_rate(trials, slo.seconds, start=start, least=least)
    if rate is None:
        return None
    n = _n_here(rate, slo, timed)
    # another draw of arrivals for each trial, or a launch's edge is that of one draw
    seed = _MOST_SEEDS * record.request.round + n_made
    if slo.trace is None:
        return Offer(rate, n, seed)
    moments = proved_by(slo.trace, n)
    return Offer(rate, len(moments), seed, moments)


def _n_here(rate: float, slo: Slo, timed: Sequence[Slice]) -> int:
    """Return how many requests a trial takes of this server, and of this trace if there is one."""
    is_own = any(s.served is not None and s.served.levels for s in timed)
    n_bounds = _BOUNDS_OF_OWN if is_own else _BOUNDS
    n = n_requests(rate, slo, n_bounds)
    while slo.trace is not None and n < _MOST_REQUESTS:  # a rush is sooner over
        moments = proved_by(slo.trace, n)
        if len(moments) < n or moments[-1] / rate >= max(TRIAL_S, n_bounds * slo.seconds):
            break
        n = min(2 * n, _MOST_REQUESTS)
    return n


def is_conclusive(record: LaunchRecord, objective: Objective) -> bool:
    """Tell whether a launch says whether it keeps within the bound.

    One that was cut short before it came to the lowest rates has not missed it.
    """
    slo, timed = objective.slo, timed_of(record.slices)
    trials = trials_of(record.slices, slo) if slo is not None and timed else []
    if slo is None or not trials or edge_of(trials, slo.seconds).rate:
        return True
    _, least = _range(timed, slo)
    return is_lowest(min(trial.rate for trial in trials), least)


def _range(timed: Sequence[Slice], slo: Slo) -> tuple[float, float]:
    """Return the rate to begin with, and the one below which the edge is not looked for."""
    most = capacity_of(timed)
    expected = statistics.fmean(s.served.sustained for s in timed if s.served is not None)
    if expected <= 2 * IDLE * most:  # expected to miss even when idle: does it?
        expected = 3 * _LEAST_SHARE * most
    slowest = slo.least_requests / _LONGEST_S
    start = max(expected, slowest)
    return start, max(slowest, min(_LEAST_SHARE * most, start / 4))


def trials_s(record: LaunchRecord, objective: Objective, *, minimal: bool = False) -> float:
    """Estimate the seconds in which requests will arrive at a confirming launch like this one.

    minimal: use as few trials as suffice. 0 if none are needed, or if this launch is inconclusive.
    """
    timed = timed_of(record.slices)
    if objective.slo is None or not timed:
        return 0.0
    start, _ = _range(timed, objective.slo)
    n_trials = _IN_HASTE if minimal else N_TRIALS
    return n_trials * _n_here(start, objective.slo, timed) / start


def n_requests(rate: float, slo: Slo, n_bounds: float = _BOUNDS) -> int:
    """Return how many requests a trial takes at a rate: two beyond the quantile, if they may.

    n_bounds: times the bound that it lasts.
    """
    seconds = max(TRIAL_S, n_bounds * slo.seconds)
    wanted = min(_MOST_REQUESTS, max(2 * slo.least_requests, math.ceil(seconds * rate)))
    return max(slo.least_requests, min(wanted, math.ceil(_LONG_S * rate)))
