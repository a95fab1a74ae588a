"""Variables and commands of a Dockerfile's stages: ENV, ARG, CMD and ENTRYPOINT."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
from dockerfile_parse import DockerfileParser

from tuner.deploy.commands import Commands
from tuner.deploy.launched import Gap, Launched, LaunchFile, Scope, Value, settings_in
from tuner.deploy.shell import Shell


class _Stage(msgspec.Struct):
    """A stage of a build."""

    launched: Launched
    shell: Shell
    n_inherited: int = 0
    """Assignments of the stage that it begins from."""
    is_base: bool = False
    """Another stage begins from it."""


def read_dockerfile(path: Path, text: str) -> LaunchFile:
    """Read the stages that no other begins from, each with what it inherits."""
    file = LaunchFile([])
    stages: list[_Stage] = []
    arguments = _stage(file, path, "")  # ARG before the first FROM
    for entry in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        line, value = entry["startline"] + 1, entry["value"].strip()
        kind = entry["instruction"].upper()
        if kind == "FROM":
            stages.append(_begun(file, path, value, stages, arguments))
        else:
            _read(kind, value, line, stages[-1] if stages else arguments, file, path)
    for stage in stages or [arguments]:
        stage.shell.end()
        if not stage.is_base:
            _replace_inherited(stage)
            file.launched.append(stage.launched)
    if len(file.launched) == 1:
        file.launched[0].name = ""
    return file


def _stage(file: LaunchFile, path: Path, name: str) -> _Stage:
    launched = Launched(name, Scope.IMAGE)
    shell = Shell(file, launched, path.parent)
    shell.is_script = False
    return _Stage(launched, shell)


def _begun(
    file: LaunchFile, path: Path, value: str, stages: list[_Stage], arguments: _Stage
) -> _Stage:
    """Begin a stage: FROM IMAGE [AS NAME]; it inherits from an earlier stage."""
    words = [word for word in value.split() if not word.startswith("--")]
    base = arguments.shell.interpolated(words[0]).text if words else ""
    name = words[2] if len(words) > 2 and words[1].casefold() == "as" else f"stage {len(stages)}"
    new = _stage(file, path, name)
    for earlier in stages:
        if earlier.launched.name.casefold() == base.casefold():
            earlier.is_base = True
            new.launched.assignments = list(earlier.launched.assignments)
            new.launched.not_understood = list(earlier.launched.not_understood)
            new.launched.n_commands = earlier.launched.n_commands
            new.n_inherited = len(new.launched.assignments)
            new.shell.variables = dict(earlier.shell.variables)
    return new


def _replace_inherited(stage: _Stage) -> None:
    """Drop inherited values that a stage sets again: that is not a contradiction."""
    inherited = stage.launched.assignments[: stage.n_inherited]
    own = stage.launched.assignments[stage.n_inherited :]
    names = {each.name for each in own if not each.command}
    stage.launched.assignments = [each for each in inherited if each.name not in names] + own


def _read(kind: str, value: str, line: int, stage: _Stage, file: LaunchFile, path: Path) -> None:
    launched, shell = stage.launched, stage.shell
    if kind == "ENV":
        words = value.split(None, 1)
        if len(words) > 1 and "=" not in words[0]:  # ENV NAME VALUE
            shell.define(words[0], shell.interpolated(words[1].strip("\"'")), line)
        else:
            shell.run(f"export {value}", line - 1)
    elif kind == "ARG":
        name, equals, default = value.partition("=")
        if equals:
            shell.define(name, shell.interpolated(default.strip("\"'"))._replace(unless=name))
    elif kind in ("CMD", "ENTRYPOINT"):
        _command(value, line, stage, file, path)
    elif kind == "RUN":
        scratch = Launched(launched.name, Scope.IMAGE)
        Shell(file, scratch, path.parent).run(value, line - 1)
        # what it sets ends with it; what it writes may be read when the image is started
        launched.not_understood += [n for n in scratch.not_understood if n.gap is Gap.TEXT]
    elif kind not in _OTHERS:
        for setting in settings_in(value):
            launched.note(line, setting, Gap.SYNTAX)


_OTHERS = ("ADD", "COPY", "COMMENT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
           "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR")  # fmt: skip


def _command(value: str, line: int, stage: _Stage, file: LaunchFile, path: Path) -> None:
    """Read a command in either form: ["python", "serve.py"], or as a shell has it."""
    try:
        words = json.loads(value) if value.startswith("[") else None
    except (ValueError, RecursionError):
        words = None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        commands = Commands(file, stage.launched, path.parent, stage.shell.run_inside)
        commands.begin()
        commands.read([Value(word) for word in words], line)
    else:
        stage.shell.run_inside(Value(value), line)
