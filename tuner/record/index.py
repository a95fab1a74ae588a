"""index.json: which studies of several models there are in a folder, and how far each has come."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.files import UNREADABLE, in_short, write_whole
from tuner.record.interval import Interval
from tuner.record.lines import check_place
from tuner.record.result import Result, Verdict

INDEX_VERSION = 1
CONFIRMED, REFUTED, INCONCLUSIVE = "confirmed", "refuted", "inconclusive"
FILE = "index.json"
PAGES = ("index.md", "index.html")
FLEET_FILE = "fleet.jsonl"
"""Next to the index of a fleet: what its drivers write (record/fleet.py)."""
State = Literal["pending", "done", "failed"]


class Elsewhere(msgspec.Struct, frozen=True):
    """A winner that was measured again, with the default, on another host of its kind."""

    host: str
    verdict: str
    """confirmed, refuted or inconclusive."""
    reason: str
    speedup: Interval | None
    n_rounds: int
    seconds: float


class Kind(msgspec.Struct, frozen=True):
    """Hosts that are alike in all that changes results."""

    name: str
    """The first digits of their fingerprint."""
    fingerprint: str
    summary: str
    """The versions, on one line."""


class Row(msgspec.Struct, frozen=True):
    """A study of one model in one framework, in a fleet on one kind of host."""

    model: str
    """As typed."""
    framework: str
    state: State = "pending"
    reason: str = ""
    """Why it failed, or was interrupted last."""
    folder: str = ""
    """The study's folder below the index's own; empty if no study could be begun."""
    host: str = ""
    """The one that it was last begun on: in words, in a fleet by its name."""
    hosts: list[str] = []
    """The hosts of a fleet that it ran on, one after another."""
    seconds: float = 0.0
    """Of the wall clock, in all sessions; 0 while it is pending."""
    options: str = ""
    """A hash over the options of each model."""
    exit_code: int = 0
    """Of a study by itself."""
    verdict: Verdict | Literal[""] = ""
    """faster, keep_default or ambiguous, for the recommendation; empty before it is done, and in
    files of earlier versions."""
    speedup: Interval | None = None
    """The speedup of the recommendation, if it is faster."""
    configuration: dict[str, Value] = {}
    """The recommendation; empty for the default."""
    kind: str = ""
    """The name of the kind of host; empty of studies of this host alone."""
    elsewhere: list[Elsewhere] = []
    """The results of other hosts of the kind for the winner."""
    n_elsewhere: int = 0
    """The number of hosts that are to confirm it; 0 if there is no other."""

    def is_recommended(self) -> bool:
        """Tell whether there is a winner to ship.

        Others have confirmed it, if any are to, and none has refuted it.
        """
        said = [each.verdict for each in self.elsewhere]
        is_confirmed = said.count(CONFIRMED) >= self.n_elsewhere
        return self.verdict == "faster" and is_confirmed and REFUTED not in said


class Index(msgspec.Struct, frozen=True):
    """Rows in the order in which they were first requested."""

    rows: list[Row] = []
    command: str = ""
    """The last that worked on them."""
    budget_s: float = 0.0
    """Over all of them; of a fleet, of each."""
    kinds: list[Kind] = []
    """Of the hosts of a fleet; nothing for studies of this host alone."""
    passed_over: dict[str, str] = {}
    """Hosts of a fleet that took no part, each with the reason."""
    schema_version: int = INDEX_VERSION


def with_found(row: Row, result: Result) -> Row:
    """Return a row with what its study has found."""
    is_faster = result.verdict == "faster"
    winner = result.winners[result.recommended_class]
    return msgspec.structs.replace(
        row,
        state="done",
        verdict=result.verdict,
        speedup=result.speedup if is_faster else None,
        configuration=winner.configuration if is_faster else {},
    )


def result_of(folder: Path, row: Row) -> Path | None:
    """Return the result of a finished row in a folder's index; None if there is none."""
    path = folder / row.folder / "result.json"
    return path if row.state == "done" and path.is_file() else None


def read_index(folder: Path) -> Index:
    """Return a folder's index; an empty one if there is none.

    Raises UsageError for an invalid file, or one of another version.
    """
    path = folder / FILE
    if not path.exists():
        return Index()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Index)
    except (*UNREADABLE, OSError) as error:
        raise UsageError(
            f"{path} is no index of studies ({in_short(error)}); name another folder with --out"
        ) from error
    if found.schema_version != INDEX_VERSION:
        raise UsageError(
            f"{path} has schema version {found.schema_version}, this tool reads {INDEX_VERSION}; "
            "name another folder with --out"
        )
    return found


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Hold a folder's index for this process alone; let go of it whatever happens.

    Raises UsageError while another process holds it. A lock of the folder itself: nothing is left.
    """
    new = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another run is tuning models into {folder}: wait until it has ended, or name "
                "another folder with --out"
            ) from error
        yield
    finally:
        os.close(descriptor)
        for place in new:
            if any(place.iterdir()):
                break
            place.rmdir()


def check_index_folder(folder: Path) -> None:
    """Raise UsageError unless an index may be written to a folder; change nothing.

    It is to be writable, and a page of that name in it is to be an index's.
    """
    check_place(folder)
    other = next((name for name in PAGES if (folder / name).exists()), None)
    is_index = any((folder / name).exists() for name in (FILE, FLEET_FILE))
    if other is not None and not is_index:
        raise UsageError(
            f"{folder} holds {other}, which is no index of studies and would be replaced; name "
            "another folder with --out"
        )


def write_index_file(folder: Path, index: Index) -> None:
    """Write index.json, whole or not at all."""
    data = msgspec.json.format(msgspec.json.encode(index), indent=2)
    write_whole(folder / FILE, data.decode() + "\n")
