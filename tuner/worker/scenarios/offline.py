"""Offline: batch after batch, as fast as the model takes them.

Where inputs have several shapes, a batch of each makes one round, which is timed as a whole: items
per second are those of the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.host.interference import Watch
from tuner.record.protocol import Measured
from tuner.worker.company import Company
from tuner.worker.scenarios.timing import Call, WarmUp, in_turn, take_slice, until_steady


def warm_up(calls: Sequence[Call], clock: Callable[[], float]) -> WarmUp:
    """Make rounds until they are steady."""
    return until_steady(in_turn(calls), clock)


def measure(
    calls: Sequence[Call],
    clock: Callable[[], float],
    watch: Watch,
    *,
    index: int,
    batch: int,
    seconds: float,
    company: Company | None = None,
) -> Measured:
    """Time whole rounds for at least `seconds`."""
    return take_slice(
        [in_turn(calls)],
        clock,
        watch,
        index=index,
        batch=batch,
        seconds=seconds,
        batches_per_request=len(calls),
        company=company,
    )
