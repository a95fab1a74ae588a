"""Which studies a driver works on: locks that die with it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tuner.errors import UsageError

_FOLDER = ".claims"


class Claims:
    """Locks of files in a folder that drivers share, on one machine or over a network.

    The files are empty and stay: one that were removed could be locked by two.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Claim something; False while another driver has it.

        Raises UsageError if the file system has no locks.
        """
        if name in self._held:
            return True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # for writing: over NFS only such a file can be locked (flock(2))
            descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write to {self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise UsageError(
                f"{self._folder} lies on a file system without locks ({error.strerror}): name "
                "another --out"
            ) from error
        self._held[name] = descriptor
        return True

    def is_anothers(self, name: str) -> bool:
        """Tell whether another driver holds something; it is not held after the look."""
        if name in self._held or not (self._folder / name).exists():
            return False
        is_free = self.take(name)
        self.leave(name)
        return not is_free

    def leave(self, name: str) -> None:
        """Let go of something, if it is held."""
        if (descriptor := self._held.pop(name, None)) is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of everything."""
        for name in list(self._held):
            self.leave(name)
