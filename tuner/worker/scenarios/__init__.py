"""How a worker serves its model: one file and one entry per scenario of tuner/record/load.py.

A scenario gets the model's calls, one per shape of its inputs, and the clock of the framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tuner.host.interference import Watch
from tuner.record.protocol import Measured
from tuner.worker.company import Company
from tuner.worker.scenarios.offline import OFFLINE
from tuner.worker.scenarios.single_stream import SINGLE_STREAM
from tuner.worker.scenarios.timing import Call, WarmUp


class Scenario(Protocol):
    """How requests follow one another, what is timed as one, and what is kept of it."""

    def warm_up(self, calls: Sequence[Call], clock: Callable[[], float]) -> WarmUp:
        """Make requests until they are steady."""

    def measure(
        self,
        calls: Sequence[Call],
        clock: Callable[[], float],
        watch: Watch,
        *,
        index: int,
        batch: int,
        seconds: float,
        company: Company | None = None,
    ) -> Measured:
        """Time whole requests for at least `seconds`.

        index, batch: of the slice. company: the other instances of a team, with which this one
        begins and ends its work.
        """


SCENARIOS: dict[str, Scenario] = {"offline": OFFLINE, "single-stream": SINGLE_STREAM}
