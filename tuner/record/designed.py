"""The designed part of a study, as its result stores it."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Value


class DesignedCell(msgspec.Struct, frozen=True):
    """A combination of the designed part (space/design.py)."""

    number: int
    factors: list[str]
    """The factors that are set in it and have an effect with the others."""
    configuration: dict[str, Value]
    idle: list[str]
    """Factors that are set in it and change nothing there."""
    same_as: int | None
    """The cell that was measured in its place, as it has the same effect; 0 for the default."""
    outcome: str | None
    """None if it was not launched."""
    reason: str
    log_ratio: float | None
    """Logarithm of how much faster than the default of its own round it was."""
    n_passes: int
    """Slices of each that this rests on."""
    round: int | None
    """Cells of one round share their default's launch; None if it was not launched."""


class DesignedSection(msgspec.Struct, frozen=True):
    """A fixed fraction of the main settings' combinations, measured before anything was seen."""

    cells: list[DesignedCell]
    left_out: dict[str, str]
    """Factors that cannot be set here at all, with the reason."""
    pairs: list[tuple[str, str]] = []
    """Factors that are known to interact, separable from everything else in the design."""
    default_call_s: float | None = None
    """Seconds of a call of the default at the reference batch, the median over its slices."""
