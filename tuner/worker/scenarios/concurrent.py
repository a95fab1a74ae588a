"""Concurrent: several callers, threads of one process, each sends the next when it is answered.

A web server's threads, all calling one model: a parallel region of each caller may take threads of
its own, so that callers who are many stand in each other's way.
"""

from __future__ import annotations

from tuner.record.load import Load
from tuner.worker.frameworks import Work
from tuner.worker.scenarios.callers import Threads
from tuner.worker.scenarios.timing import BackToBack, Calls, Requests


def serve(load: Load, calls: Calls, work: Work) -> BackToBack:
    """Return the scenario, whose callers live as long as the launch."""
    requests = Requests(calls[load.batch], batches=1)
    return BackToBack(requests, load, work, Threads(load.callers, work.running))
