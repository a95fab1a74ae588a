"""How a worker serves its model: one file and one entry per scenario of tuner/record/load.py.

A scenario is made of the load, the model's calls and the framework's work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tuner.host.interference import Watch
from tuner.record.launch import Slice
from tuner.record.load import Load
from tuner.record.protocol import Measure
from tuner.worker.frameworks import Work
from tuner.worker.instance_barrier import InstanceBarrier
from tuner.worker.scenarios import concurrent, offline, server, single_stream
from tuner.worker.scenarios.timing import Calls, WarmUp


class Scenario(Protocol):
    """How requests follow one another, what is timed as one, and what is stored."""

    def warm_up(self) -> WarmUp:
        """Make requests until they are steady."""

    def measure(
        self, order: Measure, watch: Watch, company: InstanceBarrier | None
    ) -> Slice | None:
        """Time whole requests for at least the requested time; None if none came.

        company: the other instances, with which this one begins and ends its work.
        """


MakeScenario = Callable[[Load, Calls, Work], Scenario]
SCENARIOS: dict[str, MakeScenario] = {
    "offline": offline.serve,
    "single-stream": single_stream.serve,
    "multi-stream": single_stream.serve,  # at another batch: the samples of a request are one
    "concurrent": concurrent.serve,
    "server": server.serve,
    "training": offline.serve,  # its calls are steps
}
