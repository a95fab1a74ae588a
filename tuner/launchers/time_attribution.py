"""Seconds that several launches spent side by side, shared out among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.launchers.clock import Clock


def share_out(
    charge: Sequence[Callable[[float], None]], clock: Clock
) -> Callable[[Sequence[int]], None]:
    """Return a function that charges launches for the time since its last call.

    Its argument lists the launches (indices into `charge`) that worked meanwhile. Seconds in which
    three worked count a third for each, so that the charges sum up to the clock's seconds.
    """
    since = clock.now_s()

    def passed(going: Sequence[int]) -> None:
        nonlocal since
        now = clock.now_s()
        for i in going:
            charge[i]((now - since) / len(going))
        since = now

    return passed
