"""A knob as it is for one workload on one host: what its formulas came to."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Value
from tuner.space.catalogue import fault_of_value
from tuner.space.knob import Knob

UNSET = "unset"
"""Means "left alone" if the value in force is then unknown."""


class ResolvedKnob(msgspec.Struct, frozen=True):
    """A knob with its possible values here."""

    knob: Knob
    default: Value
    """The value in force when nothing is set; UNSET if unknown."""
    choices: tuple[Value, ...]
    """Everything that may be searched; the default first unless a value is fixed."""
    all_values: tuple[Value, ...]
    """Every value that the profile knows here, searched or not."""
    dropped: tuple[tuple[Value, str], ...]
    """Values that do not exist here, each with the reason."""
    when: str
    why: str
    option: str = ""
    """The option that narrowed the knob, as typed; empty if none did."""
    alias_of: str = ""
    """The knob of which this is another name."""
    is_stronger: bool = True
    """Whether this name wins where both are set."""
    is_late: bool = False
    """Little is expected of it."""
    substitutes: tuple[tuple[Value, Value], ...] = ()
    """Values that do not exist here, each with one that stands in for it in baselines.

    Where several can, the preferred one comes first.
    """
    beside: tuple[tuple[Value, str, str], ...] = ()
    """Values that other settings allow or not: value, condition, and why not elsewhere."""
    follows: str = ""
    """The default value if the instances are pinned to fewer CPUs."""
    at_most: str = ""
    """The largest possible number with the settings above."""

    @property
    def id(self) -> str:
        """The knob's stable id."""
        return self.knob.id

    def spelled(self, value: Value) -> Value:
        """Return a value as the profile writes it: CLOSE and close are one, true and "true" too."""
        for known in (self.default, *self.all_values):
            if isinstance(known, str) and known.casefold() == str(value).casefold():
                return known
        return value


def fault_of_setting(knob: str, value: Value) -> str | None:
    """Return why a space or a user cannot set a knob to a value, or None if they can.

    A variable may be UNSET, which leaves it alone. The study's files hold numbers of 64 bits.
    """
    if value == UNSET and knob.startswith("env."):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"{knob}={value} is a number of more than 64 bits"
    return fault_of_value(knob, value)


def same(a: Value, b: Value) -> bool:
    """Compare values without taking True for 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)
