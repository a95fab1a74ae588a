"""As many processes as CPUs, each of which computes on one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""One BLAS thread: more would take turns."""


@contextmanager
def processes(
    environment: Mapping[str, str] = ONE_THREAD, most: int | None = None
) -> Iterator[ProcessPoolExecutor]:
    """Start a process for each CPU, at most so many, with variables of their own.

    Fresh ones, which read these variables when they import numpy.
    """
    before = dict(os.environ)
    n_cpus = len(os.sched_getaffinity(0))
    os.environ |= environment
    fresh = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(n_cpus, most or n_cpus), fresh) as pool:
            yield pool
    finally:
        for name in environment:
            os.environ.pop(name)
        os.environ |= {name: before[name] for name in environment if name in before}
