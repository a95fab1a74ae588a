"""The append-only store of one study: every line is on the disk before the next thing happens.

    study.jsonl           what was decided (record/journal.py), locked while a tool uses it
    launches/0001.jsonl   one launch: its request, preparation, slices, end
    launches/0001.log     what the worker printed

Each line holds `used_s`, the study's budget used so far, so that a killed tool knows it too. A line
that a crash cut short is dropped when the store is opened again; no other line is ever changed.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

import msgspec

from tuner.errors import StorageFailed, StudyConflict, UsageError
from tuner.record.journal import (
    LaunchEnded,
    LaunchLine,
    LaunchOpened,
    Note,
    SliceTaken,
    Started,
    StudyOpened,
)
from tuner.record.launch import Built, Checked, LaunchRecord, LaunchRequest, Prepared, Profiled
from tuner.record.outcome import Ending, Outcome

MIN_ROOM_BYTES = 8 << 20
"""A launch's own files take some kilobytes, a compiler's cache megabytes."""
_NoteT = TypeVar("_NoteT", bound=msgspec.Struct)


class _NoteLine(msgspec.Struct):
    used_s: float
    note: Note


class _LaunchFileLine(msgspec.Struct):
    used_s: float
    note: LaunchLine


def _complete_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) for every line that was written to its end."""
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if line.endswith(b"\n"):
            yield number, line


def _read(path: Path, decode: Callable[[bytes], Any]) -> list[Any]:
    lines = []
    for number, line in _complete_lines(path):
        try:
            lines.append(decode(line))
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{path}:{number} cannot be read ({error}); "
                "move the folder away, or name another with --out"
            ) from error
    return lines


def opened_in(folder: Path) -> StudyOpened | None:
    """Return how the study in a folder was opened, without locking or changing it; None if none."""
    path = folder / "study.jsonl"
    if not path.is_file():
        return None
    notes = _read(path, msgspec.json.Decoder(_NoteLine).decode)
    return next((line.note for line in notes if isinstance(line.note, StudyOpened)), None)


def check_folder(folder: Path) -> None:
    """Raise UsageError for a folder in which no study can be; changes nothing."""
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
    if place == folder and not (folder / "study.jsonl").exists():
        other = next((p.name for p in folder.iterdir() if not p.name.startswith(".")), None)
        if other is not None and other != "launches":
            raise UsageError(
                f"{folder} holds other files ({other}) and no study; name an empty or new "
                "folder with --out"
            )


class _AppendOnly:
    """A file to which whole lines are appended and synced."""

    def __init__(self, path: Path, advice: str) -> None:
        self.path = path
        self._advice = advice
        try:
            self._file: BinaryIO = open(path, "ab", buffering=0)
        except OSError as error:
            raise StorageFailed(f"cannot write {path}: {error.strerror}") from error

    def cut_torn_line(self) -> None:
        """Remove what a crash left without its end; only the holder of the lock may do that."""
        whole = sum(len(line) for _, line in _complete_lines(self.path))
        if whole < self.path.stat().st_size:
            os.truncate(self.path, whole)

    def append(self, line: msgspec.Struct) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise StorageFailed(
                f"cannot write {self.path}: {error.strerror}; {self._advice}"
            ) from error

    def lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StudyConflict(
                f"another tune-framework is working on {self.path.parent}; wait for it, "
                "or name another folder with --out"
            ) from error

    def close(self) -> None:
        self._file.close()


class LaunchFile:
    """The file of a launch under way; keeps the record in memory in step with it."""

    def __init__(self, store: Store, path: Path, request: LaunchRequest) -> None:
        self.record = LaunchRecord(request)
        self.log_path = path.with_suffix(".log")
        self._store = store
        self._file = _AppendOnly(path, store.advice)
        self._append(LaunchOpened(request))

    def _append(self, line: LaunchLine) -> None:
        self._file.append(_LaunchFileLine(self._store.used_s(), line))

    def check_room(self) -> None:
        """Raise StorageFailed if the disk is all but full."""
        self._store.check_room()

    def add(self, line: Started | Built | Prepared | SliceTaken | Checked | Profiled) -> None:
        """Store what the worker told."""
        self._append(line)
        _apply(self.record, line)

    def end(self, ending: Ending, total_s: float, slicing_s: float) -> None:
        """Store how the launch ended and what it took; nothing may follow."""
        line = LaunchEnded(ending, total_s, slicing_s)
        self._append(line)
        _apply(self.record, line)
        self.close()

    def close(self) -> None:
        """Close the file; what is in it stays as it is."""
        self._file.close()


def _apply(record: LaunchRecord, line: LaunchLine) -> None:
    match line:
        case Started():
            record.start_up_s = line.start_up_s
        case Built():
            record.built = line
        case Prepared():
            record.prepared = line
        case SliceTaken():
            if line.n_neighbours:
                record.beside.append(line.slice)
                record.n_neighbours = line.n_neighbours
            else:
                record.slices.append(line.slice)
        case Checked():
            record.check, record.check_s = line.check, line.seconds
        case Profiled():
            record.profile = line
        case LaunchEnded():
            record.ending = line.ending
            record.total_s, record.slicing_s = line.total_s, line.slicing_s


class Store:
    """One study's folder. Use as a context manager; `used_s` is the clock put on every line.

    is_kept: whether the same command finds it again, which is said when the disk is full.

    Raises StudyConflict if another tool uses the folder, UsageError if it cannot be read,
    StorageFailed if it cannot be written.
    """

    def __init__(self, folder: Path, *, is_kept: bool = True) -> None:
        self.folder = folder
        self.advice = "make room"
        if is_kept:
            self.advice = (
                "what was measured before is stored: make room, then run the same command to go on"
            )
        self.notes: list[Note] = []
        self._by_kind: dict[type, list[Any]] = defaultdict(list)
        self.launches: dict[int, LaunchRecord] = {}
        self.used_s: Callable[[], float] = lambda: self.used_before_s
        self.used_before_s = 0.0
        self._launches_folder = folder / "launches"
        check_folder(folder)
        try:
            self._launches_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot write to {folder}: {error.strerror}; name a writable folder with --out"
            ) from error
        try:
            self._journal = _AppendOnly(folder / "study.jsonl", self.advice)
        except StorageFailed as error:
            raise UsageError(f"{error}; name a writable folder with --out") from error
        self._open_files: list[LaunchFile] = []
        try:
            self._journal.lock()
            self._journal.cut_torn_line()
            self._load()
        except BaseException:
            self.close()
            raise

    @property
    def opened(self) -> StudyOpened | None:
        """What the folder holds a study of; None if it is new."""
        return next((note for note in self.notes if isinstance(note, StudyOpened)), None)

    def all(self, kind: type[_NoteT]) -> list[_NoteT]:
        """Return the notes of one kind, oldest first."""
        return list(self._by_kind[kind])

    def add(self, note: Note) -> None:
        """Append a note."""
        self._journal.append(_NoteLine(self.used_s(), note))
        self._keep(note)

    def _keep(self, note: Note) -> None:
        self.notes.append(note)
        self._by_kind[type(note)].append(note)

    def next_launch_id(self) -> int:
        """Return an id that no launch of this study has had."""
        return max(self.launches, default=0) + 1

    def next_slice_index(self) -> int:
        """Return an ordinal that no slice of this study has had."""
        indices = (
            s.index for record in self.launches.values() for s in (*record.slices, *record.beside)
        )
        return max(indices, default=-1) + 1

    def open_launch(self, request: LaunchRequest) -> LaunchFile:
        """Store the request of a launch before anything is started."""
        file = LaunchFile(self, self._launches_folder / f"{request.id:04d}.jsonl", request)
        self.launches[request.id] = file.record
        self._open_files.append(file)
        return file

    @property
    def reference_path(self) -> Path:
        """Where the conditioned tensors and the default's outputs are kept."""
        return self.folder / "reference.npz"

    @property
    def neighbour_log(self) -> Path:
        """Where the synthetic busy neighbour prints, should it fail."""
        return self._launches_folder / "neighbour.log"

    def check_room(self) -> None:
        """Raise StorageFailed if the disk is all but full: what fails then fails for that reason.

        A compiler or a library that could not write is no fault of the setting that asked for it.
        """
        try:
            disk = os.statvfs(self.folder)
        except OSError as error:
            raise StorageFailed(f"cannot use {self.folder}: {error.strerror}") from error
        free = disk.f_bavail * disk.f_frsize
        has_files_left = disk.f_favail > 0 or not disk.f_files
        if free < MIN_ROOM_BYTES or not has_files_left:
            files = "" if has_files_left else " and no inode"
            raise StorageFailed(
                f"the disk of {self.folder} is all but full: {free / 2**20:.1f} MiB{files} are "
                f"free, {MIN_ROOM_BYTES / 2**20:.0f} MiB are needed; {self.advice}"
            )

    def log_of(self, launch: int) -> Path:
        """Return the path of what a launch printed."""
        return self._launches_folder / f"{launch:04d}.log"

    def _load(self) -> None:
        decode = msgspec.json.Decoder(_NoteLine).decode
        lines = _read(self._journal.path, decode)
        for line in lines:
            self._keep(line.note)
        used = [line.used_s for line in lines]
        decode_launch = msgspec.json.Decoder(_LaunchFileLine).decode
        for path in sorted(self._launches_folder.glob("*.jsonl")):
            launch_lines = _read(path, decode_launch)
            used += [line.used_s for line in launch_lines]
            record = None
            for line in launch_lines:
                if isinstance(line.note, LaunchOpened):
                    record = LaunchRecord(line.note.request)
                elif record is not None:
                    _apply(record, line.note)
            if record is None:  # killed before its first line: nothing was started
                path.unlink()
                continue
            if record.ending is None:
                record.ending = Ending(Outcome.INTERRUPTED, "the tool was stopped")
            self.launches[record.request.id] = record
        self.used_before_s = max(used, default=0.0)

    def close(self) -> None:
        """Release the folder; launches that have not ended stay without an end."""
        for file in self._open_files:
            file.close()
        self._journal.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
