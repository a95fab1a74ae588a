"""The designed part of a study, on the fake: each cell's ratio is the surface's own."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.command import DESIGNED
from tests.study.fake_studies import made_up_study
from tuner.record.files import RESULT_SCHEMA
from tuner.record.journal import DesignRound, Phase
from tuner.record.launch import Purpose
from tuner.record.store import Store
from tuner.worker.frameworks.fake.surface import Surface


@pytest.fixture
def result(designed_study: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((designed_study / "result.json").read_text())
    return found


def test_each_cell_is_measured_beside_the_default(result: dict[str, Any]) -> None:
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    found = result["designed"]
    assert found["left_out"] == {
        "blocktime": "env.FAKE_BLOCKTIME=0: the fake framework does not read it"
    }
    surface = Surface(seed=3, noise=0.003)
    default = surface.log_rate({})
    assert found["default_call_s"] == pytest.approx(4 / math.exp(default), rel=0.1)
    # what tells most first, three in a round
    assert sorted(cell["round"] for cell in found["cells"]) == [1 + i // 3 for i in range(15)]
    for cell in found["cells"]:
        assert cell["outcome"] == "measured", cell
        truth = surface.log_rate(cell["configuration"]) - default
        assert cell["log_ratio"] == pytest.approx(truth, abs=0.03), cell
        assert cell["n_passes"] >= 2


def test_the_search_does_not_hear_of_it(
    designed_study: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    out = shutil.copytree(designed_study, tmp_path / "out")
    with Store(out) as store:
        rounds = store.all(DesignRound)
        launches = {i for done in rounds for i in done.launches}
        of_trials = {i for trial in result["trials"] for i in trial["launches"]}
        assert not launches & of_trials
        purposes = {store.launches[i].request.purpose for i in launches}
    assert purposes == {Purpose.DESIGN}
    assert [len(done.launches) for done in rounds] == [4] * 5
    assert next(iter(result["phases"])) == Phase.DESIGN
    assert any(row["phase"] == Phase.DESIGN for row in result["seconds_by_phase"])
    assert result["verdict"] == "faster"
    report = (out / "report.md").read_text()
    cell = result["designed"]["cells"][0]
    assert f"| 1 | threads | {math.exp(cell['log_ratio']):.2f}x | env.FAKE_THREADS=4 |" in report


def test_a_cell_that_fails_is_named_and_the_others_stand(tmp_path: Path) -> None:
    result = made_up_study(
        tmp_path, f"{DESIGNED},faults=fake.precision=bf16:wrong_output", "9s", "--designed"
    )
    for cell in result["designed"]["cells"]:
        is_wrong = "precision" in cell["factors"]
        assert (cell["outcome"] == "wrong_output") is is_wrong
        assert (cell["log_ratio"] is None) is is_wrong
        assert bool(cell["reason"]) is is_wrong


def test_what_there_is_no_time_for_is_said(tmp_path: Path) -> None:
    result = made_up_study(tmp_path, DESIGNED, "3s", "--designed")
    left = [cell for cell in result["designed"]["cells"] if cell["outcome"] is None]
    assert left
    assert all(cell["reason"] == "no time" for cell in left)
    assert any(
        f"to measure {len(left)} cells of the designed part" in w for w in result["warnings"]
    )
