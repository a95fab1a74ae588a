"""Studies as data frames: their columns, types and figures."""

import csv
import importlib.util
import re
from pathlib import Path

import pandas as pd
import pytest

import tune_framework
import tuner
from tests.command import Here
from tuner.errors import UsageError
from tuner.record.files import read_result
from tuner.record.frames import ROUNDS, RULES, STUDIES, TRIALS

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "reports/samples"


def test_a_row_holds_the_winner_of_a_class() -> None:
    frame = tuner.frame(SAMPLES / "resnet50-torch.json")
    result = read_result(SAMPLES / "resnet50-torch.json")
    assert list(frame.columns) == list(STUDIES)
    assert frame.winner_class.tolist() == [str(each) for each in result.winners]
    for row in frame.itertuples():
        winner = next(w for c, w in result.winners.items() if str(c) == row.winner_class)
        assert row.verdict == winner.verdict
        assert row.n_rounds == winner.n_rounds
        if winner.speedup is not None:
            assert (row.speedup, row.speedup_low) == (winner.speedup.point, winner.speedup.low)
    assert str(frame.created.dtype).startswith("datetime64")
    assert str(frame.created.dt.tz) == "UTC"
    assert str(frame.n_rounds.dtype) == "Int64"
    assert str(frame.search_ratio.dtype) == "float64"  # though nothing is known of it
    assert frame.processor.tolist() == ["AMD EPYC"] * 3


def test_studies_of_a_folder_stand_in_one_frame() -> None:
    one = tuner.frame(SAMPLES / "resnet50-torch.json")
    two = tuner.frame(SAMPLES / "resnet50-torch.json", SAMPLES / "bert-base-torch.json")
    assert len(two) == 2 * len(one)
    assert two.study.nunique() == 2


def test_trials_have_a_column_for_each_setting() -> None:
    result = read_result(SAMPLES / "resnet50-torch.json")
    frame = result.trials_frame()
    knobs = {knob for trial in result.trials for knob in trial.configuration}
    assert set(frame.columns) == {*TRIALS, *(f"setting.{knob}" for knob in knobs)}
    assert len(frame) == len(result.trials)
    for trial, (_, row) in zip(result.trials, frame.iterrows(), strict=True):
        for knob in knobs:
            value = trial.configuration.get(knob)
            shown = row[f"setting.{knob}"]
            assert pd.isna(shown) if value is None else shown == value


@pytest.mark.parametrize(
    ("name", "default"),
    [("resnet50-torch", "default"), ("resnet50-tensorflow", "workload.batch=16")],
)
def test_rounds_compare_with_the_default_of_their_round(name: str, default: str) -> None:
    """At its best batch, which claims compare with."""
    result = read_result(SAMPLES / f"{name}.json")
    frame = result.rounds_frame()
    assert list(frame.columns) == list(ROUNDS)
    assert len(frame) == len(result.confirmation.rounds) * len(result.confirmation.arms)
    assert set(frame[frame.arm == default].ratio.dropna()) == {1.0}
    assert frame[frame.arm == default].is_default.all()
    pivot = frame.pivot(index="round", columns="arm", values="value")
    others = frame[~frame.is_default].dropna()
    assert len(others)
    for row in others.itertuples():
        here = pivot.loc[row.round, row.arm] / pivot.loc[row.round, default]
        assert row.ratio == pytest.approx(here)


def test_the_rules_that_ship_are_a_frame() -> None:
    frame = tuner.guidelines_frame()
    assert list(frame.columns) == list(RULES)
    assert (frame.effect_low <= frame.effect).all() and (frame.effect <= frame.effect_high).all()


def test_folders_without_studies_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no result\.json"):
        tuner.frame(tmp_path)
    with pytest.raises(UsageError, match="name a folder"):
        tuner.frame()


def test_compare_writes_the_frame_as_csv(here: Here, tmp_path: Path) -> None:
    sample = str(SAMPLES / "resnet50-torch.json")
    done = here("compare", sample, "--csv", "studies.csv")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "studies.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(STUDIES)
    assert float(rows[0]["wall_s"]) == read_result(Path(sample)).seconds.wall


def test_parquet_is_written_or_its_library_is_named(here: Here, tmp_path: Path) -> None:
    done = here("compare", str(SAMPLES / "resnet50-torch.json"), "--parquet", "studies.parquet")
    if importlib.util.find_spec("pyarrow") is None:
        assert done.returncode == 2
        assert "pip install 'tune-framework[parquet]'" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert list(pd.read_parquet(tmp_path / "studies.parquet").columns) == list(STUDIES)


def test_the_docs_list_every_column_with_its_meaning() -> None:
    text = (ROOT / "docs/data_frames.md").read_text()
    told = re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE)
    assert [pair for pair in told if pair[0] != "setting.NAME"] == [
        pair for columns in (STUDIES, TRIALS, ROUNDS, RULES) for pair in columns.items()
    ]


def test_the_package_has_its_distributions_name_too() -> None:
    assert dir(tune_framework) == dir(tuner)
    assert all(getattr(tune_framework, name) is getattr(tuner, name) for name in dir(tuner))
