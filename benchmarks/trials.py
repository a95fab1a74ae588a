"""By how much is a server's rate too high because it was tried for seconds?

    python -m benchmarks.trials

A trial begins with an empty line and holds a few hundred requests: rushes that come once in
thousands are seldom among them. By simulation, without a model: of servers of several speeds (one
instance, service times that do not vary, random arrivals), the rate at which half of all trials as
long as a study's keep p99 within the bound, over the rate at which trials of 40,000 requests do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np

from tuner.measurement.arrival_plan import n_requests
from tuner.measurement.queueing import waited
from tuner.record.launch import percentile
from tuner.record.load import Batching, Slo
from tuner.record.max_rate import capacity

LONG, N_LONG, N_TRIALS = 40_000, 3, 41
N_HALVED = 12
SERVERS = {
    "8 ms, 22 ms for 4, within 250 ms": ({1: [0.008], 2: [0.013], 4: [0.022]}, 0.25),
    "22 ms, 80 ms for 4, within 250 ms": ({1: [0.022], 2: [0.041], 4: [0.080]}, 0.25),
    "50 ms, 160 ms for 4, within 300 ms": ({1: [0.050], 2: [0.090], 4: [0.160]}, 0.3),
    "20 ms, one by one, within 100 ms": ({1: [0.020]}, 0.1),
    "2 ms, one by one, within 10 ms": ({1: [0.002]}, 0.01),
}


def late_s(service_s: dict[int, list[float]], slo: Slo, rate: float, n: int, n_runs: int) -> float:
    """Return the median over runs of n requests each of the latency at the quantile."""
    batching = Batching(tuple(service_s))
    found = []
    for seed in range(n_runs):
        due = np.cumsum(np.random.default_rng(seed).exponential(size=n)) / rate
        found.append(percentile(waited(batching, service_s, due.tolist()), slo.quantile))
    return statistics.median(found)


def highest(
    service_s: dict[int, list[float]], slo: Slo, n_of: Callable[[float], int], n_runs: int
) -> float:
    """Return the highest rate within the bound, by halving; never above what can be answered.

    n_of: the requests of a run at a rate.
    """
    most = capacity(Batching(tuple(service_s)), service_s)
    low, high = 0.05 * most, most
    for _ in range(N_HALVED):
        rate = math.sqrt(low * high)
        is_late = late_s(service_s, slo, rate, n_of(rate), n_runs) > slo.seconds
        low, high = (low, rate) if is_late else (rate, high)
    return low


def main() -> None:
    """Print each server's."""
    for name, (service_s, bound_s) in SERVERS.items():
        slo = Slo(0.99, bound_s, "")
        long = highest(service_s, slo, lambda _: LONG, N_LONG)
        told = highest(service_s, slo, partial(n_requests, slo=slo), N_TRIALS)
        print(
            f"{name}: in trials of {n_requests(told, slo)} {told:.1f}/s, in long ones "
            f"{long:.1f}/s: {told / long:.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
