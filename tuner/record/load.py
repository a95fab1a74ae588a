"""How work arrives at a model: the scenarios of MLPerf's inference rules that a study may ask for.

A scenario is an entry in SCENARIOS, which says what the tool must know, and a file of
tuner/worker/scenarios/, which makes its calls in the measured process.
"""

from __future__ import annotations

import msgspec


class Scenario(msgspec.Struct, frozen=True):
    """What a scenario means for what is searched and how it is judged."""

    summary: str
    metric: str
    """By which configurations are compared (tuner/record/objective.py), unless the goal has one of
    its own."""
    batch: int | None = None
    """Samples in a request; None: as many as serve best, so that the batch is a knob."""
    one_caller: bool = False
    """Whether a request is sent only when the one before is answered: a second instance would
    idle."""
    bears_programs: bool = False
    """Whether a program that times itself (--command) can be measured under it."""


OFFLINE = "offline"
SCENARIOS = {
    OFFLINE: Scenario(
        "all samples are there: batch after batch, by items per second",
        "throughput",
        bears_programs=True,
    ),
    "single-stream": Scenario(
        "one caller, one sample at a time, by the 90th percentile of the latency",
        "latency_p90",
        batch=1,
        one_caller=True,
    ),
}


class Load(msgspec.Struct, frozen=True):
    """The work that is offered to a launch."""

    scenario: str
    batch: int
    """Samples in a call."""
