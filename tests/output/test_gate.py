"""`compare --fail-if` in a pipeline, and the examples of pipelines."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.command import Here
from tuner.record.files import read_result, write_result
from tuner.record.interval import Interval
from tuner.record.result import Result

ROOT = Path(__file__).parents[2]


def study(folder: Path, created: str, rate: float, half: float = 0.02, **changes: Any) -> Result:
    """Write a study whose recommendation has this rate, with this relative half width."""
    old = read_result(ROOT / "reports/samples/resnet50-torch.json")
    interval = Interval(rate, rate * (1 - half), rate * (1 + half), 0.95)
    winner = msgspec.structs.replace(
        old.winners[old.recommended_class], value=interval, rate=interval
    )
    result = msgspec.structs.replace(
        old,
        **{
            "created": created,
            "verdict": "faster",
            "winners": {**old.winners, old.recommended_class: winner},
            **changes,
        },
    )
    folder.mkdir()
    write_result(folder / "result.json", result)
    return result


@pytest.mark.parametrize(
    ("rate", "half", "code", "said"),
    [
        (100.0, 0.02, 0, "passed: old, then new: the recommended speed is 1.00x"),
        (96.0, 0.02, 0, "not surely below 0.95x"),
        (90.0, 0.08, 0, "not surely below 0.95x"),  # it may be 0.97x
        (85.0, 0.02, 4, "failed: old, then new: the recommended speed is 0.85x"),
        (130.0, 0.02, 0, "passed"),
    ],
)
def test_a_pipeline_fails_where_the_later_study_is_surely_slower(
    here: Here, tmp_path: Path, rate: float, half: float, code: int, said: str
) -> None:
    study(tmp_path / "old", "2026-01-01T00:00:00+00:00", 100.0)
    study(tmp_path / "new", "2026-02-01T00:00:00+00:00", rate, half)
    done = here("compare", "new", "old", "--fail-if", "slower:5%")
    assert done.returncode == code
    assert said in done.stderr


def test_what_cannot_be_compared_is_not_decided(here: Here, tmp_path: Path) -> None:
    old = study(tmp_path / "old", "2026-01-01T00:00:00+00:00", 100.0)
    other = msgspec.structs.replace(
        old.host, fingerprint="x", identity={**old.host.identity, "physical_cores": 64}
    )
    study(tmp_path / "new", "2026-02-01T00:00:00+00:00", 10.0, host=other)
    done = here("compare", "old", "new", "--fail-if", "slower:5%")
    assert done.returncode == 5
    assert "undecided: old, then new: the hosts differ" in done.stderr


def test_slow_steps_add_up(here: Here, tmp_path: Path) -> None:
    for month, rate in enumerate((100.0, 93.0, 87.0, 81.0), 1):
        study(tmp_path / str(month), f"2026-0{month}-01T00:00:00+00:00", rate)
    done = here("compare", ".", "--fail-if", "slower:10%")
    assert done.returncode == 4
    assert "failed: 1, then 4" in done.stderr


def test_a_study_that_decided_nothing_decides_nothing(here: Here, tmp_path: Path) -> None:
    study(tmp_path / "old", "2026-01-01T00:00:00+00:00", 100.0)
    new = study(tmp_path / "new", "2026-02-01T00:00:00+00:00", 50.0)
    winner = msgspec.structs.replace(new.winners[new.recommended_class], verdict="ambiguous")
    winners = {**new.winners, new.recommended_class: winner}
    changed = msgspec.structs.replace(new, verdict="ambiguous", winners=winners)
    write_result(tmp_path / "new" / "result.json", changed)
    done = here("compare", "old", "new", "--fail-if", "slower:5%")
    assert done.returncode == 5
    assert "new decided nothing" in done.stderr


def test_another_model_of_the_same_name_is_not_decided(here: Here, tmp_path: Path) -> None:
    study(tmp_path / "old", "2026-01-01T00:00:00+00:00", 100.0, source_sha256="a" * 64)
    study(tmp_path / "new", "2026-02-01T00:00:00+00:00", 10.0, source_sha256="b" * 64)
    done = here("compare", "old", "new", "--fail-if", "slower:5%")
    assert done.returncode == 5
    assert "the model's file has changed" in done.stderr


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("slower", "write slower:5%"),
        ("faster:5%", "write slower:5%"),
        ("slower:100%", "a share below 100%"),
        ("slower:5%", "hold no two"),
    ],
)
def test_a_condition_that_cannot_be_judged_is_refused(
    here: Here, tmp_path: Path, condition: str, said: str
) -> None:
    study(tmp_path / "old", "2026-01-01T00:00:00+00:00", 100.0)
    done = here("compare", "old", "--fail-if", condition)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("name", "schema"),
    [("github.yml", "vendor.github-workflows"), ("gitlab.yml", "vendor.gitlab-ci")],
)
def test_the_examples_of_pipelines_fit_their_schemas(
    tmp_path: Path, name: str, schema: str
) -> None:
    asked = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    example = ROOT / "docs/pipelines" / name
    done = subprocess.run([*asked, str(example)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / name
    wrong.write_text(example.read_text().replace("script:", "scrpt:").replace("steps:", "stps:"))
    done = subprocess.run([*asked, str(wrong)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
