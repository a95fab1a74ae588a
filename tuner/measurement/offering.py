"""What a launch is to do in its next slice, and whether it has done enough to be worth something.

A server's confirming launch first times its batches, which says by simulation where the edge is;
then requests arrive at rates around it (record/edge.py), the line empty each time. In the same
trial of a round, all arms get the same arrivals, closer together or further apart.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tuner.measurement.queueing import IDLE
from tuner.record.edge import next_rate
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.load import Offer, Slo
from tuner.record.objective import Objective, capacity_of, offered_of, timed_of, trials_of

TRIAL_S = 3.0
"""Seconds in which requests arrive at the least; more where so few say nothing of the quantile."""
N_TRIALS = 6
"""What the edge takes, on average: for estimates of time."""
_BOUNDS = 10
"""Times the bound that a trial lasts: in a shorter one, no line has time to grow."""
_LONG_S, _LONGEST_S = 60.0, 120.0
"""Seconds of a trial: from the first on, as few requests as say anything of the quantile; and where
those would take longer than the second, none are sent: who serves so few is no server."""
_MOST_REQUESTS = 4000
_MOST_SEEDS = 100
"""Of a launch; there are fewer trials."""
_MOST_TRIALS = 12
"""Disturbed ones included, which are made again."""
_LEAST_SHARE = 0.1
"""Of the capacity: rates below are not tried, unless the edge is expected there."""
_IN_HASTE = 3
"""Trials that are enough when time is up."""


def is_settled(record: LaunchRecord, objective: Objective, *, in_haste: bool = False) -> bool:
    """Tell whether a launch has made as many calls, or trials, as its value rests on."""
    if sum(s.calls for s in record.slices) < objective.least_calls:
        return False
    if not tries(record, objective):
        return True
    if in_haste and len(offered_of(record.slices)) >= _IN_HASTE:
        return True
    return bool(timed_of(record.slices)) and next_offer(record, objective) is None


def tries(record: LaunchRecord, objective: Objective) -> bool:
    """Tell whether requests are sent to a launch: in rounds, where a claim will rest on it."""
    is_in_round = record.request.purpose in (Purpose.CONFIRM, Purpose.EXPLAIN)
    return objective.slo is not None and is_in_round and record.request.round > 0


def next_offer(record: LaunchRecord, objective: Objective) -> Offer | None:
    """Return the requests of the next trial; None where none is sent."""
    slo, timed = objective.slo, timed_of(record.slices)
    if slo is None or not timed or not tries(record, objective):
        return None
    n_made = len(offered_of(record.slices))
    if n_made >= _MOST_TRIALS:
        return None
    trials = trials_of(record.slices, slo) if n_made else []
    start, least = _range(timed, slo)
    rate = next_rate(trials, slo.seconds, start=start, least=least)
    if rate is None:
        return None
    # another draw of arrivals for each trial, or a launch's edge is that of one draw
    seed = _MOST_SEEDS * record.request.round + n_made
    return Offer(rate, n_requests(rate, slo), seed)


def _range(timed: Sequence[Slice], slo: Slo) -> tuple[float, float]:
    """Return the rate to begin with, and the one below which the edge is not looked for."""
    most = capacity_of(timed)
    expected = statistics.fmean(s.served.sustained for s in timed if s.served is not None)
    if expected <= 2 * IDLE * most:  # expected to miss even when idle: does it?
        expected = 3 * _LEAST_SHARE * most
    slowest = slo.least_requests / _LONGEST_S
    start = max(expected, slowest)
    return start, max(slowest, min(_LEAST_SHARE * most, start / 4))


def trials_s(record: LaunchRecord, objective: Objective) -> float:
    """Estimate the seconds in which requests will arrive at a confirming launch like this one.

    0 where none do, or where this one does not tell.
    """
    timed = timed_of(record.slices)
    if objective.slo is None or not timed:
        return 0.0
    start, _ = _range(timed, objective.slo)
    return N_TRIALS * n_requests(start, objective.slo) / start


def n_requests(rate: float, slo: Slo) -> int:
    """Return how many requests a trial takes at a rate: two beyond the quantile, if they may."""
    seconds = max(TRIAL_S, _BOUNDS * slo.seconds)
    wanted = min(_MOST_REQUESTS, max(2 * slo.least_requests, math.ceil(seconds * rate)))
    return max(slo.least_requests, min(wanted, math.ceil(_LONG_S * rate)))
