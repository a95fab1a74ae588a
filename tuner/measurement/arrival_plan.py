"""What a launch does in its next slice, and whether it has done enough for a value.

A server's confirming launch first times its batches, from which a simulation estimates the maximum
rate. Then requests arrive at rates around it (server_rate.py), each time at an idle server, and
until it is idle again. In the same trial of a round all arms get the same arrivals, scaled in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tuner.measurement.server_rate import STEPS, USUAL_SLOPE, Launched, next_rate
from tuner.measurement.server_trials import launched, most_of, search_range, uses_arrivals
from tuner.record.launch import LaunchRecord
from tuner.record.load import Offer, Slo, Trace
from tuner.record.objective import Objective, offered_of, timed_of
from tuner.record.serving import CLUSTER
from tuner.record.trace import proved_by

TRIAL_S = 10.0
"""Seconds in which requests arrive, at least; more if these hold too few for the quantile. A slow
server takes 30 s for each trial: a fast one beside it may as well answer more requests."""
_BOUNDS = 10
"""Times the bound that a trial lasts: in a shorter one, no line has time to grow."""
_LONG_S = 60.0
"""Seconds of a trial from which on it has as few requests as say anything of the quantile."""
_MOST_REQUESTS = 4000
"""Requests of one trial, at most, however fast they arrive."""
_LATE_EXPECTED = 3
"""Requests of a trial that are late at the rate in question, at least, where time allows."""
_MOST_SEEDS = 100
"""Of a launch; there are fewer trials."""


class ArrivalPlan:
    """Plans the requests that are sent to the launches of a study, or of a verification."""

    def __init__(
        self,
        launches: Callable[[], Iterable[LaunchRecord]],
        objective: Objective,
        seed: int = 0,
    ) -> None:
        """launches: returns all so far. seed: of the arrivals."""
        self._launches = launches
        self._objective = objective
        self._seed = seed

    def is_settled(self, record: LaunchRecord, *, minimal: bool = False) -> bool:
        """Tell whether a launch has made as many calls, or trials, as its value rests on."""
        if sum(s.calls for s in record.slices) < self._objective.least_calls:
            return False
        if not uses_arrivals(record, self._objective):
            return True
        if minimal and len(offered_of(record.slices)) >= len(STEPS):
            return True
        return bool(timed_of(record.slices)) and self.next_offer(record) is None

    def next_offer(self, record: LaunchRecord) -> Offer | None:
        """Return the requests of the next trial; None if none is needed."""
        slo, timed = self._objective.slo, timed_of(record.slices)
        if slo is None or not timed or not uses_arrivals(record, self._objective):
            return None
        own = launched(record, slo)
        start, least = search_range(timed, slo)
        rate = next_rate(
            self._earlier(record, slo),
            own,
            slo.allowed,
            start=start,
            least=least,
            most=most_of(timed),
        )
        if rate is None:
            return None
        # another draw of arrivals for each trial, or a launch's rate is that of one draw
        seed = _MOST_SEEDS * (self._seed + record.request.round) + len(own.trials)
        if slo.trace is None:
            return Offer(rate, n_requests(rate, slo), seed)
        moments = self._moments(rate, slo, slo.trace)
        return Offer(rate, len(moments), seed, moments)

    def _moments(self, rate: float, slo: Slo, trace: Trace) -> tuple[float, ...]:
        """Return a trace's moments, the same for all launches: more are not as close together."""
        for other in self._launches():
            if sent := offered_of(other.slices):
                assert sent[0].served is not None
                return proved_by(trace, sent[0].served.n_requests)
        return proved_by(trace, _n_of_trace(rate, slo, trace))

    def _earlier(self, record: LaunchRecord, slo: Slo) -> list[Launched]:
        """Return a configuration's other launches that have trials."""
        return [
            launched(other, slo)
            for other in self._launches()
            if other.request.configuration == record.request.configuration
            and other.request.id != record.request.id
            and other.was_measured
            and offered_of(other.slices)
        ]


def _n_of_trace(rate: float, slo: Slo, trace: Trace) -> int:
    """Return how many requests of a trace a trial takes."""
    n = n_requests(rate, slo)
    while n < _MOST_REQUESTS:  # a rush is sooner over
        moments = proved_by(trace, n)
        if len(moments) < n or moments[-1] / rate >= max(TRIAL_S, _BOUNDS * slo.seconds):
            break
        n = min(2 * n, _MOST_REQUESTS)
    return n


def trials_s(record: LaunchRecord, objective: Objective) -> float:
    """Estimate the seconds in which requests will arrive at a confirming launch like this one.

    0 if none are needed, or if this launch is inconclusive.
    """
    timed = timed_of(record.slices)
    if objective.slo is None or not timed:
        return 0.0
    start, _ = search_range(timed, objective.slo)
    return len(STEPS) * n_requests(start, objective.slo) / start


def n_requests(rate: float, slo: Slo) -> int:
    """Return how many requests a trial takes at a rate."""
    wanted = max(TRIAL_S, _BOUNDS * slo.seconds) * rate
    wanted = min(_MOST_REQUESTS, max(_LATE_EXPECTED * slo.least_requests, wanted))
    return max(slo.least_requests, round(min(wanted, _LONG_S * rate)))


def sd_by_shares(rate: float, slo: Slo) -> float:
    """Return the expected scatter (log) of the rate of a launch by its trials alone.

    Counts of late requests have their mean times CLUSTER as variance; a slope of the share turns it
    into one of the rate.
    """
    n_late = len(STEPS) * n_requests(rate, slo) * slo.allowed
    return math.sqrt(CLUSTER / n_late) / USUAL_SLOPE
