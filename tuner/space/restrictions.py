"""Restrictions on the command line: --set, --fix, --exclude, --numerics."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from typing import get_args

import msgspec

from tuner.errors import UnknownName, UsageError
from tuner.record.configuration import Value
from tuner.record.numerics import Level, Numerics, admitted
from tuner.space.catalogue import KNOBS, describe, is_known
from tuner.space.resolved_knob import UNSET, fault_of_setting
from tuner.space.variables import misspelt

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_LONGEST = 19
"""A whole number of fewer characters fits into 64 bits."""
NOT_A_SETTING = {
    "env.LD_PRELOAD": "use launch.allocator and launch.openmp",
    "env.PATH": "the measured process is found by it",
    "env.LD_LIBRARY_PATH": "the frameworks' own libraries are found by it",
    "env.PYTHONPATH": "the frameworks are found by it",
    "env.PYTHONHOME": "Python itself is found by it",
    "env.PYTHONSTARTUP": "it names a program to run",
    "env.BASH_ENV": "it names a program to run",
    "env.ENV": "it names a program to run",
    "env.LD_AUDIT": "it names a library to run",
    "env.HOME": "it is no setting",
}
"""Variables that would change the work itself, not its speed."""


class Restrictions(msgspec.Struct, frozen=True):
    """The user's limits on a space."""

    values: dict[str, tuple[Value, ...]] = {}
    """--set: search only these values (and the default)."""
    fixed: dict[str, Value] = {}
    """--fix: every searched configuration has this value."""
    excluded: tuple[str, ...] = ()
    """--exclude: stays at its default."""
    numerics: Numerics = "both"


def parse_value(text: str) -> Value:
    """Read a value as typed: true, false, a whole number, a number, or text.

    Numbers that no file of this tool could hold (more than 64 bits, infinite) stay text.
    """
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    digits = text.strip()
    if _WHOLE.fullmatch(digits):
        return int(digits) if len(digits) < _LONGEST else text
    if _NUMBER.fullmatch(digits) and math.isfinite(float(digits)):
        return float(digits)
    return text


def _split(option: str, text: str) -> tuple[str, str]:
    knob, equals, value = text.partition("=")
    if not equals or not knob or not value:
        raise UsageError(
            f"{option} {text!r} is not KNOB=VALUE; for example {option} launch.allocator=tcmalloc"
        )
    return knob, value


def _parts(text: str) -> list[str]:
    """Split a list of values at its commas; a value with commas of its own stands in quotes."""
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise UsageError(f"--set ...={text}: {error}; close the quotes") from error


def parse_restrictions(
    set_: Iterable[str], fix: Iterable[str], exclude: Iterable[str], numerics: Numerics
) -> Restrictions:
    """Read the options; raises UsageError for invalid or contradictory ones."""
    values = {}
    for text in set_:
        knob, value = _split("--set", text)
        values[knob] = tuple(parse_value(part) for part in _parts(value))
    fixed: dict[str, Value] = {}
    for text in fix:
        knob, value = _split("--fix", text)
        if knob in fixed and fixed[knob] != parse_value(value):
            raise UsageError(f"--fix {knob}={fixed[knob]} contradicts --fix {text}; give one")
        fixed[knob] = parse_value(value)
    restrictions = Restrictions(values, fixed, tuple(exclude), numerics)
    check_consistent(restrictions)
    return restrictions


def check_consistent(restrictions: Restrictions) -> None:
    """Refuse what contradicts itself, or is no value; raises UsageError, naming both sides."""
    values, fixed = restrictions.values, restrictions.fixed
    requested = [
        *fixed.items(),
        *((knob, value) for knob, many in values.items() for value in many),
    ]
    for knob, value in requested:
        # whether a knob can be left alone is known with its default
        if value != UNSET and (fault := fault_of_setting(knob, value)):
            raise UsageError(fault)
    for knob in restrictions.excluded:
        if knob in fixed or knob in values:
            other = "--fix" if knob in fixed else "--set"
            raise UsageError(f"--exclude {knob} contradicts {other} {knob}; give one of them")
    for knob, only in values.items():
        if knob in fixed and fixed[knob] not in only:
            raise UsageError(
                f"--fix {knob}={fixed[knob]} contradicts --set {knob}="
                f"{','.join(map(str, only))}; add the value, or drop one option"
            )
    if restrictions.numerics not in get_args(Numerics):
        return  # it is refused with the other choices
    level = admitted(restrictions.numerics)
    for knob in (*fixed, *values):
        if is_known(knob) and describe(knob).level > level:
            if level is Level.SAME:
                why = f"--numerics same contradicts setting {knob}, which reduces the precision"
            else:
                why = f"{knob} computes in int8, which is searched with --numerics int8 alone"
            raise UsageError(f"{why}; change --numerics, or do not set {knob}")


def slip_of(knob: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown variable's seems to be a slip of, or None."""
    if not knob.startswith("env."):
        return None
    names = (name.removeprefix("env.") for name in known if name.startswith("env."))
    meant = misspelt(knob.removeprefix("env."), names)
    return None if meant is None else f"env.{meant}"


def check_known(restrictions: Restrictions, knobs: Iterable[str]) -> None:
    """Raise UnknownName for a restricted knob that is not among `knobs`.

    An environment variable that no profile has may be set and fixed all the same, unless its name
    is nearly that of one that is there.
    """
    known = set(knobs)
    for knob in (*restrictions.values, *restrictions.fixed):
        if knob in NOT_A_SETTING:
            raise UsageError(f"{knob} cannot be searched: {NOT_A_SETTING[knob]}")
    for knob in (*restrictions.values, *restrictions.fixed, *restrictions.excluded):
        if knob in known:
            continue
        # as a reader of the recommendation judges it
        slip = slip_of(knob, known if knob in KNOBS else {*known, *KNOBS})
        is_new = (
            knob.startswith("env.")
            and is_known(knob)
            and knob not in restrictions.excluded
            and slip is None
        )
        if knob in KNOBS and not knob.startswith("env."):
            raise UsageError(f"{knob} is no knob of this space for the frameworks that are tuned")
        if not is_new:
            raise UnknownName(
                "knob",
                knob,
                known if slip is None else {*known, slip},
                "list them with: tune-framework spaces NAME, or add --dry-run",
            )
