"""A study's reference: made again if an earlier version wrote it; each study samples anew."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tuner.galleries import MODELS
from tuner.launchers.describe import PATIENT, find_model
from tuner.launchers.testbed import THIS_HOST
from tuner.record.journal import ReferenceNoted, StudyOpened, WarningNoted
from tuner.record.store import Store
from tuner.record.workload import Workload
from tuner.study.notes import Notes
from tuner.study.reference import provide_reference, sample_seed_of
from tuner.worker import reference


def test_a_reference_of_an_earlier_version_is_made_again_and_that_is_said(tmp_path: Path) -> None:
    ref, card = find_model("fake", MODELS)
    with Store(tmp_path) as store:
        store.add(StudyOpened("of this study", {}, "now", "0"))
        evaluation = SimpleNamespace(stand_in=None)
        study = cast(
            Any,
            SimpleNamespace(store=store, notes=Notes(store, lambda _: None), evaluation=evaluation),
        )
        np.savez(store.reference_path, np.zeros((32, 32), np.float32))
        for _ in range(2):  # as a resumed study does, each time
            provide_reference(study, Workload(ref, "fake", "offline", card), PATIENT, "", THIS_HOST)
        assert (tmp_path / "earlier-reference.npz").exists()
        (kept,) = reference.read_outputs(store.reference_path)
        assert np.ptp(kept.values) > 0
        assert reference.read_facts(store.reference_path).sample_seed == sample_seed_of(store)
        assert len(store.all(ReferenceNoted)) == 1
        (warning,) = store.all(WarningNoted)
        assert "was written by an earlier version and is made again" in warning.text


def test_each_study_compares_other_elements_of_large_outputs(tmp_path: Path) -> None:
    seeds = set()
    for identity in ("one", "another"):
        with Store(tmp_path / identity) as store:
            store.add(StudyOpened(identity, {}, "now", "0"))
            seeds.add(sample_seed_of(store))
    assert len(seeds) == 2
