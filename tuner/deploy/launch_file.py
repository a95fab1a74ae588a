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
_OPTIONS = ("-e", "--env", "-x", "-genv")
"""Of docker run and mpirun: the next word is an assignment."""
_PREFIX = re.compile(r"\s*(?:ENV\s+|Environment=\s*)")
"""Of a Dockerfile, of a systemd unit."""
_PLACING = ("taskset", "numactl")
_CPU_OPTIONS = re.compile(r"(?:-c|--cpu-list|-C|--physcpubind|--cpunodebind)$")
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_SELF = re.compile(r"\$\{?%s(?::[-+?=][^}]*)?\}?:?|:?\$\{?%s\}?")


class Assignment(msgspec.Struct, frozen=True):
    """A variable, and where it is set."""

    name: str
    value: str
    line: int
    is_lasting: bool = True
    """For all that comes after it; else for one command."""


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
        data = path.read_bytes()
        text = data.decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text (UTF-8)") from error
    if len(data) > _LONGEST:
        raise UsageError(f"{path} has {len(data):,} bytes: no launch file has so many")
    return _manifest(path, text) if path.suffix in _YAML else _lines(text)


def _lines(text: str) -> LaunchFile:
    whole = Launched("")
    found = LaunchFile([whole], [])
    for number, line in _joined(text):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            commands = _commands(_PREFIX.sub("", line, count=1))
        except ValueError as error:
            found.not_understood.append((number, f"{stripped} ({error})"))
            continue
        for words in commands:
            _read_words(words, number, whole, found)
            if _PREFIX.match(line) and len(words) == 2 and not _ASSIGNMENT.fullmatch(words[0]):
                name, value = words  # ENV NAME VALUE
                _take(whole, found, name, value, number, is_lasting=True)
    return found


def _commands(line: str) -> list[list[str]]:
    """Split a line into its commands, and each into words; raises ValueError for an open quote."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with those that they go on in, each with the number of its first."""
    kept, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\"):
            kept += line[:-1] + " "
            continue
        yield first, kept + line
        kept, first = "", 0
    if kept:
        yield first, kept


def _read_words(words: list[str], number: int, whole: Launched, found: LaunchFile) -> None:
    """Take the assignments of a line, and what of it places a program."""
    declares = bool(words) and words[0] in _DECLARING
    i = 0
    while i < len(words) and (words[i] in _SKIPPED or _ASSIGNMENT.fullmatch(words[i])):
        i += 1
    is_lasting = declares or i == len(words)
    for word in words[:i]:
        if match := _ASSIGNMENT.fullmatch(word):
            _take(whole, found, match[1], match[2], number, is_lasting=is_lasting)
    if words[:1] == ["unset"]:
        whole.assignments = [each for each in whole.assignments if each.name not in words]
        return
    for before, word in zip(words[i:], words[i + 1 :], strict=False):
        match = _ASSIGNMENT.fullmatch(word)
        if before in _OPTIONS and match:
            _take(whole, found, match[1], match[2], number, is_lasting=True)
        elif match and is_tuning_variable(match[1]):
            found.not_understood.append((number, word))
    _read_placing(words[i:], number, whole, found)


def _read_placing(words: list[str], number: int, whole: Launched, found: LaunchFile) -> None:
    tools = [word.rpartition("/")[2] for word in words]
    if not any(tool in _PLACING for tool in tools):
        return
    pairs = [*itertools.pairwise(words)]
    for word in words:
        option, equals, value = word.partition("=")
        if option.startswith("--") and equals:
            pairs.append((option, value))
    lists = [value for option, value in pairs
             if _CPU_OPTIONS.match(option) and _CPUS.fullmatch(value)
             and "node" not in option]  # fmt: skip
    whole.cpus += [(each, number) for each in lists]
    if not lists:
        found.not_understood.append((number, " ".join(words)))


def _take(
    launched: Launched,
    found: LaunchFile,
    name: str,
    value: str,
    number: int,
    *,
    is_lasting: bool,
) -> None:
    """Take an assignment whose value stands there; of one that is computed, say so."""
    own = re.compile(_SELF.pattern % (re.escape(name), re.escape(name)))
    value = own.sub("", value)  # LD_PRELOAD=$LD_PRELOAD:libjemalloc.so
    if "$" in value or "`" in value:
        if is_tuning_variable(name):
            found.not_understood.append((number, f"{name}={value} (the shell computes it)"))
        return
    if VARIABLE_NAME.fullmatch(name):
        launched.assignments.append(Assignment(name, value, number, is_lasting))


def _manifest(path: Path, text: str) -> LaunchFile:
    """Read the containers of a manifest: every mapping that has an `env`, and its limit of CPUs."""
    found = LaunchFile([], [])
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        told = " ".join(str(error).split())[:200]
        raise UsageError(f"{path} is no YAML: {told}") from error
    for document in documents:
        for node in _mappings(document):
            fields = {key.value: value for key, value in node.value}
            if isinstance(fields.get("env"), yaml.SequenceNode):
                found.launched.append(_container(fields, found))
    return found


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _mappings(each)


def _container(fields: dict[str, yaml.Node], found: LaunchFile) -> Launched:
    name = fields.get("name")
    launched = Launched(name.value if isinstance(name, yaml.ScalarNode) else "")
    for entry in fields["env"].value:
        line = entry.start_mark.line + 1
        parts = {k.value: v for k, v in entry.value} if isinstance(entry, yaml.MappingNode) else {}
        named, value = parts.get("name"), parts.get("value")
        if isinstance(named, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
            if "$(" in value.value:  # of another variable, as Kubernetes writes it
                found.not_understood.append((line, f"{named.value}={value.value}"))
            else:
                launched.assignments.append(Assignment(named.value, value.value, line))
        else:
            told = named.value if isinstance(named, yaml.ScalarNode) else "an entry of env"
            found.not_understood.append((line, f"{told} (its value does not stand here)"))
    launched.cpu_limit = _cpu_limit(fields.get("resources"))
    return launched


def _cpu_limit(resources: yaml.Node | None) -> float | None:
    node: yaml.Node | None = resources
    for key in ("limits", "cpu"):
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for k, value in node.value if k.value == key), None)
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", str(text))
    return None if match is None else float(match[1]) / (1000 if match[2] else 1)
