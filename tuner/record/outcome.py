"""How a trial or a launch ended: an enum with a reason, never a number."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """Every way in which a trial or launch can end."""

    MEASURED = "measured"
    PRUNED = "pruned"
    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    WRONG_OUTPUT = "wrong_output"
    NOT_APPLICABLE = "not_applicable"
    OVER_BOUND = "over_bound"
    """It was measured, and its launches together exceed a bound of the user."""
    INTERRUPTED = "interrupted"
    """The tool itself was stopped; says nothing about the configuration."""


def counts_as_measured(outcome: Outcome) -> bool:
    """Tell whether a launch showed its speed, even if only that it is far from the best."""
    return outcome in (Outcome.MEASURED, Outcome.PRUNED)


class Ending(msgspec.Struct, frozen=True):
    """An outcome with its reason (empty if it was measured)."""

    outcome: Outcome
    reason: str = ""
