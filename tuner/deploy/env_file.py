"""An env file, as docker compose, systemd and python-dotenv read it: NAME=VALUE on each line."""

from __future__ import annotations

import io
from pathlib import Path

from dotenv.parser import parse_stream
from dotenv.variables import Variable, parse_variables

from tuner.deploy.launched import (
    Assignment,
    Gap,
    Launched,
    Value,
    joined,
    read_beside,
    settings_in,
)


def read_env(path: Value, line: int, launched: Launched, folder: Path) -> None:
    """Take the variables of an env file that another names, if it lies in the folder.

    line: of the other file, where it is named.
    """
    text = read_beside(folder, path.text) if path.gap is None else None
    if text is None:
        launched.note(line, path.text, Gap.ELSEWHERE)
    else:
        take_env(text, launched, Path(path.text).name)


def take_env(text: str, launched: Launched, name: str = "") -> None:
    """Take the variables of an env file's text; name: of the file, if it is not the launch file."""
    values: dict[str, Value] = {}
    for binding in parse_stream(io.StringIO(text)):
        # a binding begins with the blank lines before it
        blank = len(binding.original.string) - len(binding.original.string.lstrip())
        line = binding.original.line + binding.original.string[:blank].count("\n")
        if binding.error:
            for setting in settings_in(binding.original.string):
                launched.note(line, setting, Gap.SYNTAX, name)
        elif binding.key is not None:
            value = interpolated(binding.value or "", values)
            values[binding.key] = value
            launched.take(Assignment(binding.key, value.text, line, gap=value.gap,
                                     unless=value.unless, file=name))  # fmt: skip


def interpolated(text: str, values: dict[str, Value]) -> Value:
    """Return a text with each ${NAME} and ${NAME:-default} replaced."""
    parts = []
    for atom in parse_variables(text):
        if not isinstance(atom, Variable):
            parts.append(Value(atom.resolve({})))
        elif atom.name in values:
            parts.append(values[atom.name])
        elif atom.default is not None:
            parts.append(Value(atom.default, None, atom.name))
        else:
            parts.append(Value(f"${{{atom.name}}}", Gap.NOT_SET_HERE))
    return joined(parts)
