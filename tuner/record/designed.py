"""What the designed part of a study found, as its result keeps it."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Value


class DesignedCell(msgspec.Struct, frozen=True):
    """A combination of the designed part (space/design.py)."""

    number: int
    factors: list[str]
    """Those that are set in it."""
    configuration: dict[str, Value]
    dead_settings: list[str]
    """Settings of it that have no effect beside the others, with the reason."""
    same_as: int | None
    """The cell that was measured in its place, as it has the same effect; 0 for the default."""
    outcome: str | None
    """None where it was not launched."""
    reason: str
    log_ratio: float | None
    """Logarithm of how much faster than the default of its own round it was."""
    n_passes: int
    """In which both took a slice, that this rests on."""


class DesignedSection(msgspec.Struct, frozen=True):
    """A fixed fraction of the main settings' combinations, measured before anything was seen."""

    cells: list[DesignedCell]
    left_out: dict[str, str]
    """Factors that cannot be set here at all, with the reason."""
