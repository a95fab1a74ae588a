"""time-to-target: what the fake's runs show, what is kept of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tuner
from tests.command import Here
from tests.made_up import MadeUpFake
from tests.study.fake_studies import made_up_study
from tuner.errors import UsageError
from tuner.record.files import RESULT_SCHEMA, read_result
from tuner.record.time_to_target import RUNS

LEARNS = Path(__file__).parent.parent / "models" / "to_target.py"
FASTER = "seed=2,noise=0.003"
"""A surface of the fake on which bf16 is faster."""


def tuned(folder: Path, bf16_steps: float = 1.0) -> tuple[str, Path]:
    """Return the model, and the recommendation in reduced precision of a study of it."""
    model = f"{LEARNS}@{FASTER},bf16_steps={bf16_steps}"
    made_up_study(folder, model, "30s", "--framework", "fake", "--mode", "training")
    path = folder / "out" / "recommended.reduced_precision.toml"
    if not path.exists():
        path = folder / "out" / "recommended.toml"
    assert "fake.precision" in path.read_text()
    return model, path


def test_one_that_learns_as_well_is_said_to(tmp_path: Path, here: Here) -> None:
    model, path = tuned(tmp_path)
    done = here("time-to-target", str(path), "--model", model, "--budget", "2m")
    assert done.returncode == 0, done.stderr
    assert "it learns as well as the default: it needs less than 5% more steps" in done.stdout
    assert "the target is reached" in done.stdout.lower()
    n_runs = len((tmp_path / "out" / RUNS).read_text().splitlines())
    assert n_runs == len(done.stderr.splitlines()) >= 10
    result = read_result(tmp_path / "out" / "result.json")
    (found,) = result.time_to_target
    assert found.verdict == "as_good"
    assert found.steps_ratio is not None
    assert found.speedup is not None
    assert found.steps_ratio.low < 1.0 < found.steps_ratio.high * 1.02
    jsonschema.validate(
        json.loads((tmp_path / "out" / "result.json").read_text()),
        json.loads(RESULT_SCHEMA.read_text()),
    )
    for name in ("report.md", "report.html"):
        assert "it learns as well as the default" in (tmp_path / "out" / name).read_text().lower()
    again = here("time-to-target", str(path), "--model", model, "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["verdict"] == "as_good"
    assert not again.stderr  # nothing is trained again
    made_up_study(
        tmp_path, model, "30s", "--framework", "fake", "--mode", "training"
    )  # rendered again
    assert read_result(tmp_path / "out" / "result.json").time_to_target == [found]


def test_one_that_needs_more_steps_is_found_out(tmp_path: Path, here: Here) -> None:
    model, path = tuned(tmp_path, bf16_steps=1.2)
    done = here(
        "time-to-target", str(path), "--model", model, "--budget", "2m", testbed=MadeUpFake()
    )
    assert done.returncode == 4, done.stderr
    assert "it needs more than 5% more steps" in done.stdout
    assert "1.2" in done.stdout


@pytest.mark.parametrize(
    ("seconds", "code", "said", "n_kept"),
    [
        (1.5, 3, "no pair of runs was made in time; what was trained is kept", 1),
        (3.5, 5, "1 of at least 5 pairs were made", 2),
        (5.5, 5, "2 of at least 5 pairs were made", 4),
    ],
)
def test_a_short_budget_decides_nothing_and_keeps_its_runs(
    seconds: float, code: int, said: str, n_kept: int, tmp_path: Path, here: Here
) -> None:
    model, path = tuned(tmp_path)
    asked = ("time-to-target", str(path), "--model", model, "--budget")
    done = here(*asked, f"{seconds}s", testbed=MadeUpFake())
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert len((tmp_path / "out" / RUNS).read_text().splitlines()) == n_kept
    done = here(*asked, "2m", testbed=MadeUpFake())
    assert done.returncode == 0
    n_all = len((tmp_path / "out" / RUNS).read_text().splitlines())
    assert n_all - n_kept == len(done.stderr.splitlines())


def test_what_cannot_be_trained_is_refused_on_one_line(tmp_path: Path, here: Here) -> None:
    model, path = tuned(tmp_path)
    inference = tmp_path / "inference"
    made_up_study(inference, "fake@seed=2,noise=0.003", "10s")
    for given, expected in (
        ((str(path),), "name its file"),
        (
            (str(path), "--model", f"{LEARNS.parent / 'learning.py'}"),
            "name the model that was tuned",
        ),
        ((str(path), "--model", model, "--margin", "0%"), "a margin of 0 is invalid"),
        ((str(path), "--model", model, "--margin", "much"), "is not a percentage: write 5%"),
        ((str(path), "--model", model, "--budget", "long"), "is not a duration"),
        ((str(path), "--model", " "), "--model is empty"),
        ((str(inference / "out"),), "is of inference"),
        ((str(tmp_path / "nowhere"),), "nowhere"),
        ((str(path), "--fix", "fake.layout=packed"), "leave out --fix"),
        ((), "what is trained?"),
        (("--model", str(LEARNS)), "what is trained?"),
        (("--model", str(LEARNS), "--fix", "fake.layout"), "--fix"),
        (("--model", str(LEARNS), "--fix", "fake.layuot=packed"), "did you mean fake.layout"),
        (("--model", str(LEARNS), "--fix", "fake.layout=packed"), "choose one with --framework"),
    ):
        done = here("time-to-target", *given)
        assert done.returncode == 2, given
        assert expected in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("no target", "lacks MODEL = Model(..., target=Target"),
        ("no samples", "lacks samples(n, seed)"),
        ("raises", "raised ValueError: no data here"),
        ("one array", "returned 1 arrays; the file states 1 input(s) and 1 target(s)"),
        (
            "too few",
            "floats (31, 16), integers (31,); the file states floats (32, 16), integers (32,)",
        ),
        ("no number", "quality() returned a list; it must return a number"),
    ],
)
def test_a_file_that_states_something_else_is_refused(
    fault: str, expected: str, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = tuned(tmp_path)
    monkeypatch.setenv("TUNE_TEST_BROKEN", fault)
    done = here("time-to-target", str(path), "--model", model)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_quality_that_is_not_finite_ends_a_run(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = tuned(tmp_path)
    monkeypatch.setenv("TUNE_TEST_BROKEN", "not finite")
    done = here(
        "time-to-target", str(path), "--model", model, "--budget", "1m", testbed=MadeUpFake()
    )
    assert done.returncode == 5, done.stderr
    assert "the default itself did not reach the target" in done.stdout


def test_settings_are_trained_without_a_study(tmp_path: Path, here: Here) -> None:
    asked = ("--model", f"{LEARNS}@{FASTER}", "--fix", "fake.precision=bf16")
    done = here(
        "time-to-target", *asked, "--framework", "fake", "--budget", "2m", testbed=MadeUpFake()
    )
    assert done.returncode == 0, done.stderr
    assert "fake.precision=bf16: it learns as well as the default" in done.stdout
    assert " s." not in done.stdout
    (kept,) = tmp_path.glob(f"reports/*-fake-time-to-target/{RUNS}")
    assert len(kept.read_text().splitlines()) >= 10


def test_python_trains_as_the_command_does(tmp_path: Path) -> None:
    lines: list[str] = []
    asked: dict[str, Any] = {
        "model": f"{LEARNS}@{FASTER}",
        "fix": ("fake.precision=bf16",),
        "framework": "fake",
    }
    found = tuner.time_to_target(**asked, out=tmp_path / "runs", margin="5%", on_run=lines.append)
    assert (found.verdict, found.margin) == ("as_good", 0.05)
    assert len(lines) == 2 * len(found.seeds)
    assert tuner.time_to_target(**asked, out=tmp_path / "runs", budget=60) == found
    with pytest.raises(UsageError, match="margin of 2 is invalid"):
        tuner.time_to_target(**asked, margin=2.0)


def test_a_file_that_was_changed_since_is_trained_as_it_is(tmp_path: Path, here: Here) -> None:
    copy = tmp_path / "to_target.py"
    copy.write_text(LEARNS.read_text())
    model = f"{copy}@{FASTER}"
    made_up_study(tmp_path, model, "30s", "--framework", "fake", "--mode", "training")
    copy.write_text(LEARNS.read_text().replace('"accuracy", 0.8', '"accuracy", 0.7'))
    done = here(
        "time-to-target",
        str(tmp_path / "out"),
        "--model",
        model,
        "--budget",
        "2m",
        testbed=MadeUpFake(),
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy 0.7" in done.stdout.lower()
    assert "is reached" not in done.stdout
