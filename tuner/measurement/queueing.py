"""A server's queue, simulated from measured service times: the rate that it sustains.

Requests arrive at random (Poisson), or as in the first half of a trace, and wait in one queue for
as many servers as there are instances. A free server takes the waiting requests, up to a batch. If
it may wait for more, it waits until the batch is full or until the oldest request has waited long
enough. A batch is padded to the next size that the model was prepared for. Service times are drawn
from the measured ones. Inputs of several shapes are treated as if a batch could hold all of them.

The simulation ranks configurations (benchmarks/serving.py measures how well). Claims rest on real
arrivals; where these agree with a longer simulation, it takes the luck of the arrivals out
(server_rate.py).
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from heapq import heapreplace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from tuner.record.arrivals import at_random
from tuner.record.launch import Slice, percentile
from tuner.record.load import Batching, Slo, Trace
from tuner.record.service_times import capacity, crossing, most_answered, service_times
from tuner.record.trace import rush, tuned_by

_N_REQUESTS = 2000
"""Requests of a simulation."""
_EXACT = 0.003
"""How closely the rate is found, as a share of it."""
_USUAL = 0.05
"""Share of its capacity that a server has at least, if the bound is of any use."""
_N_LATE, _MOST_LONG = 1200, 400_000
"""Late requests of a simulation of the long run, and requests at most: the rate of one is known to
0.5 to 0.8 % (p99)."""
_LOWER, _HIGHER = 0.25, 0.1
"""Distances (log) between the rate of the short simulation and those between which it is sought."""
_CLOSE = 0.002
"""How closely (log) it is sought."""
_LEAST_SLOPE, _MOST_SLOPE = 1.0, 60.0
"""Between which slopes of the late share lie that a simulation of that length can show."""
_APART = 0.02
"""Half the distance (log) of the rates between which the slope is taken."""
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


class LongRun(NamedTuple):
    """The rate that a server keeps for good, by simulation."""

    rate: float
    """Requests per second at which as many are late as the bound allows."""
    slope: float
    """Relative increase of the share of late requests by that of the rate, there."""


def long_run(
    batching: Batching,
    service_s: Mapping[int, Sequence[float]],
    slo: Slo,
    guess: float,
    seed: int = 0,
) -> LongRun | None:
    """Simulate enough random arrivals for the share of late ones; guess: the rate, about.

    `sustained` simulates too few: near a server's capacity it is 5 % too high. None if too many are
    late even of an idle server. seed: another one for each round, so that the error of the
    simulation is part of the scatter of rounds, and the same for the arms of a round.
    """
    n = min(_MOST_LONG, round(_N_LATE / slo.allowed))
    moments = at_random(seed, n)

    @functools.cache
    def excess(log_rate: float) -> float:
        """Return the logarithm of the late share over the allowed one."""
        waited_s = waited(batching, service_s, moments / math.exp(log_rate), seed)
        n_late = sum(each > slo.seconds for each in waited_s)
        return math.log(max(0.5, n_late) / (n * slo.allowed))

    lowest = math.log(IDLE * capacity(batching, service_s))
    low, high = math.log(guess) - _LOWER, math.log(guess) + _HIGHER
    while excess(low) > 0:
        if low < lowest:
            return None
        low, high = low - _LOWER, low
    log_rate = high if excess(high) < 0 else brentq(excess, low, high, xtol=_CLOSE, disp=False)
    slope = (excess(log_rate + _APART) - excess(log_rate - _APART)) / (2 * _APART)
    return LongRun(math.exp(log_rate), min(max(slope, _LEAST_SLOPE), _MOST_SLOPE))


def with_sustained(taken: Slice, slo: Slo | None, *, round_number: int = 0) -> Slice:
    """Return a slice with the rate that its calls predict, if they predict one.

    round_number: of a round, with the rate in the long run too, which takes a second; 0: in none.
    """
    served = taken.served
    if served is None or served.offered or slo is None:
        return taken
    if served.levels:
        rate = _in_closed_loop(taken, slo)
        return msgspec.structs.replace(
            taken, served=msgspec.structs.replace(served, sustained=rate)
        )
    service_s = service_times(taken)
    rate = sustained(served.batching, service_s, slo)
    served = msgspec.structs.replace(served, sustained=rate)
    found = msgspec.structs.replace(taken, served=served)
    if not round_number or slo.trace is not None or misses_when_idle(found):
        return found
    long = long_run(served.batching, service_s, slo, rate, round_number)
    if long is None:
        return found
    served = msgspec.structs.replace(served, long_run=long.rate, slope=long.slope)
    return msgspec.structs.replace(taken, served=served)


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
    return percentile(waited(batching, service_s, _arrivals(slo.trace) / rate), slo.quantile)


def waited(
    batching: Batching,
    service_s: Mapping[int, Sequence[float]],
    arrivals: npt.NDArray[np.float64],
    seed: int = 0,
) -> list[float]:
    """Return the seconds from each arrival, in their order, until its answer.

    seed: of the service times.
    """
    n, largest, wait_s = len(arrivals), batching.largest, batching.wait_s
    times_of = [service_s[batching.padded(max(1, size))] for size in range(largest + 1)]
    draws = np.random.default_rng((seed, 2)).random(n)  # not the arrivals' own stream
    if largest == batching.n_servers == 1:
        return _one_by_one(times_of[1], draws, arrivals)
    drawn, due = draws.tolist(), arrivals.tolist()
    free = [0.0] * batching.n_servers
    ends, sizes = list[float](), list[int]()
    first = 0
    while first < n:
        start = max(free[0], due[first])
        if wait_s:
            last = first + largest - 1
            full = due[last] if last < n else math.inf
            start = max(start, min(full, due[first] + wait_s))
        here = bisect_right(due, start, first + 1, min(n, first + largest))
        times = times_of[here - first]
        end = start + times[int(drawn[first] * len(times))]
        heapreplace(free, end)
        ends.append(end)
        sizes.append(here - first)
        first = here
    found: list[float] = (np.repeat(ends, sizes) - arrivals).tolist()
    return found


def _one_by_one(
    times_s: Sequence[float], draws: npt.NDArray[np.float64], arrivals: npt.NDArray[np.float64]
) -> list[float]:
    """Return the same of one server without batches, for which there is a formula (Lindley)."""
    service_s = np.asarray(times_s)[(draws * len(times_s)).astype(int)]
    ends_s = np.cumsum(service_s)
    begins_s = np.maximum.accumulate(arrivals - ends_s + service_s)
    found: list[float] = (begins_s + ends_s - arrivals).tolist()
    return found


@functools.cache
def _arrivals(trace: Trace | None) -> npt.NDArray[np.float64]:
    """Return moments at a rate of 1: the same for all, so that none is lucky."""
    if trace is not None:
        return np.array(tuned_by(trace))
    return at_random(1, _N_REQUESTS)
