"""Ask about knobs: whether one exists, what it is, which winner class it needs."""

from __future__ import annotations

import functools

from tuner.record.configuration import VARIABLE_NAME, Configuration
from tuner.record.journal import WinnerClass
from tuner.space.catalogue import BATCH, KNOBS, Applies, Knob


def is_known(knob: str) -> bool:
    """Tell whether a knob exists: one of the catalogue, or an environment variable."""
    is_variable = knob.startswith("env.") and VARIABLE_NAME.fullmatch(knob.removeprefix("env."))
    return knob in KNOBS or bool(is_variable)


def describe(knob: str) -> Knob:
    """Return what a knob is; an environment variable outside the catalogue is a launch knob."""
    return KNOBS.get(knob) or Knob(knob, Applies.LAUNCH, f"environment variable {knob[4:]}")


_CLASSES = list(WinnerClass)


@functools.lru_cache(maxsize=1 << 16)
def winner_class(configuration: Configuration) -> WinnerClass:
    """Return the narrowest class that allows the configuration; the batch is free in each."""
    knobs = [describe(knob) for knob, _ in configuration.settings if knob != BATCH]
    if any(knob.changes_numerics for knob in knobs):
        return WinnerClass.REDUCED
    if any(knob.applies is not Applies.LAUNCH for knob in knobs):
        return WinnerClass.SAME
    return WinnerClass.LAUNCH_ONLY


def allowed_in(klass: WinnerClass, configuration: Configuration) -> bool:
    """Tell whether a winner class allows a configuration."""
    return _CLASSES.index(winner_class(configuration)) <= _CLASSES.index(klass)
