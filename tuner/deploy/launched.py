"""What a process would be started with, as a launch file has it; of any kind of file."""

from __future__ import annotations

import re

import msgspec

from tuner.host.environment import is_tuning_variable
from tuner.record.configuration import VARIABLE_NAME

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SELF = re.compile(r"\$\{?%s(?::[-+?=][^}]*)?\}?:?|:?\$\{?%s\}?")


class Assignment(msgspec.Struct, frozen=True):
    """A variable, and where it is set."""

    name: str
    value: str
    line: int
    is_lasting: bool = True
    """For all that comes after it; else for one command."""
    is_certain: bool = True
    """Not in a branch, a loop or a function."""
    is_exported: bool = True
    """Programs see it; a shell keeps to itself what it is not told to export."""


class Launched(msgspec.Struct):
    """What one process would be started with: a whole file, or a container of a manifest."""

    name: str
    """Of the container; empty for a file."""
    assignments: list[Assignment] = []
    cpus: list[tuple[str, int]] = []
    """Lists of CPUs that it is bound to, and their lines."""
    cpu_limit: float | None = None
    """CPUs that a manifest grants."""


class LaunchFile(msgspec.Struct):
    """A file as it was understood."""

    launched: list[Launched]
    not_understood: list[tuple[int, str]]
    """Lines, from 1, that may set something and were not read, each with what is there."""


def take(launched: Launched, found: LaunchFile, assignment: Assignment) -> None:
    """Take an assignment whose value stands there; of one that is computed, say so."""
    name = assignment.name
    own = re.compile(_SELF.pattern % (re.escape(name), re.escape(name)))
    value = own.sub("", assignment.value)  # LD_PRELOAD=$LD_PRELOAD:libjemalloc.so
    if "$" in value or "`" in value:
        if is_tuning_variable(name):
            found.not_understood.append((assignment.line, f"{name} (its value is computed)"))
        return
    if VARIABLE_NAME.fullmatch(name):
        launched.assignments.append(msgspec.structs.replace(assignment, value=value))
