"""fleet.jsonl: the results of a fleet, appended by every driver that works on one folder.

A line is written whole or not at all; a line cut by a crash is skipped. The rows of the index are
made from these lines. Each study is in its own folder next to the file.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from tuner.errors import UsageError
from tuner.record.files import UNREADABLE
from tuner.record.index import FLEET_FILE, Elsewhere, Kind, Row
from tuner.record.lines import write_synced

FLEET_VERSION = 1
_ADVICE = (
    "everything measured so far is stored: free disk space, then run the same command to resume"
)


class FleetOpened(msgspec.Struct, frozen=True, tag="fleet"):
    """The first line: hosts keep their copies of its studies under the fleet's name."""

    name: str
    schema_version: int = FLEET_VERSION


class KindNoted(msgspec.Struct, frozen=True, tag="kind"):
    """Hosts of a kind were seen."""

    kind: Kind


class HostNoted(msgspec.Struct, frozen=True, tag="host"):
    """A host of a kind was seen."""

    host: str
    kind: str
    """The kind's name."""


class RowNoted(msgspec.Struct, frozen=True, tag="row"):
    """The state of a study; of several lines about one the last counts."""

    row: Row


class ElsewhereNoted(msgspec.Struct, frozen=True, tag="elsewhere"):
    """A winner was measured again on another host of its kind."""

    study: str
    """The study's folder."""
    elsewhere: Elsewhere


FleetNote: TypeAlias = FleetOpened | KindNoted | HostNoted | RowNoted | ElsewhereNoted
_DECODE = msgspec.json.Decoder(FleetNote).decode


class Board:
    """The file of a folder, to read others' lines and to append.

    Raises UsageError if it is not the file of a fleet, and StorageFailed if the disk fails.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FLEET_FILE
        self._offset = 0
        self._carried = b""
        self._n_holding = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b", buffering=0)
        except OSError as error:
            raise UsageError(
                f"cannot write to {folder}: {error.strerror}; name a writable folder with --out"
            ) from error
        with self.held():
            if self._size() == 0:
                self._write(FleetOpened(secrets.token_hex(8)))
            self._heard = self._read()
        opened = self._heard[0] if self._heard else None
        if not isinstance(opened, FleetOpened) or opened.schema_version != FLEET_VERSION:
            self.close()
            raise UsageError(
                f"{self.path} is no record of a fleet that this version reads; name another folder "
                "with --out"
            )
        self.name = opened.name

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the board and what is written under it against other drivers.

        Raises UsageError if the file system has no locks.
        """
        if not self._n_holding:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            except OSError as error:
                raise UsageError(
                    f"{self.path.parent} lies on a file system without locks ({error.strerror}): "
                    "name another --out"
                ) from error
        self._n_holding += 1
        try:
            yield
        finally:
            self._n_holding -= 1
            if not self._n_holding:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def news(self) -> list[FleetNote]:
        """Return what was written since the last call, by this driver or another."""
        with self.held():  # a file system over a network shows what is new to who holds the lock
            found, self._heard = self._heard + self._read(), []
        return found

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _read(self) -> list[FleetNote]:
        """Decode the whole lines after the last read position; a damaged line is skipped."""
        size = self._size()
        if size <= self._offset:
            return []
        data = os.pread(self._file.fileno(), size - self._offset, self._offset)
        self._offset += len(data)
        *lines, self._carried = (self._carried + data).split(b"\n")
        found: list[FleetNote] = []
        for line in lines:
            try:
                found.append(_DECODE(line))
            except UNREADABLE:
                continue
        return found

    def add(self, note: FleetNote) -> None:
        """Append a line, after the end of one that a crash has cut short."""
        with self.held():
            self._write(note)

    def _write(self, note: FleetNote) -> None:
        size = self._size()
        is_torn = size > 0 and os.pread(self._file.fileno(), 1, size - 1) != b"\n"
        data = (b"\n" if is_torn else b"") + msgspec.json.encode(note) + b"\n"
        write_synced(self._file, data, _ADVICE)

    def close(self) -> None:
        """Close the file; its content stays."""
        self._file.close()
