"""A synthetic busy neighbour, which shows how configurations perform under contention."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.host.environment import untuned
from tuner.host.identity import Host
from tuner.launchers.supervised import Supervised

_START_S = 10.0
"""Its processes are given up if they do not work by then."""


def n_neighbours(host: Host) -> int:
    """Return how many busy processes the neighbour has: for half of the CPU time allowed here."""
    return max(1, int(min(len(host.cpus), host.limits.quota_cores or len(host.cpus)) // 2))


@contextmanager
def neighbour(n_processes: int, log: Path) -> Iterator[bool]:
    """Keep `n_processes` busy on the allowed CPUs, until the block ends or the tool does.

    Yields whether all of them work; each says so in the log.
    """
    log.write_bytes(b"")
    process = Supervised(("-m", "tuner.worker.busy", str(n_processes)), untuned(os.environ), log)
    try:
        deadline = time.monotonic() + _START_S
        while log.read_bytes().count(b"busy\n") < n_processes and time.monotonic() < deadline:
            time.sleep(0.02)
        yield log.read_bytes().count(b"busy\n") == n_processes
    finally:
        process.close()
