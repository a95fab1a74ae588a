"""A server's queue, simulated from measured service times: the rate that it sustains.

Requests arrive at random (Poisson), or as in the first half of a trace, and wait in one queue for
as many servers as there are instances. A free server takes the waiting requests, up to a batch. If
it may wait for more, it waits until the batch is full or until the oldest request has waited long
enough. A batch is padded to the next size that the model was prepared for. Service times are drawn
from the measured ones. Inputs of several shapes are treated as if a batch could hold all of them.

The simulation ranks configurations. Claims rest on real arrivals (arrival_plan.py).
benchmarks/serving.py measures how well one predicts the other.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from heapq import heapreplace

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from tuner.record.launch import Slice, percentile
from tuner.record.load import Batching, Slo, Trace
from tuner.record.max_rate import capacity, crossing, most_answered, service_times
from tuner.record.trace import rush, tuned_by

_N_REQUESTS = 2000
"""Requests of a simulation."""
_EXACT = 0.003
"""How closely the rate is found, as a share of it."""
_USUAL = 0.05
"""Share of its capacity that a server has at least, if the bound is of any use."""
IDLE = 1e-3
"""Share of its capacity at which a server is idle: requests do not meet."""


def sustained(batching: Batching, service_s: Mapping[int, Sequence[float]], slo: Slo) -> float:
    """Return the highest rate, in requests per second, at which latencies keep within a bound.

    Where even an idle server does not, less than any server's rate: the less, the further away.
    """
    most = capacity(batching, service_s)
    latency = functools.partial(_latency, batching, service_s, slo)
    idle_s = latency(IDLE * most)
    if idle_s > slo.seconds:
        return IDLE * most * slo.seconds / idle_s
    if latency(most) <= slo.seconds:  # so far off is the bound
        return most
    is_slow = latency(_USUAL * most) > slo.seconds
    low, kept = (IDLE if is_slow else _USUAL) * most, list[float]()

    def lateness(rate: float) -> float:
        """Above 0 beyond the bound."""
        found = latency(rate)
        if found <= slo.seconds:
            kept.append(rate)
        return math.log(found / slo.seconds)

    # disp: where latency jumps it may come no nearer, and what kept within the bound stands
    brentq(lateness, low, most, xtol=1e-12 * most, rtol=_EXACT, disp=False)
    return max(kept)


def with_sustained(taken: Slice, slo: Slo | None) -> Slice:
    """Return a slice with the rate that its calls predict, if they predict one."""
    served = taken.served
    if served is None or served.offered or slo is None:
        return taken
    rate = _in_closed_loop(taken, slo) if served.levels else sustained(
        served.batching, service_times(taken), slo
    )  # fmt: skip
    return msgspec.structs.replace(taken, served=msgspec.structs.replace(served, sustained=rate))


def misses_when_idle(taken: Slice) -> bool:
    """Tell whether a slice lets expect that even single requests take longer than the bound."""
    served = taken.served
    if served is None or not served.sustained:
        return False
    return served.sustained <= IDLE * most_answered(taken)


def _in_closed_loop(taken: Slice, slo: Slo) -> float:
    """Return the rate that a user's own server may sustain.

    How it combines requests is its own, so that no queue can be simulated. If even single requests
    exceed the bound, the value only ranks, as in `sustained`.
    """
    assert taken.served is not None
    rate = crossing(taken, slo)
    if rate is not None:
        return rate / (1.0 if slo.trace is None else max(1.0, rush(slo.trace)))
    alone_s = percentile(taken.served.levels[0].took_s, slo.quantile)
    return IDLE * most_answered(taken) * slo.seconds / alone_s


def _latency(
    batching: Batching, service_s: Mapping[int, Sequence[float]], slo: Slo, rate: float
) -> float:
    arrivals: list[float] = (_arrivals(slo.trace) / rate).tolist()
    return percentile(waited(batching, service_s, arrivals), slo.quantile)


def waited(
    batching: Batching, service_s: Mapping[int, Sequence[float]], arrivals: Sequence[float]
) -> list[float]:
    """Return the seconds from each arrival, in their order, until its answer."""
    n, largest, wait_s = len(arrivals), batching.largest, batching.wait_s
    times_of = [service_s[batching.padded(max(1, size))] for size in range(largest + 1)]
    drawn = np.random.default_rng(0).random(n).tolist()
    free = [0.0] * batching.n_servers
    ends, sizes = list[float](), list[int]()
    first = 0
    while first < n:
        start = max(free[0], arrivals[first])
        if wait_s:
            last = first + largest - 1
            full = arrivals[last] if last < n else math.inf
            start = max(start, min(full, arrivals[first] + wait_s))
        here = bisect_right(arrivals, start, first + 1, min(n, first + largest))
        times = times_of[here - first]
        end = start + times[int(drawn[first] * len(times))]
        heapreplace(free, end)
        ends.append(end)
        sizes.append(here - first)
        first = here
    found: list[float] = (np.repeat(ends, sizes) - arrivals).tolist()
    return found


@functools.cache
def _arrivals(trace: Trace | None) -> npt.NDArray[np.float64]:
    """Return moments at a rate of 1: the same for all, so that none is lucky."""
    if trace is not None:
        return np.array(tuned_by(trace))
    return np.cumsum(np.random.default_rng(1).exponential(size=_N_REQUESTS))
