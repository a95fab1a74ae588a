"""The clock by which a budget is counted: the host's, or a virtual one that launches advance."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the seconds since some moment; they never go back."""

    @property
    def writing_s(self) -> float:
        """Seconds that it takes to write a study's report, by this clock."""

    def now_s(self) -> float:
        """Return the seconds that have passed."""

    def began_s(self) -> float:
        """Return the time at which the command was given; now, if it is unknown."""


class WallClock:
    """The host's monotonic clock: a step of the date changes nothing."""

    writing_s = 3.0  # 2.5 s of one core, most of it for the figures

    def __init__(self) -> None:
        self._began_s: float | None = None

    def now_s(self) -> float:
        return time.monotonic()

    def began_s(self) -> float:
        return self.now_s() if self._began_s is None else self._began_s

    def count_from(self, began_s: float) -> None:
        """Have a budget counted from a moment that has passed: imports are of it, too."""
        self._began_s = began_s


class VirtualClock:
    """A clock that stands still until it is advanced: the same on every host, at every load."""

    writing_s = 0.0

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def began_s(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds


WALL_CLOCK = WallClock()
