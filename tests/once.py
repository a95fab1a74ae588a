"""What costs seconds is made once for all processes of a test run."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes of the tests out meanwhile."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def once(folder: Path) -> Iterator[bool]:
    """Tell whether this process is to fill a folder; others wait until it has.

    folder: one that all have (of_all_processes in conftest.py). What fails is done anew.
    """
    done = folder / "done"
    with locked(folder / "lock"):
        yield not done.exists()
        done.touch()
