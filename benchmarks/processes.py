"""As many processes as CPUs, each of which computes on one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def processes() -> Iterator[ProcessPoolExecutor]:
    """Start a process for each CPU, with one BLAS thread: more would take turns.

    Fresh ones, which read these variables when they import numpy.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), fresh) as pool:
        yield pool
