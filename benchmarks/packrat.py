"""Packrat's choice of instances, threads and batch: a baseline for guidelines.

arXiv:2311.18174 (Bhardwaj and others): profile one instance for each number of threads and each
batch; a host's instances then do as that instance did, and dynamic programming divides the cores
among them. Our own reading of the abstract's method, for throughput; what instances cost each other
(memory bandwidth, caches) is left out there as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.record.configuration import Configuration
from tuner.space.knobs_of.launch import BATCH, CORES_PER_INSTANCE, INSTANCES
from tuner.space.space import Space


def profiled(n_cores: int, batches: Sequence[int]) -> list[tuple[int, int]]:
    """Return (threads, batch) of the instances to profile: powers of two, and all cores."""
    threads = sorted({*(2**i for i in range(n_cores.bit_length()) if 2**i <= n_cores), n_cores})
    return [(t, b) for t in threads for b in batches]


def one_instance(space: Space, threads: int, batch: int) -> Configuration:
    """Return one instance on so many cores of its own, and as many threads by default."""
    return space.canonical({INSTANCES: 1, CORES_PER_INSTANCE: threads, BATCH: batch})


def divide(n_cores: int, rates: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Return the instances, as (threads, batch), whose rates add up to the most on so many cores.

    rates: items per second of one instance, by (threads, batch).
    """
    best: list[tuple[float, list[tuple[int, int]]]] = [(0.0, [])]
    for cores in range(1, n_cores + 1):
        options = [best[cores - 1]]
        for (threads, batch), rate in rates.items():
            if threads <= cores:
                total, chosen = best[cores - threads]
                options.append((total + rate, [*chosen, (threads, batch)]))
        best.append(max(options, key=lambda option: option[0]))
    return best[n_cores][1]


def team(space: Space, instances: Sequence[tuple[int, int]]) -> Configuration:
    """Return the configuration of some instances; all alike, as the most frequent of them.

    What this tool can start has instances of one kind.
    """
    if not instances:  # none of those that were profiled ran
        return Configuration()
    threads, batch = max(set(instances), key=list(instances).count)
    n = sum(each == (threads, batch) for each in instances)
    return space.canonical({INSTANCES: n, CORES_PER_INSTANCE: threads, BATCH: batch})
