"""What is asked of a study beside the fastest batches: latency, and bounds; on the fake."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.command import Here, run
from tests.made_up import MadeUpFake
from tests.study.fake_studies import made_up_study, study
from tuner.record.files import RESULT_SCHEMA, read_recommendation
from tuner.record.launch import UNPACED
from tuner.record.objective import METRICS
from tuner.record.store import Store

MODEL = "fake@seed=2,noise=0.003"
SMALL = ("--numerics", "same", "--exclude", "launch.allocator", "--exclude", "fake.streams")
"""A space with few classes to confirm."""


IS_MADE_UP = (
    pytest.param(True, id="made up"),
    pytest.param(False, id="in processes", marks=pytest.mark.slow),
)


@pytest.fixture(scope="module", params=IS_MADE_UP)
def streamed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    shared_study: Callable[..., Path],
) -> tuple[Path, dict[str, Any]]:
    """One study of single requests."""
    asked = (MODEL, "6s", *SMALL, "--scenario", "single-stream", "--max-memory", "4G")
    if request.param:
        cwd = tmp_path_factory.mktemp("streamed")
        return cwd, made_up_study(cwd, *asked)
    out = shared_study(*asked)
    return out.parent, json.loads((out / "result.json").read_text())


def test_single_stream_is_judged_by_its_latency(streamed: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = streamed
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    assert (result["scenario"], result["batches"]) == ("single-stream", [1])
    told = {key: result["objective"][key] for key in ("metric", "unit", "direction")}
    assert told == {"metric": "latency_p90", "unit": "ms", "direction": "minimize"}
    winner, default = result["winners"]["same_precision"], result["default"]
    assert winner["verdict"] == "faster"
    assert winner["value"]["point"] < default["value"]["point"]
    assert winner["value"]["low"] < winner["value"]["point"] < winner["value"]["high"]
    ratio = default["value"]["point"] / winner["value"]["point"]
    assert result["speedup"]["point"] == pytest.approx(ratio, rel=1e-3)  # above 1 is better
    assert winner["value_undisturbed"]["point"] == pytest.approx(winner["value"]["point"], rel=0.2)
    report = (cwd / "out/report.md").read_text()
    assert "90th percentile of the latency" in report
    assert "without disturbed calls" not in report  # the virtual host disturbed none
    assert "items/s" not in report


def test_every_call_is_kept_and_enough_are_made(streamed: tuple[Path, dict[str, Any]]) -> None:
    cwd, _ = streamed
    with Store(cwd / "out") as store:
        records = [r for r in store.launches.values() if r.slices]
    assert all(len(s.call_s) == s.calls for r in records for s in r.slices)
    assert {s.batch for r in records for s in r.slices} == {1}
    in_rounds = [r for r in records if r.request.purpose in UNPACED]
    least = METRICS["latency_p90"].least_calls
    assert in_rounds
    assert min(sum(s.calls for s in r.slices) for r in in_rounds) >= least


def test_a_latency_that_was_claimed_is_verified_as_one(
    here: Here, streamed: tuple[Path, dict[str, Any]]
) -> None:
    cwd, result = streamed
    path = cwd / "out/recommended.toml"
    recommended = read_recommendation(path)
    assert (recommended.workload.scenario, recommended.claim.metric) == (
        "single-stream",
        "latency_p90",
    )
    assert tomllib.loads(path.read_text())["bounds"][0]["asked"] == "--max-memory 4G"
    done = here("verify", str(path), "--json", testbed=MadeUpFake())
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["unit"]) == (0, "confirmed", "ms")
    assert found["default_value"] == pytest.approx(result["default"]["value"]["point"], rel=0.3)
    assert found["speedup"]["point"] == pytest.approx(result["speedup"]["point"], rel=0.2)


@pytest.mark.parametrize("is_made_up", IS_MADE_UP)
def test_eight_samples_at_a_time_are_judged_by_the_slowest_calls(
    tmp_path: Path, is_made_up: bool
) -> None:
    of_kind = made_up_study if is_made_up else study
    result = of_kind(tmp_path, MODEL, "4s", *SMALL, "--scenario", "multi-stream")
    assert (result["batches"], result["objective"]["metric"]) == ([8], "latency_p99")
    with Store(tmp_path / "out") as store:
        records = [r for r in store.launches.values() if r.slices]
    in_rounds = [r for r in records if r.request.purpose in UNPACED]
    assert in_rounds
    assert min(sum(s.calls for s in r.slices) for r in in_rounds) >= 100


@pytest.mark.slow
def test_callers_of_one_process_are_measured_together(tmp_path: Path) -> None:
    result = study(tmp_path, MODEL, "6s", *SMALL, "--scenario", "concurrent", "--callers", "3")
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    assert (result["callers"], result["objective"]["metric"]) == (3, "throughput")
    assert result["verdict"] == "faster"
    with Store(tmp_path / "out") as store:
        slices = [s for r in store.launches.values() for s in r.slices]
    assert {len(s.shares) for s in slices} == {3}
    assert "concurrent, 3 callers" in (tmp_path / "out/report.md").read_text()
    done = run("verify", str(tmp_path / "out/recommended.toml"), "--json", cwd=tmp_path,
               is_virtual=True)  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "confirmed")


def test_an_export_names_the_scenario(here: Here, streamed: tuple[Path, dict[str, Any]]) -> None:
    cwd, _ = streamed
    done = here("export", str(cwd / "out/recommended.toml"), "--to", "env")
    assert "single-stream" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scenario", "single-stram"), "did you mean single-stream"),
        (("--scenario", "single-stream", "--batch", "4"), "sends 1 sample(s) in a request"),
        (("--scenario", "single-stream", "--fix", "workload.batch=4"), "the batch of 4"),
        (("--scenario", "single-stream", "--set", "workload.batch=1,4"), "the batch of 4"),
        (("--scenario", "multi-stream", "--batch", "4"), "sends 8 sample(s) in a request"),
        (("--callers", "4"), "--scenario offline has one caller a process"),
        (("--scenario", "concurrent", "--callers", "1"), "give 2 to 256"),
        (("--scenario", "concurrent", "--callers", "1000"), "give 2 to 256"),
        (("--max-memory", "4"), "write 512M, 4G or 1.5G"),
        (("--max-memory", "-1G"), "write 512M, 4G or 1.5G"),
        (("--max-memory", "much"), "write 512M, 4G or 1.5G"),
        (("--goal", "cheapest"), "fastest"),
        (("--accept-cost", "money"), "'money': did you mean memory? allowed: memory, latency"),
        (("--accept-cost", "memory,"), "--accept-cost '': allowed: memory, latency"),
    ],
)
def test_what_cannot_be_asked_is_said(here: Here, arguments: tuple[str, ...], words: str) -> None:
    done = here("--model", MODEL, "--hw", "fake", "--dry-run", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_program_times_itself(here: Here) -> None:
    done = here("--command", "python bench.py", "--scenario", "single-stream", "--dry-run")
    assert done.returncode == 2
    assert "a program (--command) times itself" in done.stderr


@pytest.mark.slow
def test_nothing_beyond_a_bound_is_recommended(tmp_path: Path) -> None:
    """Less than Python itself needs: whatever is faster than the default is beyond it."""
    result = study(tmp_path, MODEL, "2s", "--max-memory", "8M")
    others = [t for t in result["trials"] if t["configuration"].keys() - {"workload.batch"}]
    assert others
    assert {t["outcome"] for t in others} == {"over_bound"}
    assert result["verdict"] != "faster"
    assert any("the default itself exceeds the bound" in text for text in result["warnings"])
    assert result["default"]["over_bound"]


def test_training_is_tuned_at_one_batch_and_says_what_it_learns(tmp_path: Path) -> None:
    result = made_up_study(tmp_path, MODEL, "20s", *SMALL, "--mode", "training")
    jsonschema.validate(result, json.loads(RESULT_SCHEMA.read_text()))
    assert (result["scenario"], result["batches"]) == ("training", [16])  # the largest stated
    assert result["objective"]["metric"] == "throughput"
    assert result["winners"]["same_precision"]["verdict"] == "faster"
    assert result["model_facts"]["learns"].startswith("the fake's loss")
    report = (tmp_path / "out/report.md").read_text()
    assert "steps of batch 16: the fake's loss" in report
    assert "-- python train.py" in report
    assert "prepare_training(model, optimizer)" in report
    shipped = read_recommendation(tmp_path / "out/recommended.toml")
    assert shipped.workload.mode == "training"
