"""The files that other people's scripts read: written whole or not at all, with their schemas."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from tuner.errors import StorageFailed, UsageError
from tuner.record.recommendation import (
    RECOMMENDATION_VERSION,
    Recommendation,
    fault_of,
)
from tuner.record.result import SCHEMA_VERSION, Result
from tuner.record.result_faults import fault_of_result

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders for unreadable data, including invalid UTF-8 and excessive nesting."""
_LONGEST = 200
SCHEMAS = Path(__file__).parent / "schemas"
RESULT_SCHEMA = SCHEMAS / f"result-{SCHEMA_VERSION}.json"
RECOMMENDATION_SCHEMA = SCHEMAS / f"recommended-{RECOMMENDATION_VERSION}.json"


def in_short(error: Exception) -> str:
    """Return a decoder's message, in one line at most: it may repeat a whole value."""
    text = str(error)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _needed(path: Path) -> str:
    return f"a recommended*.toml is needed here, for instance {recommendation_near(path)}"


def _not_a(what: str, suffix: str, path: Path, error: Exception, needed: str) -> str:
    """Say what a file is by its name; if it has the right suffix, with the decoder's message."""
    kind = kind_of(path)
    if kind and path.suffix.lower() != suffix:
        return f"{path} is {kind}; {needed}"
    return f"{path} is not a {what}: {in_short(error)}; {needed}"


def write_whole(path: Path, text: str, *, executable: bool = False) -> None:
    """Replace a file at once; raises StorageFailed if the disk refuses."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if executable:  # for all who may read it, which the umask decides
            mode = temporary.stat().st_mode
            temporary.chmod(mode | (mode & 0o444) >> 2)
        temporary.replace(path)
    except OSError as error:
        raise StorageFailed(f"cannot write {path}: {error.strerror}") from error


def make_folder(folder: Path) -> None:
    """Make a folder and all above it; raises StorageFailed if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"cannot make the folder {folder}: {error.strerror}") from error


def write_result(path: Path, result: Result) -> None:
    """Write `result.json`."""
    data = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_whole(path, data.decode() + "\n")


def read_result(path: Path) -> Result:
    """Read `result.json`; raises UsageError if it is not one."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Result)
    except OSError as error:
        raise UsageError(
            f"there is no result in {path.parent}: {error.strerror}; name a report folder"
        ) from error
    except UNREADABLE as error:
        needed = "the result.json of a study is needed here"
        what = "result that this version reads"
        raise UsageError(_not_a(what, ".json", path, error, needed)) from error
    if fault := fault_of_result(found):
        raise UsageError(f"{path} is not a result that this version reads: {fault}")
    return found


def results_below(folder: Path, option: str = "") -> list[Path]:
    """Return every result.json below a folder; raises UsageError if there is none.

    option: how the user named the folder, for the message.
    """
    try:
        paths = sorted(folder.rglob("result.json"))
    except OSError as error:
        raise UsageError(f"{option}{folder}: {error.strerror} ({error.filename})") from error
    if paths:
        return paths
    if not folder.exists():
        raise UsageError(f"{option}{folder}: there is no such folder")
    if begun := sorted(path.parent for path in folder.rglob("study.jsonl")):
        raise UsageError(
            f"{option}{folder}: the study in {begun[0]} has no result yet; the command that began "
            "it finishes it"
        )
    raise UsageError(
        f"{option}{folder}: no result.json lies below it; name the folder of an "
        "earlier study, or one that holds several"
    )


_HOW = """\
# Launch settings stand in [environment] as variables; where needs_code_change is true, `how` says
# what the program must do.

"""
_READ_FIRST = ("settings", "environment", "claim")
"""The tables that a person opens the file for; the rest is for `verify`."""
_CONFIRMED = f"# What to set, as confirmed by tune-framework.\n{_HOW}"
_EXPECTED = {
    "predicted": "# What to set by the guidelines of tune-framework: nothing of it was measured on "
    f"this model.\n# tune-framework verify measures it.\n{_HOW}",
    "looked_up": "# What to set by a study of this model on another day, and maybe on another such "
    f"host.\n# tune-framework verify measures it here.\n{_HOW}",
}


def write_recommendation(path: Path, recommendation: Recommendation) -> None:
    """Write a `recommended.toml`."""
    header = _EXPECTED.get(recommendation.claim.verdict, _CONFIRMED)
    if nothing := recommendation.nothing_set:
        header = f"# {nothing[0].upper()}{nothing[1:]}.\n\n"
    fields = _without_none(recommendation)
    write_whole(path, header + tomli_w.dumps({key: fields[key] for key in _READ_FIRST} | fields))


def _without_none(value: Any) -> Any:
    """Turn structs into plain data; TOML has no null."""
    plain = json.loads(msgspec.json.encode(value))

    def strip(part: Any) -> Any:
        if isinstance(part, dict):
            return {k: strip(v) for k, v in part.items() if v is not None}
        if isinstance(part, list):
            return [strip(v) for v in part]
        return part

    return strip(plain)


def read_recommendation(path: Path) -> Recommendation:
    """Read a `recommended.toml`, or a study's in its folder; raises UsageError if it is not one."""
    given = path
    if path.is_dir():
        path /= RECOMMENDED
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        found = msgspec.convert(raw, Recommendation)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; {_needed(given)}") from error
    except (tomllib.TOMLDecodeError, ValueError, *UNREADABLE) as error:
        raise UsageError(_not_a("recommendation", ".toml", path, error, _needed(given))) from error
    if fault := fault_of(found):
        raise UsageError(f"{path} is not a recommendation: {fault}")
    return found


RECOMMENDED = "recommended.toml"
_OF_A_STUDY = {
    "report.html": "a report",
    "report.md": "a report",
    "result.json": "the result of a study",
    "run.sh": "a launch script",
}
"""Files of a study's folder, by their names."""
_BY_SUFFIX = {
    ".html": "a web page",
    ".md": "a Markdown document",
    ".json": "a JSON file",
    ".jsonl": "a file of JSON lines",
    ".sh": "a shell script",
    ".env": "a file of environment variables",
    ".py": "a Python program",
    ".yaml": "a YAML file",
    ".yml": "a YAML file",
    ".toml": "a TOML file",
    ".db": "a database",
    ".svg": "a picture",
    ".png": "a picture",
}


def kind_of(path: Path) -> str:
    """Name the kind of a file by its name, with an article; empty if the name does not show it."""
    if path.match("recommended*.toml"):
        return "a recommendation"
    return _OF_A_STUDY.get(path.name) or _BY_SUFFIX.get(path.suffix.lower(), "")


def recommendation_near(path: Path) -> str:
    """Return the path of a recommendation in, below or next to a path, or an example of one."""
    try:
        folder = path if path.is_dir() else path.parent
        below = sorted(folder.glob(f"*/{RECOMMENDED}")) if folder == path else []
        found = [each for each in (folder / RECOMMENDED, *below) if each.is_file()]
    except (OSError, ValueError):  # what may not be looked at, or can be no path
        found = []
    return str(found[0] if found else Path("DIR") / RECOMMENDED)
