"""What a launch file sets, read and never executed: env files, shell scripts, pods, and the like.

Of a shell's grammar, assignments alone are read; a value that the shell would compute, and whatever
else could set or place something, is listed as not understood.
"""

from __future__ import annotations

import itertools
import re
import shlex
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tuner.deploy.launched import ASSIGNMENT, Assignment, Launched, LaunchFile, take
from tuner.deploy.manifest import read_manifest
from tuner.errors import UsageError
from tuner.host.environment import is_tuning_variable

_YAML = (".yaml", ".yml", ".json")
_SHELLS, _NO_SHELLS = (".sh", ".bash"), (".env", ".service", ".conf")
_LONGEST = 2**20
"""Bytes of a file that is read: no launch file has more."""
_SKIPPED = {"export", "env", "exec", "declare", "typeset", "readonly", "local", "-x", "set", "then",
            "do", "else", "time", "nohup", "sudo", "-E", "{", "if", "!"}  # fmt: skip
"""Words before assignments that leave them what they are."""
_DECLARING = {"export", "declare", "typeset", "readonly", "local"}
_OPTIONS = re.compile(r"(?:-e|--env=?|-x|-genv)(?=[A-Za-z_]|$)")
"""Of docker run and mpirun: an assignment follows, in the same word or the next."""
_BLOCKS = ("if", "case", "for", "while", "until", "function")
_ENDS = ("fi", "esac", "done", "}")
_PREFIX = re.compile(r"\s*(?:ENV\s+|Environment=\s*)")
"""Of a Dockerfile, of a systemd unit."""
_NAMED = re.compile(r"\b([A-Z][A-Z0-9_]*)\+?=")
_HERE = re.compile(
    r"""<<<
    | <<(?P<tabs>-?)[ ]*(?:'(?P<single>[^']{1,200})'|"(?P<double>[^"]{1,200})"
                          |\\?(?P<bare>[^\s;&|<>()'"`$]+))
    | '[^']*' | "(?:\\.|[^"\\])*" | \(\(.{0,200}?\)\) | (?:^|(?<=\s))\#.* | .""",
    re.VERBOSE,
)
"""The words of a line that begin here-documents, and all else, in which << is no such thing.

Bounded, so that no line takes long: an arithmetic expression has no 200 characters."""
_PLACING = ("taskset", "numactl")
_CPU_OPTIONS = ("-c", "--cpu-list", "-C", "--physcpubind")
CPU_LIST = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")
"""As the kernel writes them; no machine has a CPU of five digits."""


def read_launch_file(path: Path) -> LaunchFile:
    """Read an env file, a shell script, a Dockerfile, a unit, or a manifest.

    Raises UsageError for what cannot be read as text.
    """
    try:
        if not path.is_file() and path.exists():
            raise UsageError(f"cannot read {path}: it is no file")
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text (UTF-8)") from error
    if len(data) > _LONGEST:
        raise UsageError(f"{path} has more than {_LONGEST:,} bytes: no launch file has so many")
    return read_manifest(path, text) if path.suffix in _YAML else _lines(path, text)


def _lines(path: Path, text: str) -> LaunchFile:
    reading = _Reading(path)
    lines, passed_on = _without_here(text.splitlines())
    for number, line in _joined(lines):
        reading.read_line(number, line)
    reading.end()
    reading.found.not_understood.extend(passed_on)
    reading.found.not_understood.sort(key=lambda each: each[0])
    return reading.found


def _without_here(lines: list[str]) -> tuple[list[str], list[tuple[int, str]]]:
    """Return a script's lines without its here-documents, and what those name, with its line.

    Who reads them is not known. One that has no end is none.
    """
    left, named = list(lines), []
    where: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for n, line in enumerate(lines):
        where[False, line].append(n)
        where[True, line.lstrip("\t")].append(n)
    i = 0
    while i < len(lines):
        begun = _HERE.finditer(lines[i]) if "<<" in lines[i] else ()
        for match in begun:
            if match["tabs"] is None:
                continue
            word = match["single"] or match["double"] or match["bare"]
            ends = where.get((bool(match["tabs"]), word), [])
            at = bisect_right(ends, i)
            if at == len(ends):
                break
            for n in range(i + 1, (end := ends[at]) + 1):
                tools = [tool for tool in _PLACING if re.search(rf"\b{tool}\b", lines[n])]
                found = [*filter(is_tuning_variable, _NAMED.findall(lines[n])), *tools]
                named += [(n + 1, f"{name} (in a here-document)") for name in found]
                left[n] = ""
            i = end
        i += 1
    return left, named


def _joined(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with those that they go on in, each with the number of its first."""
    kept, first = "", 0
    for number, line in enumerate(lines, 1):
        first = first or number
        if kept and line.lstrip().startswith("#"):
            continue  # a Dockerfile goes on after it
        if line.endswith("\\") and not (kept or line).lstrip().startswith("#"):
            kept += line[:-1] + " "
            continue
        yield first, kept + line
        kept, first = "", 0
    if kept:
        yield first, kept


class _Reading:
    """A shell script, or what is written like one, line by line."""

    def __init__(self, path: Path) -> None:
        self._whole = Launched("")
        self._depth = 0
        """Of branches, loops and functions."""
        self._is_script = path.suffix in _SHELLS
        """Read by a shell, which exports what it is told to; elsewhere all is exported."""
        self._is_other = path.suffix in _NO_SHELLS or path.name.startswith("Dockerfile")
        self._exported: set[str] = set()
        self._exports_all = False
        self.found = LaunchFile([self._whole], [])

    def read_line(self, number: int, line: str) -> None:
        """Take what a line sets."""
        self._is_script |= line.startswith("#!")
        if not line.strip() or line.lstrip().startswith("#"):
            return
        prefix = _PREFIX.match(line)
        text = line[prefix.end() :] if prefix else line
        try:
            commands = _commands(text)
        except ValueError as error:
            named = [name for name in _NAMED.findall(line) if is_tuning_variable(name)]
            if named:
                self.found.not_understood.append((number, f"{', '.join(named)} ({error})"))
            return
        for words in commands:
            if prefix and len(words) == 2 and not ASSIGNMENT.fullmatch(words[0]):
                self._take(Assignment(words[0], words[1], number))  # ENV NAME VALUE
            else:
                self._read_words(words, number, is_exported=prefix is not None)

    def end(self) -> None:
        """Mark what no program will see."""
        for n, each in enumerate(self._whole.assignments):
            is_seen = (
                self._is_other
                or not self._is_script
                or each.is_exported
                or each.name in self._exported
            )
            self._whole.assignments[n] = msgspec.structs.replace(each, is_exported=is_seen)

    def _read_words(self, words: list[str], number: int, *, is_exported: bool) -> None:
        """Take the assignments of a command, and what of it places a program."""
        if not words:
            return
        self._depth += words[0] in _BLOCKS or words[-1] == "{"
        self._depth = max(0, self._depth - (words[0] in _ENDS))
        i = 0
        while i < len(words) and (words[i] in _SKIPPED or ASSIGNMENT.fullmatch(words[i])):
            i += 1
        is_lasting = words[0] in _DECLARING or i == len(words)
        is_lasting = is_lasting or any(word in _DECLARING for word in words[:i])
        exports = ("export" in words[:i] and "-n" not in words) or "-x" in words[:i]
        self._is_script |= exports
        if words[0] == "set":
            self._take_options(words[1:])
        is_exported = is_exported or exports or self._exports_all or not is_lasting
        for word in words[:i]:
            if match := ASSIGNMENT.fullmatch(word):
                self._take(Assignment(match[1], match[2], number, is_lasting, True, is_exported))
                self._exported.update([match[1]] if is_exported and is_lasting else [])
        if exports:
            self._exported.update(words[i:])
        self._note_blanks(words, i, number)
        if words[0] == "unset":
            kept = [each for each in self._whole.assignments if each.name not in words]
            self._whole.assignments = kept
            return
        self._read_options(words[i:], number)
        self._read_placing(words[i:], number)

    def _take_options(self, options: list[str]) -> None:
        """Hear whether `set` has the shell export whatever it sets from here on."""
        for before, option in itertools.pairwise(["", *options]):
            if option == "--":
                return
            if option == "allexport" or re.fullmatch(r"[-+][a-z]*a[a-z]*", option):
                self._exports_all = (before if option == "allexport" else option)[:1] == "-"

    def _note_blanks(self, words: list[str], at: int, number: int) -> None:
        """List a variable that blanks part from its value: NAME = 4, NAME= 4.

        at: of the first word that is no assignment.
        """
        name, value = ["", *words][at], [*words[at:], ""][0]
        is_before = len(words) > at + 1 and words[at + 1].startswith("=")
        is_after = name.endswith("=") and value[:1].isdecimal()
        name = name.removesuffix("=") if is_after else value if is_before else ""
        if is_tuning_variable(name):
            self.found.not_understood.append((number, f"{name} (with blanks around =)"))

    def _read_options(self, words: list[str], number: int) -> None:
        """Take assignments among a command's words: -e NAME=VALUE; list what looks like others."""
        for before, word in itertools.pairwise(["", *words]):
            option = _OPTIONS.match(word)
            inside = ASSIGNMENT.fullmatch(word[option.end() :]) if option else None
            plain = ASSIGNMENT.fullmatch(word)
            if inside is not None:
                self._take(Assignment(inside[1], inside[2], number))
            elif plain is not None and _OPTIONS.fullmatch(before):
                self._take(Assignment(plain[1], plain[2], number))
            elif "=" in word:
                names = [name for name in _NAMED.findall(word) if is_tuning_variable(name)]
                self.found.not_understood += [(number, name) for name in names]

    def _read_placing(self, words: list[str], number: int) -> None:
        """Take the CPUs that taskset or numactl binds a program to."""
        tools = [word.rpartition("/")[2] for word in words]
        at = next((i for i, tool in enumerate(tools) if tool in _PLACING), None)
        if at is None:
            return
        own = words[at + 1 :]
        end = next((i for i, word in enumerate(own)
                    if not word.startswith("-") and not (i and own[i - 1].startswith("-"))),
                   len(own))  # fmt: skip
        pairs = [*itertools.pairwise(own[:end])]
        pairs += [(a, b) for a, equals, b in (word.partition("=") for word in own[:end]) if equals]
        lists = [b for a, b in pairs if a in _CPU_OPTIONS and CPU_LIST.fullmatch(b)]
        self._whole.cpus += [(each, number) for each in lists]
        if not lists:
            self.found.not_understood.append((number, " ".join([tools[at], *own[:end]])))

    def _take(self, assignment: Assignment) -> None:
        is_certain = self._depth == 0
        take(self._whole, self.found, msgspec.structs.replace(assignment, is_certain=is_certain))


def _commands(line: str) -> list[list[str]]:
    """Split a line into its commands, and each into words; raises ValueError for an open quote."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word.startswith("#"):
            break
        if set(word) <= set(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands
