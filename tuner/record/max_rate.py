"""The maximum rate at which a server keeps within a latency bound, from trials at several rates.

Latencies rise with the rate, noise aside. The trials are made monotone (pool-adjacent-violators, as
in isotonic regression). The maximum rate is where the line through them, in logarithms, crosses the
bound.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuner.record.launch import Slice, percentile
from tuner.record.load import Batching, Slo

_CLIFF = 3.0
"""Factor by which the latency rises over a cliff, from the last rate within the bound to the first
beyond: the line between the two then says little about the rates in between."""
_LEAST_TRIALS, _MOST_TRIALS = 5, 10
_WIDE = 1.3
"""Between the rates while the edge lies outside of them."""
_NARROW = 1.08
"""Ratio of the rates on both sides of the bound at which it is known well enough: launches scatter
by more."""


class Trial(NamedTuple):
    """Requests that were sent at a rate, whatever became of the ones before."""

    rate: float
    """Requests per second."""
    latency_s: float
    """At the quantile of the bound."""
    n_requests: int


class Edge(NamedTuple):
    """The rate at which a server's latency crosses the bound."""

    rate: float
    """Requests per second; 0 if no trial met the bound."""
    low: float
    """The highest rate, of those made monotone, that kept within; 0 if none did."""
    high: float
    """The lowest that did not; infinite if all did."""
    is_cliff: bool
    """Whether latencies jump there: a little more load, and the queue runs away."""


def edge_of(trials: Sequence[Trial], bound_s: float) -> Edge:
    """Return the edge between trials, at least one."""
    from scipy.optimize import isotonic_regression  # no --help waits for it

    ordered = sorted(trials)
    rates = [trial.rate for trial in ordered]
    over = [math.log(trial.latency_s / bound_s) for trial in ordered]
    weights = [float(trial.n_requests) for trial in ordered]
    fitted = [float(each) for each in isotonic_regression(over, weights=weights).x]
    met = [i for i, each in enumerate(fitted) if each <= 0]
    if not met:
        return Edge(0.0, 0.0, rates[0], is_cliff=False)
    last = met[-1]
    if last == len(rates) - 1:
        return Edge(rates[last], rates[last], math.inf, is_cliff=False)
    (below, above), (low, high) = fitted[last : last + 2], rates[last : last + 2]
    crossing = low * (high / low) ** (-below / (above - below))
    return Edge(crossing, low, high, above - below > math.log(_CLIFF))


def next_rate(
    trials: Sequence[Trial], bound_s: float, *, start: float, least: float
) -> float | None:
    """Return the most informative rate for the next trial; None if the maximum is known.

    Outwards until the maximum lies between two rates, then between them. start: the expected rate.
    least: the rate below which no server is useful.
    """
    if not trials:
        return start
    if len(trials) >= _MOST_TRIALS:
        return None
    edge = edge_of(trials, bound_s)
    if not edge.rate:
        return None if is_lowest(edge.high, least) else max(least, edge.high / _WIDE)
    if math.isinf(edge.high):
        return edge.low * _WIDE
    if edge.high / edge.low > _NARROW:
        return math.sqrt(edge.low * edge.high)
    if len(trials) < _LEAST_TRIALS:
        return edge.rate
    return None


def is_lowest(rate: float, least: float) -> bool:
    """Tell whether a trial at a rate leaves no lower rate worth trying."""
    return bool(rate <= least * _WIDE**0.5)


def service_times(taken: Slice) -> dict[int, list[float]]:
    """Return the seconds of calls, by their size, of a slice in which sizes were called in turn."""
    assert taken.served is not None
    sizes, n_shapes = taken.served.batching.sizes, taken.served.n_shapes
    calls = taken.call_s
    found: dict[int, list[float]] = {}
    for i, size in enumerate(sizes):
        own = [calls[k :: len(sizes) * n_shapes] for k in range(i * n_shapes, (i + 1) * n_shapes)]
        found[size] = [seconds for each in own for seconds in each]
    return found


def capacity(batching: Batching, service_s: Mapping[int, Sequence[float]]) -> float:
    """Return the requests per second that the servers answer when never idle, at the best size."""
    best = max(size / statistics.fmean(service_s[size]) for size in batching.sizes)
    return batching.n_servers * best


def most_answered(taken: Slice) -> float:
    """Return the requests per second that the servers of a slice answer when never idle."""
    assert taken.served is not None
    if taken.served.levels:
        return max(level.rate for level in taken.served.levels)
    return capacity(taken.served.batching, service_times(taken))


def alone_s(taken: Slice) -> float:
    """Return the median seconds of a request that waits for no other."""
    assert taken.served is not None
    if taken.served.levels:
        return statistics.median(taken.served.levels[0].took_s)
    return statistics.median(min(service_times(taken).items())[1])


def crossing(taken: Slice, slo: Slo) -> float | None:
    """Return the rate at which callers in a closed loop wait as long as the bound allows.

    Interpolated between the last number of callers within the bound and the next. The highest rate
    if all are within it, None if a single caller is not.
    """
    assert taken.served is not None
    waited = [
        (level.rate, percentile(level.took_s, slo.quantile) / slo.seconds)
        for level in taken.served.levels
    ]
    n_within = next((i for i, (_, over) in enumerate(waited) if over > 1), len(waited))
    if n_within in (0, len(waited)):
        return most_answered(taken) if n_within else None
    (low, below), (high, above) = waited[n_within - 1 : n_within + 1]
    return float(low * (high / low) ** (-math.log(below) / math.log(above / below)))
