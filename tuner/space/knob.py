"""A knob on every host: when it applies, what it changes, its domain, how it is set.

If a library accepts more than its manual says, the domain is the wider one: it exists to refuse
meaningless values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tuner.record.configuration import Value
from tuner.record.load import INFERENCE, TRAINING
from tuner.record.numerics import Level

_LARGEST = 2**31 - 1
"""The largest C int: libraries read counts into one."""


class Applies(StrEnum):
    """When a knob takes effect, earliest first."""

    LAUNCH = "launch"
    """Environment, preload, affinity, memory policy: a new process each."""
    PROCESS = "process"
    """Once, before any work."""
    MODEL = "model"
    """Rebuild or compile."""
    CALL = "call"
    """Any time."""


class Bound(msgspec.Struct, frozen=True):
    """What of a host bounds a number: more than it has are no values there."""

    fact: str
    """As formulas ask for it, such as host.usable_cores."""
    unit: str
    """One of it in words, such as core."""


class Domain(msgspec.Struct, frozen=True):
    """The valid values of a knob: those that one of the fields allows."""

    is_boolean: bool = False
    at_least: int | None = None
    """Whole numbers from here on."""
    at_most: int = _LARGEST
    words: tuple[str, ...] = ()
    """Values by name."""
    grammar: str = ""
    """A regular expression for a whole text."""
    meaning: str = ""
    """The grammar in words."""
    bound: Bound | None = None
    """None if a number is valid on any host."""

    def in_words(self) -> str:
        """Write what is allowed."""
        is_whole = self.at_least is not None
        parts = [
            "true or false" if self.is_boolean else "",
            f"a whole number from {self.at_least} to {self.at_most}" if is_whole else "",
            ", ".join(self.words),
            self.meaning,
        ]
        return "; ".join(filter(None, parts))

    def has(self, value: Value) -> bool:
        """Tell whether a value of this very type is in the domain."""
        if isinstance(value, bool):
            return self.is_boolean
        if isinstance(value, int):
            return self.at_least is not None and self.at_least <= value <= self.at_most
        return isinstance(value, str) and value in self.words

    def has_written(self, text: str) -> bool:
        """Tell whether a variable may hold this text.

        Words are compared without regard to case, as the libraries do.
        """
        if text.casefold() in [word.casefold() for word in self.words]:
            return True
        if self.grammar and re.fullmatch(self.grammar, text, re.IGNORECASE | re.ASCII):
            return True
        return re.fullmatch(r"[0-9]{1,19}", text) is not None and self.has(int(text))

    def fault_on(self, facts: Mapping[str, Any], value: Value) -> str:
        """Return why a host of these facts cannot have a value of the domain; empty if it can."""
        if self.bound is None or not isinstance(value, int):
            return ""
        n = facts[self.bound.fact]
        plural = "" if n == 1 else "s"
        return "" if value <= n else f"only {n} {self.bound.unit}{plural} may be used here"


def one_of(*words: str) -> Domain:
    """Return the domain of some values by name."""
    return Domain(words=words)


def written(grammar: str, meaning: str) -> Domain:
    """Return the domain of texts of a regular expression, which `meaning` says in words."""
    return Domain(grammar=grammar, meaning=meaning)


def list_of(part: str, separator: str = ",") -> str:
    """Return the expression of a list of what another one stands for."""
    return rf"{part}( *{separator} *{part})*"


BOOLEAN = Domain(is_boolean=True)
AT_LEAST_0, AT_LEAST_1 = Domain(at_least=0), Domain(at_least=1)
BYTES = Domain(at_least=0, at_most=2**63 - 1)
SWITCH = one_of("true", "false", "1", "0", "yes", "no", "on", "off")


class Knob(msgspec.Struct, frozen=True):
    """A knob on every host."""

    id: str
    applies: Applies
    title: str
    level: Level = Level.SAME
    """How far its values, but for the default, may move the outputs."""
    frameworks: tuple[str, ...] = ()
    """The frameworks in which it exists; empty for all."""
    how: str = ""
    """How a program sets it, in one line; `{value}` is replaced. Launch knobs need none."""
    marker: str = ""
    """A string in compiled code that reads the variable; empty if it would prove nothing."""
    domain: Domain | None = None
    """Its domain; None if any text may be valid."""
    measures_itself: bool = False
    """Whether its compiler chooses by trial runs, which others must not disturb."""
    compiles: bool = False
    """Whether it is a compiler: launches with it take long where another setting changes, too."""
    modes: tuple[str, ...] = (INFERENCE, TRAINING)
    """The modes of workloads in which it exists (record/load.py)."""
    by_program: bool = False
    """Whether only the user's own code can set it."""
    engines: tuple[str, ...] = ()
    """The engines that a model can have it in (tuner/engines.py); empty for all."""

    @property
    def changes_numerics(self) -> bool:
        """Whether it computes in fewer bits than the model's own types have."""
        return self.level > Level.SAME

    @property
    def needs_code_change(self) -> bool:
        """Whether the program must change, as opposed to how it is started and called."""
        return self.applies in (Applies.PROCESS, Applies.MODEL)


def variable(
    name: str,
    title: str,
    frameworks: tuple[str, ...] = (),
    *,
    domain: Domain,
    marker: str = "",
    level: Level = Level.SAME,
) -> Knob:
    """Declare an environment variable."""
    return Knob(
        f"env.{name}",
        Applies.LAUNCH,
        title,
        level=level,
        frameworks=frameworks,
        marker=marker,
        domain=domain,
    )


def model(
    id_: str,
    title: str,
    how: str,
    *,
    domain: Domain,
    level: Level = Level.SAME,
    measures_itself: bool = False,
    compiles: bool = False,
    modes: tuple[str, ...] = (INFERENCE, TRAINING),
    engines: tuple[str, ...] = (),
) -> Knob:
    """Declare a knob with which the model is rebuilt or compiled."""
    return Knob(
        id_,
        Applies.MODEL,
        title,
        level,
        how=how,
        domain=domain,
        measures_itself=measures_itself,
        compiles=compiles,
        modes=modes,
        engines=engines,
    )
