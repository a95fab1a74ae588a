"""Single-stream: one caller sends one sample, waits for the answer, and sends the next.

Where inputs have several shapes they arrive in turn, in whole rounds, so that every slice holds the
same mixture; each request is timed by itself.
"""

from __future__ import annotations

from tuner.record.load import Load
from tuner.worker.frameworks import Work
from tuner.worker.scenarios.timing import BackToBack, Calls, Requests


def serve(load: Load, calls: Calls, work: Work) -> BackToBack:
    """Return the scenario, with a request for each shape."""
    return BackToBack(Requests(calls[load.batch], batches=1), load, work)
