"""Single-stream: one caller sends one sample, waits for the answer, and sends the next.

Where inputs have several shapes they arrive in turn, in whole rounds, so that every slice holds the
same mixture; each request is timed by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.worker.scenarios.timing import BackToBack, Call, Requests


def requests(calls: Sequence[Call]) -> Requests:
    """Return a request for each shape."""
    return Requests(calls, batches=1)


SINGLE_STREAM = BackToBack(requests)
