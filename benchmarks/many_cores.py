"""What preparing launches side by side would save on more cores than this host has: a model.

A launch's preparation is work that only one core can do and work that spreads over all cores
(Amdahl 1967). Both follow from its seconds of the wall clock and of the processors, alone on this
host. Side by side, launches that together ask for more cores than there are get their shares of
them. Memory, its bandwidth and the disk are not in it.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import NamedTuple

import psutil


class Work(NamedTuple):
    """Seconds of one core that a preparation takes."""

    serial_s: float
    parallel_s: float

    def alone_s(self, n_cores: int) -> float:
        """Return its seconds of the wall clock with nothing beside it."""
        return self.serial_s + self.parallel_s / n_cores

    def width(self, n_cores: int) -> float:
        """Return how many cores it keeps busy then, in the mean."""
        return (self.serial_s + self.parallel_s) / self.alone_s(n_cores)


def work_of(wall_s: float, cpu_s: float, n_cores: int) -> Work:
    """Split what a preparation took alone on so many cores, at least two.

    Time in which nothing computed counts as serial: other launches could have used it, though.
    """
    parallel_s = max(0.0, (cpu_s - wall_s) * n_cores / (n_cores - 1))
    return Work(max(0.0, wall_s - parallel_s / n_cores), parallel_s)


def together_s(works: Sequence[Work], n_cores: int) -> float:
    """Return the seconds until the last of them is prepared, all begun at once."""
    left = sorted((work.alone_s(n_cores), work.width(n_cores)) for work in works)
    elapsed = done = 0.0
    while left:
        next_s = left[0][0] - done
        wanted = sum(width for _, width in left)
        elapsed += next_s * max(1.0, wanted / n_cores)
        done += next_s
        left = [each for each in left if each[0] > done]
    return elapsed


def in_groups_s(works: Sequence[Work], n_cores: int) -> float:
    """Return the seconds of preparing a list, as many side by side as there are cores."""
    groups = [works[n : n + n_cores] for n in range(0, len(works), n_cores)]
    return sum(together_s(group, n_cores) for group in groups)


def children_cpu_s() -> float:
    """Return the processor seconds of all that this process has started, the ended ones included.

    Those that live on count with the children that they have waited for.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total
