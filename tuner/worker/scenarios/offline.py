"""Offline: batch after batch, as fast as the model takes them.

If inputs have several shapes, a batch of each makes one round, which is timed as a whole: items per
second are those of the mixture.
"""

from __future__ import annotations

from tuner.record.load import Load
from tuner.worker.frameworks import Work
from tuner.worker.scenarios.timing import BackToBack, Calls, Requests, in_turn


def serve(load: Load, calls: Calls, work: Work) -> BackToBack:
    """Return the scenario, in which one request is made again and again."""
    own = calls[load.batch]
    return BackToBack(Requests([in_turn(own)], batches=len(own)), load, work)
