"""An env file, as docker compose, systemd and python-dotenv read it: NAME=VALUE on each line."""

from __future__ import annotations

import io
from pathlib import Path

from dotenv.parser import parse_stream

from tuner.deploy.launched import (
    Assignment,
    Gap,
    Launched,
    LaunchFile,
    Value,
    read_beside,
    settings_in,
)


def read_env(path: Value, line: int, launched: Launched, folder: Path) -> None:
    """Take the variables of an env file that another file names, if it is in the folder.

    line: of the other file, where it is named.
    """
    text = read_beside(folder, path.text) if path.gap is None else None
    if text is None:
        launched.note(line, path.text, Gap.ELSEWHERE)
    else:
        take_env(text, launched, Path(path.text).name)


def take_env(text: str, launched: Launched, name: str = "") -> None:
    """Take the variables of an env file's text; name: of the file, if it is not the launch file."""
    from tuner.deploy.shell import Shell  # whose commands name env files

    shell = Shell(LaunchFile([]), Launched(), Path())  # for ${NAME:-default}
    for binding in parse_stream(io.StringIO(text)):
        # a binding begins with the blank lines before it
        blank = len(binding.original.string) - len(binding.original.string.lstrip())
        line = binding.original.line + binding.original.string[:blank].count("\n")
        if binding.error:
            for setting in settings_in(binding.original.string):
                launched.note(line, setting, Gap.SYNTAX, name)
        elif binding.key is not None:
            value = shell.interpolated(binding.value or "")
            shell.define(binding.key, value)
            launched.take(Assignment(binding.key, value.text, line, gap=value.gap,
                                     unless=value.unless, file=name))  # fmt: skip
