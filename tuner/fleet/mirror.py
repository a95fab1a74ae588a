"""A study's folder, copied while it grows: changes on a host, put in place at the driver.

Measurements are only ever appended to files of lines, which refer to each other
(record/integrity.py). Their new ends travel together, as they all were at one moment, and are put
in place together: the copy is always one that a killed study could have left. Other files are
written whole and travel whole. What a host makes again by itself is not copied.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import msgspec

from tuner.errors import StorageFailed
from tuner.record.integrity import JOURNAL, LAUNCHES

_STAYS = ("compiled/*", "reference.weights", "*.part", "*.tmp", ".*", "*/.*", "study.db-*")
"""A compiler's cache, weights for this session's launches, files that are being written."""
_AT_THE_END = ("study.db", "*.log")
"""Files that change internally while a study runs: they are made again from the journal if missing.
The output of programs is cleared of secrets when they have ended."""
_GROWS = ".jsonl"
_SETTLED_S = 1.0
"""A file that is written whole is taken when it has not changed for so long."""
_AT_ONCE_BYTES = 8 << 20
"""Bytes of whole files in one answer, unless a single one is larger."""
_LARGE_BYTES = 64 << 20
"""A larger file is not copied: a model's outputs, which are computed again if a study continues."""
_BATCH = ".batch"


class Piece(msgspec.Struct, frozen=True):
    """A part of a file, from an offset on; anything behind it in the file is gone."""

    path: str
    """Below the study's folder, with slashes."""
    offset: int
    data: bytes


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(list[Piece]).decode
_Stamp = tuple[int, int]
"""A file's bytes, and when it was changed."""


class Watcher:
    """Finds the changes of a folder that were not reported yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[str, _Stamp] = {}
        """Of files of lines, the bytes of whole lines alone."""

    def knows(self, pieces: Sequence[Piece]) -> None:
        """Mark the files of an archive, as they are in the folder, as transferred."""
        for piece in pieces:
            changed_ns = (self._folder / piece.path).stat().st_mtime_ns
            changed_ns = 0 if piece.path.endswith(_GROWS) else changed_ns
            self._told[piece.path] = (piece.offset + len(piece.data), changed_ns)

    def changes(self, *, is_ended: bool) -> list[Piece]:
        """Return the changes; empty when nothing is left.

        is_ended: whether nothing writes any more.
        """
        stamps = self._at_one_moment(is_ended=is_ended)
        new = {name: stamp for name, stamp in stamps.items() if self._told.get(name) != stamp}
        lines = [self._end_of(name, new[name][0]) for name in new if name.endswith(_GROWS)]
        found = [piece for piece in lines if piece is not None]
        n_bytes = 0
        for name, (size, changed_ns) in new.items():
            is_settled = is_ended or time.time_ns() - changed_ns > _SETTLED_S * 1e9
            is_enough = n_bytes > 0 and n_bytes + size > _AT_ONCE_BYTES
            if name.endswith(_GROWS) or not is_settled or is_enough or size > _LARGE_BYTES:
                continue
            try:
                data = (self._folder / name).read_bytes()
            except FileNotFoundError:  # replaced meanwhile: the next look finds it
                continue
            n_bytes += size
            self._told[name] = (size, changed_ns)
            found.append(Piece(name, 0, data))
        return found

    def _end_of(self, name: str, size: int) -> Piece | None:
        """Return the whole lines that a file has gained since the last report; all if cut."""
        n_copied = self._told.get(name, (0, 0))[0]
        start = n_copied if n_copied <= size else 0
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(start)
                data = file.read(size - start)
        except FileNotFoundError:  # a launch that was killed before its first line
            return None
        data = data[: data.rfind(b"\n") + 1]
        self._told[name] = (start + len(data), 0)
        return Piece(name, start, data) if data or start < n_copied else None

    def _at_one_moment(self, *, is_ended: bool) -> dict[str, _Stamp]:
        """Return the state of every file that travels; those of lines as they were at one moment.

        Nothing was appended between two looks that agree.
        """
        before = self._stamps(is_ended=is_ended)
        while True:
            after = self._stamps(is_ended=is_ended)
            if _grown(before) == _grown(after):
                return after
            before = after

    def _stamps(self, *, is_ended: bool) -> dict[str, _Stamp]:
        stays = _STAYS if is_ended else (*_STAYS, *_AT_THE_END)
        found = {}
        for path in self._paths(is_ended=is_ended):
            name = path.relative_to(self._folder).as_posix()
            if any(fnmatch(name, each) for each in stays) or path.is_dir():
                continue
            try:
                status = path.stat()
            except FileNotFoundError:  # removed meanwhile
                continue
            # a file of lines is new where it is longer; when it was touched says nothing
            changed_ns = 0 if name.endswith(_GROWS) else status.st_mtime_ns
            found[name] = (status.st_size, changed_ns)
        return found

    def _paths(self, *, is_ended: bool) -> list[Path]:
        """Return the files of the folder; during a measurement, only as many as necessary."""
        if is_ended:
            return sorted(self._folder.rglob("*"))
        launches = self._folder / LAUNCHES
        return [*self._folder.iterdir(), *(launches.iterdir() if launches.is_dir() else ())]


def _grown(stamps: dict[str, _Stamp]) -> dict[str, int]:
    return {name: size for name, (size, _) in stamps.items() if name.endswith(_GROWS)}


def archive(folder: Path) -> list[Piece]:
    """Return everything in a folder that travels; empty if there is nothing."""
    watcher = Watcher(folder)
    found: list[Piece] = []
    while folder.is_dir() and (pieces := watcher.changes(is_ended=True)):
        found += pieces
    return found


def put(folder: Path, pieces: Sequence[Piece]) -> None:
    """Put pieces in place: all of them, or the rest when `mend` is called.

    Raises ValueError for a piece outside the folder or with a gap, without any change, and
    StorageFailed if the disk fails.
    """
    for piece in pieces:
        pure = PurePosixPath(piece.path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"{piece.path!r} does not lie in the folder of a study")
        path = folder / pure
        if piece.offset > (path.stat().st_size if path.exists() else 0):
            raise ValueError(f"{piece.path} has a gap before {piece.offset}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{_BATCH}.part"
        with draft.open("wb") as file:
            file.write(_ENCODE(pieces))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / _BATCH)
        _apply(folder, pieces)
    except OSError as error:
        raise StorageFailed(f"cannot write to {folder}: {error.strerror}; make room") from error


def mend(folder: Path) -> None:
    """Finish an interrupted `put`; raises StorageFailed if the disk fails."""
    batch = folder / _BATCH
    try:
        _apply(folder, _DECODE(batch.read_bytes()))
    except FileNotFoundError:
        return
    except msgspec.MsgspecError:  # the power failed before it was written: nothing was put yet
        batch.unlink()
    except OSError as error:
        raise StorageFailed(f"cannot write to {folder}: {error.strerror}; make room") from error


def _apply(folder: Path, pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        path = folder / piece.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if piece.path.endswith(_GROWS):
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(piece.offset)
                file.write(piece.data)
                file.truncate()
        else:
            draft = path.with_name(f".{path.name}.part")
            draft.write_bytes(piece.data)
            draft.replace(path)
    (folder / _BATCH).unlink()


def settle(folder: Path) -> None:
    """Have a folder on the disk, whatever happens to the machine then."""
    for path in [*folder.rglob("*"), folder, folder.parent]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StorageFailed(f"cannot write {path}: {error.strerror}; make room") from error
        finally:
            os.close(descriptor)


def is_ahead(folder: Path, pieces: Sequence[Piece]) -> bool:
    """Tell whether a folder holds all measurements of an archive, and more."""
    theirs: dict[str, bytes] = {JOURNAL: b""}
    for piece in pieces:
        if piece.path.endswith(_GROWS):
            theirs[piece.path] = theirs.get(piece.path, b"") + piece.data
    own = {piece.path: piece.data for piece in archive(folder) if piece.path.endswith(_GROWS)}
    if any(not own.get(name, b"").startswith(data) for name, data in theirs.items()):
        return False
    return bool(own) and own != {name: data for name, data in theirs.items() if data}


def replace(folder: Path, pieces: Sequence[Piece]) -> None:
    """Make a folder hold an archive and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    put(folder, pieces)
