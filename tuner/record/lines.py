"""The lines that a study's files consist of: appended whole and synced, read whole or refused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tuner.errors import StorageFailed, StudyConflict, UsageError
from tuner.record.integrity import JOURNAL, LAUNCHES, damaged
from tuner.record.journal import (
    Extended,
    LaunchLine,
    Note,
    SessionOpened,
    StudyFinished,
    StudyOpened,
)


class NoteLine(msgspec.Struct):
    """A line of the journal."""

    used_s: float
    note: Note
    notes: int = 0
    """How many notes the journal held before; 0 in studies of earlier versions."""
    launches: int = 0
    """How many launches had been opened; 0 in studies of earlier versions."""


class LaunchFileLine(msgspec.Struct):
    """A line of a launch's file."""

    used_s: float
    note: LaunchLine
    notes: int = 0
    """How many notes the journal held; 0 in studies of earlier versions."""


class Written(msgspec.Struct, frozen=True):
    """The content of a line of either kind, and the budget used when it was written."""

    used_s: float
    note: Note | LaunchLine
    launch: int = 0
    """The launch whose file it is in; 0 for the journal."""


_BEGINS = b'{"used_s":'
"""Every line begins so."""


def _whole_lines(folder: Path, file: str) -> list[bytes]:
    """Return every line that was written to its end, with it.

    A crash cuts the last line short, and that one alone. Raises StudyDamaged where several lines
    have lost their ends: they are not passed over, nor cut off.
    """
    *whole, torn = (folder / file).read_bytes().split(b"\n")
    if torn.count(_BEGINS) > 1:
        raise damaged(folder, f"{file}:{len(whole) + 1}", "holds lines without an end")
    return [line + b"\n" for line in whole]


def read_lines(folder: Path, file: str, decode: Callable[[bytes], Any]) -> list[Any]:
    """Return the decoded lines of a study's file; raises StudyDamaged for an invalid one."""
    found: list[Any] = []
    try:
        for line in _whole_lines(folder, file):
            found.append(decode(line))
            unknown = _unknown(msgspec.json.decode(line), msgspec.to_builtins(found[-1]))
            if unknown is not None:
                where = f"{file}:{len(found)}"
                raise damaged(folder, where, f"holds {unknown[:80]!r}, which is not known here")
    except OSError as error:
        raise damaged(folder, file, f"cannot be read ({error.strerror})") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        where = f"{file}:{len(found) + 1}"
        raise damaged(folder, where, f"cannot be read ({error})") from error
    return found


def _unknown(written: Any, understood: Any) -> str | None:
    """Return a name in a line that was not understood; None if all of it was.

    A name that is damaged must not turn into the default of the field that it was.
    """
    if isinstance(written, dict) and isinstance(understood, dict):
        for name, value in written.items():
            if name not in understood:
                return str(name)
            if (found := _unknown(value, understood[name])) is not None:
                return found
    elif isinstance(written, list):
        pairs = zip(written, understood, strict=False)
        return next((name for a, b in pairs if (name := _unknown(a, b)) is not None), None)
    return None


def opened_in(folder: Path) -> StudyOpened | None:
    """Return how the study in a folder was opened, without locking or changing it; None if none."""
    if not (folder / JOURNAL).is_file():
        return None
    notes = read_lines(folder, JOURNAL, msgspec.json.Decoder(NoteLine).decode)
    return next((line.note for line in notes if isinstance(line.note, StudyOpened)), None)


def goes_on_with(folder: Path) -> str | None:
    """Return the command that goes on with the study of a folder; None if none is unfinished there.

    That of the latest session; empty in studies of earlier versions that no session measured for.
    """
    if not (folder / JOURNAL).is_file():
        return None
    notes = [n.note for n in read_lines(folder, JOURNAL, msgspec.json.Decoder(NoteLine).decode)]
    extended = max((i for i, note in enumerate(notes) if isinstance(note, Extended)), default=0)
    if any(isinstance(note, StudyFinished) for note in notes[extended:]):
        return None
    commands = [
        n.command for n in notes if isinstance(n, (StudyOpened, SessionOpened)) and n.command
    ]
    return commands[-1] if commands else ""


def check_place(folder: Path) -> None:
    """Raise UsageError unless a folder is there and may be written, or can be made."""
    place = next(
        p
        for p in (folder, *folder.absolute().parents)
        if os.path.exists(p)  # noqa: PTH110  # pathlib raises for what may not be looked at
    )
    if not place.is_dir() or not os.access(place, os.W_OK):
        why = "may not be written" if place.is_dir() else "is no folder"
        raise UsageError(
            f"cannot write to {folder}: {place} {why}; name a writable folder with --out"
        )


def check_folder(folder: Path) -> None:
    """Raise unless a folder is writable and new, empty, or holds a study; change nothing.

    Raises UsageError for other files, StudyDamaged where launches have lost their journal.
    """
    check_place(folder)
    journal = folder / JOURNAL
    try:
        if not folder.is_dir() or (journal.is_file() and any(_whole_lines(folder, JOURNAL))):
            return
    except OSError as error:
        raise UsageError(
            f"cannot read {journal}: {error.strerror}; name a folder of your own with --out"
        ) from error
    if any((folder / LAUNCHES).glob("*.jsonl")):
        raise damaged(folder, JOURNAL, "is empty" if journal.exists() else "is missing")
    names = (p.name for p in folder.iterdir() if not p.name.startswith("."))
    other = next((name for name in names if name not in (LAUNCHES, JOURNAL)), None)
    if other is not None:
        raise UsageError(
            f"{folder} holds other files ({other}) and no study; name an empty or new "
            "folder with --out"
        )


def write_synced(file: BinaryIO, data: bytes, advice: str) -> None:
    """Write all of something to an unbuffered file and sync it; raises StorageFailed.

    advice: for whom the disk refuses.
    """
    try:
        while data:
            data = data[file.write(data) :]
        os.fdatasync(file.fileno())
    except OSError as error:
        raise StorageFailed(f"cannot write {file.name}: {error.strerror}; {advice}") from error


class AppendOnly:
    """A file to which whole lines are appended and synced; advice: for whom the disk refuses."""

    def __init__(self, path: Path, advice: str) -> None:
        self.path = path
        self._advice = advice
        try:
            self._file: BinaryIO = open(path, "ab", buffering=0)
        except OSError as error:
            raise StorageFailed(f"cannot write {path}: {error.strerror}") from error

    def cut_torn_line(self) -> None:
        """Remove an incomplete last line left by a crash; only the lock's holder may do that."""
        whole = sum(map(len, _whole_lines(self.path.parent, self.path.name)))
        if whole < self.path.stat().st_size:
            os.truncate(self.path, whole)

    def append(self, line: msgspec.Struct) -> None:
        """Write a line and sync it; raises StorageFailed."""
        write_synced(self._file, msgspec.json.encode(line) + b"\n", self._advice)

    def lock(self) -> None:
        """Keep other tools from the file; raises StudyConflict where one works on it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StudyConflict(
                f"another tune-framework is working on {self.path.parent}; wait for it, "
                "or name another folder with --out"
            ) from error

    def close(self) -> None:
        """Close the file and release the lock."""
        self._file.close()
