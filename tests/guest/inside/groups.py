"""Real control groups (version 2), made for a test and removed after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")


@contextmanager
def control_group(name: str, **settings: str) -> Iterator[Path]:
    """Make a group; cpuset_cpus="4-7" is what cpuset.cpus is set to."""
    (_MOUNT / "cgroup.subtree_control").write_text("+cpu +cpuset")
    folder = _MOUNT / name
    folder.mkdir()
    try:
        for key, value in settings.items():
            (folder / key.replace("_", ".", 1)).write_text(value)
        yield folder
    finally:
        folder.rmdir()


def enter(folder: Path) -> None:
    """Move this process into a group."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))
