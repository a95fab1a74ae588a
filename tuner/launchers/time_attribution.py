"""Seconds that several launches spent side by side, shared out among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.launchers.clock import WALL_CLOCK, Clock


def share_out(
    charge: Sequence[Callable[[float], None]], clock: Clock = WALL_CLOCK
) -> Callable[[Sequence[int]], None]:
    """Return what charges conversations for the time that passes, whenever it is called.

    It is told which of them went on meanwhile: seconds in which three did count a third for each,
    so that they sum up to the wall clock's.
    """
    since = clock.now_s()

    def passed(going: Sequence[int]) -> None:
        nonlocal since
        now = clock.now_s()
        for i in going:
            charge[i]((now - since) / len(going))
        since = now

    return passed
