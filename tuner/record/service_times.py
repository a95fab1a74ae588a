"""What a server answers, by slices to which no requests arrived: its times and its capacity."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from tuner.record.launch import Slice, percentile
from tuner.record.load import Batching, Slo


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
