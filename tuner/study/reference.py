"""The reference outputs of a study: computed if missing or damaged.

The same model, seed and inputs give the same reference: every launch of the default was compared
with it in its own process. Checks against an earlier copy therefore stand.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from tuner.launchers.asking import Deadline
from tuner.launchers.describe import make_reference
from tuner.launchers.testbed import Testbed
from tuner.record.journal import ReferenceNoted
from tuner.record.protocol import REFERENCE_VERSION
from tuner.record.store import Store
from tuner.record.workload import Workload
from tuner.study.study import Study


def provide_reference(
    study: Study,
    workload: Workload,
    waiting: Deadline,
    gpu: str,
    testbed: Testbed,
) -> None:
    """Compute the reference if it is missing or damaged; warn if it had to be computed again.

    gpu: the UUID of the card that computes; empty for the CPU. The stand-in of a default that does
    not answer computes the reference too.

    Raises UsageError if the model's outputs cannot be compared, and NothingMeasured if the model
    does not get that far.
    """
    store = study.store
    path = store.reference_path
    noted = store.all(ReferenceNoted)
    is_there = path.exists() or path.is_symlink()
    is_whole = _is_whole(path, noted[-1].sha256 if noted else "")
    if not is_whole or not _is_current(path):
        if is_there:
            path.replace(path.with_name(f"{'earlier' if is_whole else 'broken'}-{path.name}"))
        n_inputs = workload.card.n_reference_inputs()
        make_reference(
            workload.model,
            workload.framework,
            workload.seed,
            path,
            n_inputs,
            waiting,
            gpu,
            sample_seed_of(store),
            {} if study.evaluation.stand_in is None else study.evaluation.stand_in.as_dict(),
            testbed,
            workload.mode,
        )
        if is_whole:
            study.notes.warn(
                f"{path.name} was written by an earlier version and is made again: configurations "
                "whose outputs were checked before were held to that version's bounds"
            )
        elif noted or store.launches:  # a launch begins by restoring it
            study.notes.warn(
                f"{path.name} was {'damaged' if is_there else 'missing'} and is made again from "
                "the same model and seed: outputs that were checked before need no other check"
            )
    elif noted:
        return
    store.add(ReferenceNoted(_digest(path)))


def _is_whole(path: Path, sha256: str) -> bool:
    """Tell whether a reference file is unchanged. sha256: empty if it was not noted."""
    if not path.is_file():
        return False
    if sha256:
        return _digest(path) == sha256
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _is_current(path: Path) -> bool:
    """Tell whether a reference that is whole is of this version."""
    with np.load(path, allow_pickle=False) as file:
        return "version" in file and int(file["version"]) == REFERENCE_VERSION


def sample_seed_of(store: Store) -> int:
    """Return which elements of large outputs a study compares: others than the next study."""
    identity = store.opened.identity if store.opened is not None else ""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:7])


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
