"""What lint finds in a launch file, as data; cli/lint.py makes the sentences."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from tuner.host.topology import format_cpu_list
from tuner.space.as_run import Cause


class Kind(enum.StrEnum):
    """The kinds of findings, the worst first."""

    CONTRADICTION = "contradiction"
    UNUSABLE = "unusable"
    BEYOND = "beyond"
    MISSPELT = "misspelt"
    DEAD = "dead"
    HURTS = "hurts"
    MISSED = "missed"
    DEPENDS = "depends"
    REDUNDANT = "redundant"
    ASIDE = "aside"
    UNKNOWN = "unknown"


class Severity(enum.StrEnum):
    """Whether a finding is a fault, or worth knowing."""

    FAULT = "fault"
    NOTE = "note"


class Why(enum.StrEnum):
    """Reasons that concern the whole file, in addition to those of a variable (as_run.Cause)."""

    SET_TWICE = "set_twice"
    RIVALS = "rivals"
    """Two runtimes' ways of binding; detail: the other variable."""
    NOT_EXPORTED = "not_exported"
    THREADS = "threads"
    """More than is granted; detail: by what, empty for the host."""
    WORKERS = "workers"
    CPUS = "cpus"
    NODES = "nodes"
    MEMORY = "memory"
    NO_LIBRARY = "no_library"
    """No folder of libraries holds a file of that name."""
    PRELOAD = "preload"
    """It depends on a preload that is not known."""
    GUIDELINE = "guideline"


class LintFinding(msgspec.Struct, frozen=True):
    """A finding about a launch file, as data."""

    kind: Kind
    why: Cause | Why
    name: str
    """The variable, as the file has it, or what else it is about: taskset."""
    value: str = ""
    line: int | None = None
    file: str = ""
    """Another file that sets it; empty: the launch file itself."""
    where: str = ""
    """The container, service or stage."""
    unless: str = ""
    """The variable that replaces this default if it is set."""
    detail: str = ""
    """By its reason: another variable, the limit as written, a sentence of a search space."""
    other_line: int | None = None
    granted: float | None = None
    """CPUs or bytes."""
    beyond: str = ""
    """CPUs or nodes that are not allowed."""
    allowed: str = ""
    severity: Severity = Severity.NOTE


def with_lists(finding: LintFinding, beyond: Iterable[int], allowed: Iterable[int]) -> LintFinding:
    """Return a finding with the CPUs or nodes that are not allowed, and those that are."""
    return msgspec.structs.replace(
        finding,
        beyond=format_cpu_list(tuple(sorted(beyond))),
        allowed=format_cpu_list(tuple(sorted(allowed))),
    )
