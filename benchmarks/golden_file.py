"""The course of replayed studies as a file, and where two courses part.

A course is what a study did and said, and none of its prose: the launches in their order, what
became of every trial, the finalists, the claims, the phases' ends. Numbers are exact: JSON's
shortest decimals are read back as the very same floats.

A file is gzipped JSON. Texts, which repeat, stand once in `texts`; rows refer to them by number and
are stored column by column, which makes the file a quarter as large.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import msgspec

_PACER = "pacer"


class Launched(msgspec.Struct, frozen=True, array_like=True):
    """A launch, in the order in which they were made."""

    configuration: str
    batch: int
    purpose: str
    round: int
    n_slices: int
    outcome: str

    def __str__(self) -> str:
        slices = "" if self.is_resident else f"{self.n_slices} slices, "
        beside = f"{self.purpose}, batch {self.batch}, round {self.round}"
        return f"{self.configuration} ({beside}, {slices}{self.outcome})"

    @property
    def is_resident(self) -> bool:
        """Whether other launches come before its last slice."""
        return self.purpose == _PACER


class Tried(msgspec.Struct, frozen=True, array_like=True):
    """A trial as it was told: its launch (from 1 on), who proposed it, the score it then had."""

    launch: int
    source: str
    score: float | None

    def __str__(self) -> str:
        return f"score {self.score} (proposed by {self.source})"


class Named(msgspec.Struct, frozen=True, array_like=True):
    """A finalist, as a phase named it, and the score that it has in the end."""

    phase: str
    winner_class: str
    configuration: str
    score: float | None

    def __str__(self) -> str:
        return f"{self.configuration}, in the end with score {self.score}"


class Claimed(msgspec.Struct, frozen=True, array_like=True):
    """What is claimed of a class in the end."""

    winner_class: str
    configuration: str
    verdict: str
    n_rounds: int
    point: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        interval = f"{self.point} ({self.low} - {self.high})"
        return f"{self.verdict}, {self.configuration}, {interval} over {self.n_rounds} rounds"


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A phase's end, in virtual seconds."""

    phase: str
    at_s: float


class Course(msgspec.Struct, frozen=True):
    """What one study did and said."""

    seed: int
    launches: tuple[Launched, ...]
    trials: tuple[Tried, ...]
    finalists: tuple[Named, ...]
    claims: tuple[Claimed, ...]
    recommended: str
    """The class that would ship."""
    ends: tuple[Ended, ...]
    launch_sd: float
    """By how much launches of one configuration are said to differ in the end (log rate)."""

    def told(self) -> Iterator[tuple[str, str]]:
        """Yield everything in the order in which it came about, each as what it is and its value.

        Two courses are equal if and only if these are: a float's text is that float alone.
        """
        trials = {trial.launch: (n, trial) for n, trial in enumerate(self.trials, 1)}
        for n, launched in enumerate(self.launches, 1):
            yield f"launch {n}", str(launched)
            if n in trials:
                number, trial = trials[n]
                yield f"trial {number} ({launched.configuration})", str(trial)
        for n, launched in enumerate(self.launches, 1):
            if launched.is_resident:
                yield f"slices of launch {n} ({launched.purpose})", str(launched.n_slices)
        for end in self.ends:
            yield f"end of {end.phase}", f"{end.at_s} s"
        for named in self.finalists:
            yield f"finalist of {named.winner_class} after {named.phase}", str(named)
        for claim in self.claims:
            yield f"claim of {claim.winner_class}", str(claim)
        yield "recommended class", self.recommended
        yield "SD of launches", str(self.launch_sd)


def first_difference(recorded: Course, now: Course) -> str:
    """Say where two courses part, recorded value first; empty if they are the same."""
    nothing = "", "nothing"
    for before, after in zip_longest(recorded.told(), now.told(), fillvalue=nothing):
        if before != after:
            if before[0] == after[0]:
                return f"{before[0]}: recorded {before[1]}, now {after[1]}"
            return f"recorded {' '.join(before).strip()}, now {' '.join(after).strip()}"
    return ""


class Golden(msgspec.Struct, frozen=True):
    """What was recorded of one source of studies."""

    versions: dict[str, str]
    """Of what computes: other versions may compute other last digits."""
    courses: tuple[Course, ...]


class _File(msgspec.Struct, frozen=True):
    """Golden as it is stored."""

    versions: dict[str, str]
    texts: list[str]
    courses: list[dict[str, Any]]


_ROWS: dict[str, type[msgspec.Struct]] = {
    "launches": Launched,
    "trials": Tried,
    "finalists": Named,
    "claims": Claimed,
    "ends": Ended,
}
_Row = TypeVar("_Row", bound=msgspec.Struct)


def write_golden(path: Path, golden: Golden) -> None:
    """Write a file, all of it or nothing."""
    texts: dict[str, int] = {}
    courses = [
        {
            "seed": course.seed,
            "recommended": course.recommended,
            "launch_sd": course.launch_sd,
            **{name: _columns(getattr(course, name), row, texts) for name, row in _ROWS.items()},
        }
        for course in golden.courses
    ]
    draft = path.with_name(f".{path.name}.new")
    data = msgspec.json.encode(_File(golden.versions, list(texts), courses))
    # without a name and a moment in it the same recording is the same file
    draft.write_bytes(gzip.compress(data, mtime=0))
    draft.replace(path)


def read_golden(path: Path) -> Golden:
    """Read what was written; raises msgspec.ValidationError for another file."""
    file = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=_File)
    courses = [
        {**course, **{name: _rows(course[name], row, file.texts) for name, row in _ROWS.items()}}
        for course in file.courses
    ]
    return Golden(file.versions, msgspec.convert(tuple(courses), tuple[Course, ...]))


def _is_text(row: type[msgspec.Struct]) -> list[bool]:
    return [field.type is str for field in msgspec.structs.fields(row)]


def _columns(
    rows: Sequence[msgspec.Struct], row: type[msgspec.Struct], texts: dict[str, int]
) -> list[list[Any]]:
    columns: Iterable[Sequence[Any]] = zip(*map(msgspec.structs.astuple, rows), strict=True)
    return [
        [texts.setdefault(value, len(texts)) for value in column] if is_text else list(column)
        for column, is_text in zip(columns, _is_text(row), strict=bool(rows))
    ]


def _rows(columns: list[list[Any]], row: type[_Row], texts: list[str]) -> list[_Row]:
    read = [
        [texts[value] for value in column] if is_text else column
        for column, is_text in zip(columns, _is_text(row), strict=bool(columns))
    ]
    return [msgspec.convert(values, row) for values in zip(*read, strict=True)]
