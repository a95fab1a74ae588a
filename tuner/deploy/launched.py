"""The launch of a process in any kind of launch file."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuner.host.environment import is_tuning_variable
from tuner.host.secrets import KEPT_BACK, redacted, stated
from tuner.record.configuration import VARIABLE_NAME

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
CPU_LIST = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")
"""As the kernel writes them; no machine has a CPU of five digits."""
_NAMED = re.compile(r"(?<![A-Za-z0-9_$])([A-Z][A-Z0-9_]*)\+?=")
_PLACER = re.compile(r"(?:^|\.\.\. )(?:taskset|numactl)\b")
_LONGEST = 2**20
"""Bytes of a file that is read: no launch file has more."""
LONGEST_VALUE = 4096
"""Characters of a value that is followed: one that doubles line by line would fill the memory."""
_SHOWN = 80
"""Characters of a text that is listed as not understood."""


class Gap(enum.StrEnum):
    """Why a part of a launch file is not understood, and so why it could matter."""

    COMPUTED = "computed"
    """A value that a command or arithmetic would yield."""
    NOT_SET_HERE = "not_set_here"
    """A value of a variable that the file does not set."""
    BRANCH = "branch"
    """A value that differs between branches."""
    WORDS = "words"
    """Words that may hold settings."""
    PROGRAM = "program"
    """An unknown command: it may place the program or set variables."""
    LAUNCHER = "launcher"
    """A program that sets variables or CPUs by rules of its own."""
    ELSEWHERE = "elsewhere"
    """Another file, which is not read."""
    SYNTAX = "syntax"
    """The file's own grammar does not allow it."""
    BLANKS = "blanks"
    """Blanks around an equals sign."""
    TEXT = "text"
    """A text with settings that the file passes on: a here-document, a file that it writes."""
    CPUS = "cpus"
    """CPUs, nodes or a limit that are no number or list."""


class Scope(enum.StrEnum):
    """How much of the linting host a process would see."""

    HOST = "host"
    """All of it."""
    CONTAINER = "container"
    """Its CPUs, and libraries of its own."""
    IMAGE = "image"
    """Nothing: it is built here and runs elsewhere."""


class Value(NamedTuple):
    """A text, or a part of one, as far as it is known."""

    text: str
    """Parts that are not known as they are written: $X."""
    gap: Gap | None = None
    unless: str = ""
    """The variable that replaces this default if it is set."""


def joined(parts: Iterable[Value], name: str = "") -> Value:
    """Return parts as one value; name: the variable's, used if it is too long."""
    held = list(parts)
    text = "".join(part.text for part in held)
    gap = next((part.gap for part in held if part.gap), None)
    if len(text) > LONGEST_VALUE:
        return Value(f"${name}", Gap.COMPUTED)
    return Value(text, gap, next((part.unless for part in held if part.unless), ""))


class Assignment(msgspec.Struct, frozen=True):
    """A variable, and where it is set."""

    name: str
    value: str
    line: int
    command: int = 0
    """0: for all that comes after it; else which command it is set for."""
    is_certain: bool = True
    """Not in a branch, a loop or a function."""
    is_exported: bool = True
    """Whether programs see it: a shell exports only what it is told to."""
    gap: Gap | None = None
    """Why the value is not known; None: it is."""
    unless: str = ""
    """The variable that replaces this default if it is set."""
    extends: bool = False
    """Whether the value goes on from the variable's earlier one."""
    file: str = ""
    """The name of another file that sets it; empty: the launch file itself."""


class Placement(NamedTuple):
    """CPUs or NUMA nodes that a program is bound to."""

    text: str
    """A list as the kernel writes it."""
    line: int
    by: str
    """The program or setting that binds: taskset, CPUAffinity=."""
    is_nodes: bool = False


class Limit(NamedTuple):
    """A number of CPUs, of bytes or of worker processes."""

    amount: float
    line: int
    by: str
    """The setting as written: CPUQuota=150%."""


class NotUnderstood(msgspec.Struct, frozen=True):
    """A line that may set or place something and was not read."""

    line: int
    text: str
    gap: Gap
    where: str = ""
    """The container, service or stage."""
    file: str = ""
    """The name of another file that it stands in."""

    @property
    def names_own(self) -> bool:
        """Whether it names a tuning variable, or a program that places others."""
        return bool(settings_in(f"{self.text}=") or _PLACER.search(self.text))


class Launched(msgspec.Struct):
    """The launch of one process: a whole file, or a container of it."""

    name: str = ""
    """Of the container, service or stage; empty for a file."""
    scope: Scope = Scope.HOST
    assignments: list[Assignment] = []
    placements: list[Placement] = []
    cpu_limits: list[Limit] = []
    memory_limits: list[Limit] = []
    workers: list[Limit] = []
    """Processes that share the work."""
    not_understood: list[NotUnderstood] = []
    n_commands: int = 0
    """Commands that were read, by whichever reader."""

    def note(self, line: int, text: str, gap: Gap, file: str = "") -> None:
        """Note what is not understood, once."""
        shown = _without_secrets(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
        entry = NotUnderstood(line, shown, gap, self.name, file)
        if entry not in self.not_understood:
            self.not_understood.append(entry)

    def take(self, assignment: Assignment) -> None:
        """Take an assignment; list a tuning variable whose value is unknown."""
        if not VARIABLE_NAME.fullmatch(assignment.name):
            return
        self.assignments.append(assignment)
        if assignment.gap is not None and is_tuning_variable(assignment.name):
            text = f"{assignment.name}={assignment.value}"
            self.note(assignment.line, text, assignment.gap, assignment.file)

    def place(self, text: Value, line: int, by: str, *, is_nodes: bool = False) -> None:
        """Take the CPUs or nodes of a program; list what cannot be read."""
        if text.gap is None and CPU_LIST.fullmatch(text.text):
            self.placements.append(Placement(text.text, line, by, is_nodes))
        elif text.text not in ("all", "numa"):
            self.note(line, f"{by} {text.text}", text.gap or Gap.CPUS)

    def limit_cpus(self, amount: Value, line: int, by: str) -> None:
        """Take a number of CPUs that is granted."""
        self._limit(self.cpu_limits, cpus_of, amount, line, by)

    def limit_memory(self, amount: Value, line: int, by: str) -> None:
        """Take an amount of memory that is granted."""
        self._limit(self.memory_limits, bytes_of, amount, line, by)

    def _limit(
        self,
        limits: list[Limit],
        read: Callable[[str], float | None],
        value: Value,
        line: int,
        by: str,
    ) -> None:
        amount = read(value.text) if value.gap is None else None
        shown = f"{by}{value.text}"
        if amount is None:
            self.note(line, shown, value.gap or Gap.CPUS)
        elif amount:  # 0 is no limit
            limits.append(Limit(amount, line, shown))

    @property
    def is_empty(self) -> bool:
        """Whether nothing that could matter was found."""
        sets = any(is_tuning_variable(each.name) for each in self.assignments)
        limits = [*self.cpu_limits, *self.memory_limits, *self.workers]
        own = [each for each in self.not_understood if each.gap is not Gap.SYNTAX or each.names_own]
        return not (sets or self.placements or limits or own)


_ASSIGNED = re.compile(
    r"""([A-Za-z_]\w*)=((?:
        \\*(?P<quote>["'])(?:\\.|(?!(?P=quote)).)*(?:(?P=quote)|$)
        | \$\([^)]*\)? | \$\{[^}]*\}? | `[^`]*`?
        | \\. | [^\s;"'`]
    )+)""",
    re.VERBOSE,
)
"""A quote without its end goes on to the end of the text."""


def _without_secrets(text: str) -> str:
    """Return a text with the values of those variables alone that tune, and may be written down."""

    def shown(match: re.Match[str]) -> str:
        value = stated({match[1]: match[2]}).get(match[1], KEPT_BACK)
        first, blank, others = value.partition(" ")  # in quotes, which may hold assignments
        return f"{match[1]}={first}{blank}{_ASSIGNED.sub(shown, others)}"

    return redacted(_ASSIGNED.sub(shown, "".join(c if c.isprintable() else " " for c in text)))


class LaunchFile(msgspec.Struct):
    """A file as it was understood."""

    launched: list[Launched]


def cpus_of(text: str) -> float | None:
    """Read a number of CPUs: 1.5, 150%, 500m (thousandths); None for no such number."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(%|m?)", text.strip())
    return None if found is None else float(found[1]) * {"": 1, "%": 0.01, "m": 0.001}[found[2]]


def bytes_of(text: str) -> float | None:
    """Read an amount of memory: 512, 512m, 4g, 2Gi, 1GB, in powers of 1024; None for none."""
    pattern = r"(\d{1,18}(?:\.\d{1,9})?)(?:([kmgtpe])i?)?b?"
    found = re.fullmatch(pattern, text.strip().casefold())
    return None if found is None else float(found[1]) * 1024.0 ** " kmgtpe".index(found[2] or " ")


def settings_in(text: str) -> list[str]:
    """Name the tuning variables that a text assigns to."""
    return [name for name in _NAMED.findall(text) if is_tuning_variable(name)]


def read_beside(folder: Path, name: str) -> str | None:
    """Return the text of a file in a folder, or below it; None if there is none.

    Also None for a link that leads out of the folder, for a file that is not text, and for one
    longer than any launch file.
    """
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
        return data.decode() if len(data) <= _LONGEST else None
    except (OSError, ValueError):
        return None
