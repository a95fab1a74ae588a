"""Offline: batch after batch, as fast as the model takes them.

Where inputs have several shapes, a batch of each makes one round, which is timed as a whole: items
per second are those of the mixture.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.worker.scenarios.timing import BackToBack, Call, Requests, in_turn


def requests(calls: Sequence[Call]) -> Requests:
    """Return the one request that offline makes again and again."""
    return Requests([in_turn(calls)], batches=len(calls))


OFFLINE = BackToBack(requests)
