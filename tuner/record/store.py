"""The append-only store of one study: every line is on the disk before the next step.

    study.jsonl           decisions (record/journal.py), locked while the tool uses it
    launches/0001.jsonl   one launch: its request, preparation, slices, end
    launches/0001.log     the worker's output

Each line holds `used_s`, the budget used so far, so that it is known after a kill, and how many
lines of the other kind there were, so that a loss shows (record/integrity.py). A line that a crash
cut short is dropped when the store is opened again; no other line is ever changed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from tuner.errors import StorageFailed, UsageError
from tuner.record.integrity import (
    JOURNAL,
    LAUNCHES,
    Loaded,
    cut_launches,
    damaged,
    launch_file,
    losses,
)
from tuner.record.journal import (
    Extended,
    LaunchEnded,
    LaunchLine,
    LaunchOpened,
    LossNoted,
    Note,
    SliceTaken,
    Started,
    StudyFinished,
    StudyOpened,
    TrialNoted,
)
from tuner.record.launch import (
    Built,
    Checked,
    Compiled,
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Profiled,
)
from tuner.record.lines import (
    AppendOnly,
    LaunchFileLine,
    NoteLine,
    Written,
    check_folder,
    read_lines,
)
from tuner.record.outcome import Ending, Outcome

MIN_ROOM_BYTES = 8 << 20
"""A launch's own files take some kilobytes, a compiler's cache megabytes."""
_NoteT = TypeVar("_NoteT", bound=msgspec.Struct)


class LaunchFile:
    """The file of a launch under way; keeps the record in memory in step with it."""

    def __init__(self, store: Store, path: Path, request: LaunchRequest) -> None:
        self.record = LaunchRecord(request)
        self.log_path = path.with_suffix(".log")
        self._store = store
        self._file = AppendOnly(path, store.advice)
        self._append(LaunchOpened(request))

    def _append(self, line: LaunchLine) -> None:
        used_s = self._store.used_s()
        self._file.append(LaunchFileLine(used_s, line, self._store.n_noted))
        self._store.written.append(Written(used_s, line, self.record.request.id))

    def check_room(self) -> None:
        """Raise StorageFailed if the disk is all but full."""
        self._store.check_room()

    def add(
        self, line: Started | Built | Compiled | Prepared | SliceTaken | Checked | Profiled
    ) -> None:
        """Store a message of the worker."""
        self._append(line)
        _apply(self.record, line)

    def end(self, ending: Ending, total_s: float, slicing_s: float) -> None:
        """Store how the launch ended and how long it took; nothing may follow."""
        line = LaunchEnded(ending, total_s, slicing_s)
        self._append(line)
        _apply(self.record, line)
        self.close()

    def close(self) -> None:
        """Close the file; its content stays."""
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
                record.contended.append(line.slice)
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
    """One study's folder. Use as a context manager; `used_s` is the clock written on every line.

    is_kept: whether the same command finds it again, which the message about a full disk mentions.

    Raises StudyConflict if another process uses the folder, UsageError if it cannot be written or
    holds something else, and StudyDamaged if its measurements cannot be read any more.
    """

    def __init__(self, folder: Path, *, is_kept: bool = True) -> None:
        self.folder = folder
        self.advice = "make room"
        if is_kept:
            self.advice = (
                "everything measured so far is stored: free disk space, then run the same "
                "command to resume"
            )
        self.notes: list[Note] = []
        self.extents: list[dict[type, list[Any]]] = [defaultdict(list)]
        """The notes of each extent by their kind: of the study as begun, and of each extension."""
        self.launches: dict[int, LaunchRecord] = {}
        self.used_s: Callable[[], float] = lambda: self.used_before_s
        self.used_before_s = 0.0
        self.written: list[Written] = []
        """Every line there is, of notes and launches alike; in no order."""
        self.losses: list[LossNoted] = []
        """Losses in the files that are not noted yet: the study continues without them."""
        self.n_noted = 0
        """How many lines the journal has had."""
        self._launches_folder = folder / LAUNCHES
        check_folder(folder)
        try:
            self._launches_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot write to {folder}: {error.strerror}; name a writable folder with --out"
            ) from error
        try:
            self._journal = AppendOnly(folder / JOURNAL, self.advice)
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
        """The study that the folder holds; None if it is new."""
        return next((note for note in self.notes if isinstance(note, StudyOpened)), None)

    def all(self, kind: type[_NoteT]) -> list[_NoteT]:
        """Return the notes of one kind, oldest first."""
        return [note for extent in self.extents for note in extent[kind]]

    def current(self, kind: type[_NoteT]) -> list[_NoteT]:
        """Return the notes of the current extent: since the last extension was opened."""
        return list(self.extents[-1][kind])

    @property
    def n_extensions(self) -> int:
        """How often the study was gone on with after its end."""
        return len(self.extents) - 1

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be done in the current extent."""
        return bool(self.current(StudyFinished))

    @property
    def extended_at_s(self) -> float:
        """The seconds that were used when the current extent was opened; 0 of a study's first."""
        return max((w.used_s for w in self.written if isinstance(w.note, Extended)), default=0.0)

    def add(self, note: Note) -> None:
        """Append a note."""
        used_s = self.used_s()
        self._journal.append(NoteLine(used_s, note, self.n_noted, max(self.launches, default=0)))
        self.written.append(Written(used_s, note))
        self.n_noted += 1
        self._keep(note)

    def _keep(self, note: Note) -> None:
        self.notes.append(note)
        if isinstance(note, Extended):
            self.extents.append(defaultdict(list))
        self.extents[-1][type(note)].append(note)

    def next_launch_id(self) -> int:
        """Return an id that no launch of this study has had."""
        return max(self.launches, default=0) + 1

    def next_slice_index(self) -> int:
        """Return an ordinal that no slice of this study has had."""
        indices = (
            s.index
            for record in self.launches.values()
            for s in (*record.slices, *record.contended)
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
        """The folder of the conditioned tensors and the default's outputs."""
        return self.folder / "reference.npz"

    @property
    def neighbour_log(self) -> Path:
        """The log of the synthetic busy neighbour, in case it fails."""
        return self._launches_folder / "neighbour.log"

    def check_room(self) -> None:
        """Raise StorageFailed if the disk is almost full: failures are then due to that.

        A compiler or a library that could not write is not a fault of the setting.
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
        """Return the path of a launch's output."""
        return self._launches_folder / f"{launch:04d}.log"

    def _load(self) -> None:
        """Read everything; a trial whose launch was cut short counts as not made."""
        lines = read_lines(self.folder, JOURNAL, msgspec.json.Decoder(NoteLine).decode)
        self._check_order(lines)
        told_notes = max((line.notes + 1 for line in lines), default=0)
        self.written += [Written(line.used_s, line.note) for line in lines]
        unended: set[int] = set()
        begun: list[Path] = []
        decode = msgspec.json.Decoder(LaunchFileLine).decode
        for path in sorted(self._launches_folder.glob("*.jsonl")):
            launch_lines = read_lines(self.folder, f"{LAUNCHES}/{path.name}", decode)
            if not launch_lines:
                begun.append(path)
                continue
            told_notes = max(told_notes, *(line.notes for line in launch_lines))
            record = self._record_of(path, [line.note for line in launch_lines])
            self.written += [
                Written(line.used_s, line.note, record.request.id) for line in launch_lines
            ]
            if record.ending is None:
                unended.add(record.request.id)
                record.ending = Ending(Outcome.INTERRUPTED, "the tool was stopped")
            self.launches[record.request.id] = record
        self.used_before_s = max((line.used_s for line in self.written), default=0.0)
        loaded = Loaded(
            folder=self.folder,
            notes=[line.note for line in lines],
            launches=self.launches,
            unended=unended,
            told_notes=told_notes,
            told_launches=max((line.launches for line in lines), default=0),
        )
        self.losses = losses(loaded)
        self.n_noted = max(told_notes, len(lines))
        cut = cut_launches(loaded)
        for note in loaded.notes:
            if not (isinstance(note, TrialNoted) and cut.intersection(note.launches)):
                self._keep(note)
        for path in begun:  # killed before its first line: nothing was started
            path.unlink()

    def _record_of(self, path: Path, lines: list[LaunchLine]) -> LaunchRecord:
        """Return the content of a launch's file, which begins with the request of that launch."""
        first = lines[0]
        name = f"{LAUNCHES}/{path.name}"
        if not isinstance(first, LaunchOpened) or launch_file(first.request.id) != name:
            raise damaged(self.folder, name, "does not begin with its own request")
        record = LaunchRecord(first.request)
        for line in lines[1:]:
            if isinstance(line, LaunchOpened) or record.ending is not None:
                raise damaged(self.folder, name, "goes on after its end, or begins twice")
            _apply(record, line)
        indices = [s.index for s in (*record.slices, *record.contended)]
        if len(set(indices)) != len(indices):
            raise damaged(self.folder, name, "holds a slice twice")
        return record

    def _check_order(self, lines: list[NoteLine]) -> None:
        """Raise StudyDamaged if the journal holds a line twice, or out of order."""
        begins = [i for i, line in enumerate(lines) if isinstance(line.note, StudyOpened)]
        # lines of earlier versions do not tell: they say 0
        moved = [i for i, (a, b) in enumerate(pairwise(lines), 1) if 0 < b.notes <= a.notes]
        if again := [*begins[1:], *moved]:
            where = f"{JOURNAL}:{again[0] + 1}"
            raise damaged(self.folder, where, "stands there twice, or not in its place")

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
