"""When a noise floor is too high to be printed, and what is printed instead."""

from __future__ import annotations

TOO_HIGH = 0.5
"""A noise floor above this is no figure to compare a speedup with: few speedups are as large."""
TOO_NOISY = "the host was too noisy for a verdict"
_NOISY = 0.1
"""SD of a launch's log rate: five times that of a quiet shared host. Where launches differ by less,
a floor that is too high comes from too few rounds."""
MOSTLY_DISTURBED = 1 / 3
"""Of the slices: where more were disturbed, the search alone proves nothing, and a headline that
rests on them says so."""


def is_too_noisy(floor: float, launch_sd: float | None, *, is_served: bool) -> bool:
    """Tell whether the host, and not the small number of rounds, makes a noise floor useless.

    is_served: rates rest on a few late requests, which differ from launch to launch on any host.
    """
    return floor > TOO_HIGH and not is_served and (launch_sd is None or launch_sd > _NOISY)


def floor_in_words(floor: float, launch_sd: float | None, *, is_served: bool) -> str:
    """Write a noise floor; if it is too high to mean anything, the reason."""
    if floor <= TOO_HIGH:
        return f"{floor:.1%}"
    is_noisy = is_too_noisy(floor, launch_sd, is_served=is_served)
    why = "the host was too noisy" if is_noisy else "too few rounds"
    return f"not known: {why}"
