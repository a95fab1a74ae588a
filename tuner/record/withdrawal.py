"""A study that was refused before anything was measured: nothing of it stays on the disk."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from tuner.record.integrity import JOURNAL, LAUNCHES
from tuner.record.store import Store

OPTIONS = "tune.toml"
"""The file with the options of a run."""
_FOLDERS = (LAUNCHES, "compiled")
_FILES = (
    JOURNAL,
    OPTIONS,
    "reference.npz",
    "reference.tmp",
    "reference.weights",
    "reference.part",
    "study.db*",
)


def existing_parent(folder: Path) -> Path:
    """Return the folder itself if it exists, else the nearest one above it that does."""
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)


def remove_empty_study(store: Store, ground: Path) -> None:
    """Remove the files of a study that has not measured anything, and the folders made for it.

    ground: what existing_parent returned before the study was begun. Other files are left alone.
    """
    assert not store.launches
    for name in _FOLDERS:
        shutil.rmtree(store.folder / name, ignore_errors=True)
    for pattern in _FILES:
        for path in store.folder.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
    for folder in (store.folder, *store.folder.parents):
        if folder == ground:
            return
        try:
            folder.rmdir()
        except OSError:  # somebody else has put something there
            return
