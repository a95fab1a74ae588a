"""The variables, CPUs and memory of a systemd unit (systemd.exec(5), and others).

Parsers of INI files do not work: units repeat keys, continue with a backslash, and lines are
needed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tuner.deploy.commands import Commands
from tuner.deploy.env_file import read_env
from tuner.deploy.launched import (
    ASSIGNMENT,
    Gap,
    Launched,
    LaunchFile,
    Value,
    settings_in,
)
from tuner.deploy.shell import Shell

_EXEC = ("ExecStart", "ExecStartPre", "ExecStartPost")
_CPUS = ("CPUAffinity", "AllowedCPUs", "StartupAllowedCPUs")
_NODES = ("NUMAMask", "AllowedMemoryNodes", "StartupAllowedMemoryNodes")
_MEMORY = ("MemoryMax", "MemoryHigh", "MemoryLimit")
_SPECIFIER = re.compile(r"%[A-Za-z]")
"""Replaced by systemd when it starts the unit."""


def read_unit(path: Path, text: str) -> LaunchFile:
    """Read a unit's section that starts the program."""
    launched = Launched()
    file = LaunchFile([launched])
    shell = Shell(file, launched, path.parent)
    shell.is_script = False
    for line, key, value in _settings(text):
        if key == "Environment" and not value:
            launched.assignments = []
        elif key == "Environment":
            _environment(value, line, launched, shell)
        elif key == "EnvironmentFile":
            read_env(Value(value.removeprefix("-")), line, launched, path.parent)
        elif key == "PassEnvironment":
            for name in value.split():
                if settings_in(f"{name}="):
                    launched.note(line, name, Gap.NOT_SET_HERE)
        elif key == "UnsetEnvironment":
            launched.assignments = [each for each in launched.assignments
                                    if each.name not in value.split()]  # fmt: skip
        elif key in _EXEC:
            _start(value, line, file, launched, path.parent, shell)
        else:
            take_property(launched, key, Value(value), line)
    for drop_in in sorted((path.parent / f"{path.name}.d").glob("*.conf")):
        launched.note(1, f"{path.name}.d/{drop_in.name}", Gap.ELSEWHERE)
    return file


def _settings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield each setting of a service with its line, in the order of the file."""
    kept, first, section = "", 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith(("#", ";")):
            continue
        first = first or number
        if line.endswith("\\"):
            kept += f"{line[:-1]} "
            continue
        whole, at = f"{kept}{line}".strip(), first
        kept, first = "", 0
        if whole.startswith("["):
            section = whole
        key, equals, value = whole.partition("=")
        if equals and section in ("", "[Service]", "[Scope]", "[Slice]"):
            yield at, key.strip(), value.strip()


def _environment(value: str, line: int, launched: Launched, shell: Shell) -> None:
    try:
        words = shlex.split(value)
    except ValueError:
        for setting in settings_in(value):
            launched.note(line, setting, Gap.SYNTAX)
        return
    for word in words:
        if match := ASSIGNMENT.fullmatch(word):
            gap = Gap.NOT_SET_HERE if _SPECIFIER.search(match[2]) else None
            shell.define(match[1], Value(match[2].replace("%%", "%"), gap), line)
        else:
            for setting in settings_in(f"{word}="):
                launched.note(line, setting, Gap.BLANKS)


def _start(
    value: str, line: int, file: LaunchFile, launched: Launched, folder: Path, shell: Shell
) -> None:
    """Read the command of ExecStart=, with $NAME for the unit's own variables."""
    try:
        words = shlex.split(value.lstrip("-@:+!|"))
    except ValueError:
        launched.note(line, value, Gap.SYNTAX)
        return
    commands = Commands(file, launched, folder)
    commands.begin()
    expanded: list[Value] = []
    for word in words:
        known = shell.interpolated(word)
        is_split = re.fullmatch(r"\$\w+", word) and known.gap is None  # $NAME alone is split
        expanded += [Value(part) for part in known.text.split()] if is_split else [known]
    commands.read(expanded, line)


def take_property(launched: Launched, key: str, value: Value, line: int) -> None:
    """Take a setting that grants or binds CPUs, nodes or memory."""
    text = value.text
    if key in (*_CPUS, *_NODES):
        if text:
            listed = re.sub(r"[\s,]+", ",", text)
            launched.place(value._replace(text=listed), line, f"{key}=", is_nodes=key in _NODES)
        else:
            launched.placements = [each for each in launched.placements if each.by != f"{key}="]
    elif key == "CPUQuota" and text:
        launched.limit_cpus(value, line, "CPUQuota=")
    elif key in _MEMORY and text not in ("", "infinity"):
        launched.limit_memory(value, line, f"{key}=")
    elif key == "Slice":
        launched.note(line, f"Slice={text}", Gap.ELSEWHERE)
