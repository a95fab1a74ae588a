"""Single-stream: one caller sends one sample, waits for the answer, and sends the next.

Where inputs have several shapes they arrive in turn, in whole rounds, so that every slice holds the
same mixture; each request is timed by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.host.interference import Watch
from tuner.record.protocol import Measured
from tuner.worker.company import Company
from tuner.worker.scenarios.timing import Call, WarmUp, in_turn, take_slice, until_steady


def warm_up(calls: Sequence[Call], clock: Callable[[], float]) -> WarmUp:
    """Send rounds of requests until they are steady."""
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
    """Time each request of whole rounds, for at least `seconds`."""
    return take_slice(
        calls, clock, watch, index=index, batch=batch, seconds=seconds, company=company
    )
