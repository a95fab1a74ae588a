"""What a launch file sets, read and never executed: env files, shell scripts, pods, and the like.

Of a shell's grammar, assignments alone are read; a value that the shell would compute, and whatever
else could set or place something, is listed as not understood.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

from tuner.errors import UsageError
from tuner.host.environment import is_tuning_variable
from tuner.record.configuration import VARIABLE_NAME

_YAML = (".yaml", ".yml", ".json")
_LONGEST = 2**20
"""Bytes of a file that is read: no launch file has more."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SKIPPED = {"export", "env", "exec", "declare", "typeset", "readonly", "local", "-x", "set", "then",
            "do", "else", "time", "nohup", "sudo", "-E", "{", "if", "!"}  # fmt: skip
"""Words before assignments that leave them what they are."""
_DECLARING = {"export", "declare", "typeset", "readonly", "local"}
_OPTIONS = re.compile(r"(?:-e|--env=?|-x|-genv)(?=[A-Za-z_]|$)")
"""Of docker run and mpirun: an assignment follows, in the same word or the next."""
_ENVIRONMENTS = ("env", "environment")
"""Of a pod's container, of a service of docker compose."""
_BLOCKS = ("if", "case", "for", "while", "until", "function")
_ENDS = ("fi", "esac", "done", "}")
_PREFIX = re.compile(r"\s*(?:ENV\s+|Environment=\s*)")
"""Of a Dockerfile, of a systemd unit."""
_NAMED = re.compile(r"\b([A-Z][A-Z0-9_]*)\+?=")
_PLACING = ("taskset", "numactl")
_CPU_OPTIONS = ("-c", "--cpu-list", "-C", "--physcpubind")
CPU_LIST = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")
"""As the kernel writes them; no machine has a CPU of five digits."""
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
    return _manifest(path, text) if path.suffix in _YAML else _lines(text)


def _lines(text: str) -> LaunchFile:
    reading = _Reading()
    for number, line in _joined(text):
        reading.read_line(number, line)
    reading.end()
    return reading.found


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that they go on in, each with the number of its first."""
    kept, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\") and not (kept or line).lstrip().startswith("#"):
            kept += line[:-1] + " "
            continue
        yield first, kept + line
        kept, first = "", 0
    if kept:
        yield first, kept


class _Reading:
    """A shell script, or what is written like one, line by line."""

    def __init__(self) -> None:
        self._whole = Launched("")
        self._depth = 0
        """Of branches, loops and functions."""
        self._is_script = False
        """Read by a shell, which exports what it is told to; in an env file all is exported."""
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
            if prefix and len(words) == 2 and not _ASSIGNMENT.fullmatch(words[0]):
                self._take(Assignment(words[0], words[1], number))  # ENV NAME VALUE
            else:
                self._read_words(words, number, is_exported=prefix is not None)

    def end(self) -> None:
        """Mark what no program will see."""
        for n, each in enumerate(self._whole.assignments):
            is_seen = not self._is_script or each.is_exported or each.name in self._exported
            self._whole.assignments[n] = msgspec.structs.replace(each, is_exported=is_seen)

    def _read_words(self, words: list[str], number: int, *, is_exported: bool) -> None:
        """Take the assignments of a command, and what of it places a program."""
        if not words:
            return
        self._depth += words[0] in _BLOCKS or words[-1] == "{"
        self._depth = max(0, self._depth - (words[0] in _ENDS))
        i = 0
        while i < len(words) and (words[i] in _SKIPPED or _ASSIGNMENT.fullmatch(words[i])):
            i += 1
        is_lasting = words[0] in _DECLARING or i == len(words)
        is_lasting = is_lasting or any(word in _DECLARING for word in words[:i])
        exports = "export" in words[:i] or "-x" in words[:i]
        self._is_script |= exports or i < len(words)
        self._exports_all |= words[0] == "set" and bool({"-a", "allexport"} & set(words))
        is_exported = is_exported or exports or self._exports_all or not is_lasting
        for word in words[:i]:
            if match := _ASSIGNMENT.fullmatch(word):
                self._take(Assignment(match[1], match[2], number, is_lasting, True, is_exported))
        if exports:
            self._exported.update(words[i:])
        self._note_blanks(words, i, number)
        if words[0] == "unset":
            kept = [each for each in self._whole.assignments if each.name not in words]
            self._whole.assignments = kept
            return
        self._read_options(words[i:], number)
        self._read_placing(words[i:], number)

    def _note_blanks(self, words: list[str], at: int, number: int) -> None:
        """List a variable that blanks part from its value: NAME = 4, NAME= 4.

        at: of the first word that is no assignment.
        """
        name, value = ["", *words][at], [*words[at:], ""][0]
        if name.endswith("=") and value[:1].isdecimal():
            name = name.removesuffix("=")
        elif len(words) > at + 1 and words[at + 1].startswith("="):
            name = words[at]
        else:
            return
        if is_tuning_variable(name):
            self.found.not_understood.append((number, f"{name} (with blanks around =)"))

    def _read_options(self, words: list[str], number: int) -> None:
        """Take assignments among a command's words: -e NAME=VALUE; list what looks like others."""
        for before, word in itertools.pairwise(["", *words]):
            option = _OPTIONS.match(word)
            inside = _ASSIGNMENT.fullmatch(word[option.end() :]) if option else None
            plain = _ASSIGNMENT.fullmatch(word)
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
        _take(self._whole, self.found, msgspec.structs.replace(assignment, is_certain=is_certain))


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


def _take(launched: Launched, found: LaunchFile, assignment: Assignment) -> None:
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


def _manifest(path: Path, text: str) -> LaunchFile:
    """Read the containers of a manifest: every mapping that has an `env`, and its limit of CPUs."""
    found = LaunchFile([], [])
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        raise UsageError(f"{path} is no YAML: {told}") from error
    seen: set[int] = set()
    for document in documents:
        for node in _mappings(document, seen):
            fields = _fields(node)
            held = next((fields[name] for name in _ENVIRONMENTS if name in fields), None)
            if isinstance(held, yaml.SequenceNode | yaml.MappingNode):
                found.launched.append(_container(fields, held, found))
    return found


def _fields(node: yaml.MappingNode) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _mappings(document: yaml.Node | None, seen: set[int]) -> Iterator[yaml.MappingNode]:
    """Yield every mapping once: an alias is the node that it names."""
    waiting = [document]
    while waiting:
        node = waiting.pop(0)
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _container(
    fields: dict[str, yaml.Node], held: yaml.SequenceNode | yaml.MappingNode, found: LaunchFile
) -> Launched:
    name = fields.get("name")
    launched = Launched(name.value if isinstance(name, yaml.ScalarNode) else "")
    entries: list[tuple[str, yaml.Node | None, int]] = []
    if isinstance(held, yaml.MappingNode):  # of docker compose
        entries = [(k, v, v.start_mark.line + 1) for k, v in _fields(held).items()]
    else:
        for entry in held.value:
            line = entry.start_mark.line + 1
            if isinstance(entry, yaml.ScalarNode) and (match := _ASSIGNMENT.fullmatch(entry.value)):
                entries.append((match[1], yaml.ScalarNode("", match[2]), line))
            elif isinstance(entry, yaml.MappingNode):
                parts = _fields(entry)
                named = parts.get("name")
                told = named.value if isinstance(named, yaml.ScalarNode) else ""
                entries.append((told, parts.get("value"), line))
    for told, value, line in entries:
        if isinstance(value, yaml.ScalarNode):
            _take(launched, found, Assignment(told, value.value, line))
        elif is_tuning_variable(told):
            found.not_understood.append((line, f"{told} (its value does not stand here)"))
    launched.cpu_limit = _cpu_limit(fields.get("resources"))
    return launched


def _cpu_limit(resources: yaml.Node | None) -> float | None:
    node: yaml.Node | None = resources
    for key in ("limits", "cpu"):
        if not isinstance(node, yaml.MappingNode):
            return None
        node = _fields(node).get(key)
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(m?)", str(text))
    return None if match is None else float(match[1]) / (1000 if match[2] else 1)
