"""The content of a launch file, never executed: its kind follows from name and content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tuner.deploy.dockerfile import read_dockerfile
from tuner.deploy.env_file import take_env
from tuner.deploy.launched import Gap, Launched, LaunchFile, Limit, Value
from tuner.deploy.manifest import read_manifest
from tuner.deploy.shell import Shell
from tuner.deploy.unit import read_unit
from tuner.errors import UsageError

_YAML = (".yaml", ".yml", ".json")
_SHELLS = (".sh", ".bash", ".zsh", ".ksh")
_UNITS = (".service", ".conf", ".slice", ".scope")
_DOCKERFILE = re.compile(r"(^|.*[.-])(Dockerfile|Containerfile)([.-].*|$)", re.IGNORECASE)
_LONGEST = 2**20
"""Bytes of a file that is read: no launch file has more."""
_DEEPEST = 100
"""Brackets and braces within one another: no launch file has more, and parsers recurse."""


def read_launch_file(path: Path) -> LaunchFile:
    """Read an env file, a shell script, a Dockerfile, a unit, a manifest, or TorchServe's settings.

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
        raise UsageError(f"{path} has more than {_LONGEST:,} bytes: no launch file is that long")
    begins = text.lstrip("\ufeff \t\r\n")
    if path.suffix in _YAML:
        return read_manifest(path, text)
    if _DOCKERFILE.fullmatch(path.name) or re.match(r"(?:#.*\n|\s)*FROM\s", begins):
        return read_dockerfile(path, text)
    if path.suffix in _UNITS or re.match(r"(?:[#;].*\n|\s)*\[(Unit|Service)\]", begins):
        return read_unit(path, text)
    if path.suffix == ".properties":
        return _torchserve(text)
    if path.suffix == ".env" or path.name.startswith(".env"):
        launched = Launched()
        take_env(text, launched)
        return LaunchFile([launched])
    return _script(path, text)


def _script(path: Path, text: str) -> LaunchFile:
    launched = Launched()
    file = LaunchFile([launched])
    shell = Shell(file, launched, path.parent)
    shell.run(text)
    shell.is_script = path.suffix in _SHELLS or text.startswith("#!") or shell.has_exports
    shell.end()
    is_shell = path.suffix in _SHELLS or re.match(r"#!.*sh\b", text)
    if not is_shell and any(each.gap is Gap.SYNTAX for each in launched.not_understood):
        noted = launched.not_understood
        launched.not_understood = [each for each in noted if each.names_own]
        if not launched.is_empty:  # else it is a text or another language: no command of it counts
            launched.not_understood = noted
    return file


def _torchserve(text: str) -> LaunchFile:
    """Read TorchServe's config.properties: how many workers it starts, and how they are placed.

    https://docs.pytorch.org/serve/configuration.html
    """
    launched = Launched()
    for line, key, value in _properties(text):
        if key == "default_workers_per_model" and value.isdecimal() and int(value):
            launched.workers.append(Limit(float(value), line, f"{key}={value}"))
        elif key == "models":
            _models(value, line, launched)
        elif key == "cpu_launcher_enable" and value.casefold() == "true":
            launched.note(line, f"{key}={value}", Gap.LAUNCHER)
        elif key == "cpu_launcher_args":
            node = re.search(r"--node_id[ =](\S+)", value)
            if node:
                launched.place(Value(node[1]), line, "--node_id", is_nodes=True)
            launched.note(line, f"{key}={value}", Gap.LAUNCHER)
        elif key == "enable_envvars_config" and value.casefold() == "true":
            launched.note(line, "TS_*", Gap.NOT_SET_HERE)
    return LaunchFile([launched])


def _properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the settings of a Java properties file, each with its first line."""
    kept, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if not kept and stripped.startswith(("#", "!")):
            continue
        first = first or number
        if stripped.endswith("\\"):
            kept += stripped[:-1]
            continue
        key, _, value = f"{kept}{stripped}".partition("=")
        if key:
            yield first, key.strip(), value.strip()
        kept, first = "", 0


def _models(value: str, line: int, launched: Launched) -> None:
    """Take how many workers each version of a model begins with."""
    try:
        models = json.loads(value) if value.count("{") + value.count("[") < _DEEPEST else None
    except ValueError:
        models = None
    if not isinstance(models, dict):
        launched.note(line, "models", Gap.SYNTAX)
        return
    for name, versions in models.items():
        for version in versions.values() if isinstance(versions, dict) else ():
            n = version.get("minWorkers") if isinstance(version, dict) else None
            if isinstance(n, int) and not isinstance(n, bool) and n > 0:
                launched.workers.append(Limit(float(n), line, f"minWorkers of {name}: {n}"))
