"""Whole studies on the fake framework, through the command that users type."""

import json
import math
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.command import (
    MARKER,
    result_of,
    run,
)
from tests.study.fake_studies import FAKE, check_seconds, study
from tuner.record.configuration import Configuration
from tuner.record.files import RECOMMENDATION_SCHEMA, RESULT_SCHEMA, read_recommendation
from tuner.record.journal import FinalistNamed, WinnerClass
from tuner.record.launch import Purpose
from tuner.record.store import Store
from tuner.space.catalogue import allowed_in
from tuner.worker.frameworks.fake import Surface

FAULTY = "fake@noise=0.003,faults=fake.layout=packed:crash;fake.streams=2:wrong_output"


SET = {"FAKE_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"}


def truth(surface: Surface, configuration: dict[str, Any]) -> float:
    return surface.log_rate(configuration)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One study with a crash and a wrong output in its space."""
    cwd = tmp_path_factory.mktemp("finished")
    secrets = {"MY_TOKEN": "s3cr3t-t0ken", "TF_API_TOKEN": "s3cr3t-t0ken", MARKER: "x"}
    return cwd, study(cwd, FAULTY, "20s", environment={**secrets, **SET})


def test_files_of_the_contract_are_there_and_valid(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    cwd, result = finished
    names = {p.name for p in (cwd / "out").iterdir()}
    assert {"result.json", "report.html", "report.md", "recommended.toml", "recommended.env",
            "run.sh", "study.db", "launches", "recommended.launch_only.toml",
            "recommended.same.toml", "recommended.reduced.toml"} <= names  # fmt: skip
    stored = json.loads((cwd / "out/result.json").read_text())
    assert stored == result
    jsonschema.validate(stored, json.loads(RESULT_SCHEMA.read_text()))
    for name in sorted(n for n in names if n.endswith(".toml")):
        plain = tomllib.loads((cwd / "out" / name).read_text())
        jsonschema.validate(plain, json.loads(RECOMMENDATION_SCHEMA.read_text()))


def test_the_result_tells_where_the_time_goes_and_when_what_was_measured(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    _, result = finished
    operators = result["default"]["profile"]["operators"]
    assert {o["name"] for o in operators} == {"matmul", "add"}
    assert result["winners"][result["recommended_class"]]["profile"]["call_s"] > 0
    moments = result["timeline"]
    assert len(moments) == result["noise"]["slices"]
    assert [m["at_s"] for m in moments] == sorted(m["at_s"] for m in moments)
    assert sum(bool(m["dirty"]) for m in moments) == result["noise"]["dirty_slices"]
    paced = [m["pacer"] for m in moments if m["pacer"] is not None]
    assert 0.5 < min(paced) <= 1 <= max(paced) < 2
    check_seconds(result)
    spent = {row["phase"]: row for row in result["seconds_by_phase"]}
    assert all(spent[phase]["scored"] > 0 for phase in ("baselines", "explore", "confirm"))
    assert spent["explore"]["pacer"] > 0
    assert spent["confirm"]["pacer"] == 0  # claims are made without it


def test_a_dry_run_says_what_the_folder_holds(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, _ = finished
    again = ("--model", FAULTY, "--hw", "fake", "--out", "out", "--dry-run")
    same = run(*again, cwd=cwd).stdout
    assert "holds this study already" in same
    assert "as_you_run_it" in same  # of the shell that it was begun in
    other = run(*again, "--batch", "8", cwd=cwd, environment={"FAKE_THREADS": "4"}).stdout
    assert "FAKE_THREADS=4: set in this shell, and removed" in " ".join(other.split())
    assert "holds another study (workload" in " ".join(other.split())


def test_a_study_learns_from_an_earlier_one(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, earlier = finished
    arguments = ("--model", "fake@noise=0.003", *FAKE, "--budget", "9s", "--out", "out")
    done = run(*arguments, "--learn-from", str(cwd), cwd=tmp_path, is_virtual=True)
    result = result_of(done.stdout)
    assert re.search(rf"told of \d+ configurations by .*{cwd}", done.stderr)
    sources = [trial["source"] for trial in result["trials"]]
    n_told = sources.count("transferred")
    assert n_told > 0
    first = sources.index("transferred")
    assert set(sources[:first]) == {"default"}
    baselines = {each["name"] for each in result["baselines"]}
    same = {
        Configuration.of(trial["configuration"]): trial["search_ratio"]
        for trial in earlier["trials"]
        if trial["outcome"] == "measured"
        if allowed_in(WinnerClass.SAME, Configuration.of(trial["configuration"]))
    }
    guess = Configuration.of(result["trials"][first]["configuration"])
    tried = {
        Configuration.of(t["configuration"]).without("workload.batch")
        for t in result["trials"]
        if t["source"] in baselines
    }
    untried = [c for c in same if c.without("workload.batch") not in tried]
    best = max(untried, key=lambda c: same[c])
    assert guess.without("workload.batch") == best.without("workload.batch")
    defaults = [
        t for t in result["trials"][:first] if set(t["configuration"]) <= {"workload.batch"}
    ]
    fastest = max(defaults, key=lambda t: t["search_ratio"])
    assert guess.get("workload.batch") == fastest["configuration"].get("workload.batch")
    learnt = result["learnt_from"]
    (name,) = learnt["studies"]
    assert str(cwd / "out") in name
    assert not learnt["is_dropped"]
    assert learnt["rank_correlation"] > 0.2
    assert "Told beforehand where to look" in (tmp_path / "out/report.md").read_text()
    html = (tmp_path / "out/report.html").read_text()
    assert "rank configurations alike" in html


def test_what_cannot_be_read_is_not_learnt_from(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, _ = finished
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text((cwd / "out/result.json").read_text())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/result.json").write_text("{}")
    again = ("--model", "fake", "--hw", "fake", "--dry-run", "--json", "--learn-from")
    shown = json.loads(run(*again, ".", "--learn-from", "one", cwd=tmp_path).stdout)
    assert len(shown["earlier"]) == 2
    done = run(*again, "broken", cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a result that this version reads" in done.stderr


def test_a_dry_run_says_whom_it_learns_from(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, _ = finished
    again = ("--model", "fake", "--hw", "fake", "--dry-run", "--learn-from")
    assert "learns from fake@" in run(*again, "out", cwd=cwd).stdout
    shown = json.loads(run(*again, "out", "--json", cwd=cwd).stdout)
    assert len(shown["earlier"]) == 1


def test_no_claim_exceeds_the_truth(finished: tuple[Path, dict[str, Any]]) -> None:
    _, result = finished
    surface = Surface(0)
    default = max(truth(surface, {"workload.batch": b}) for b in (4, 16))
    for name, winner in result["winners"].items():
        assert winner["verdict"] == "faster", (name, winner)
        true = math.exp(truth(surface, winner["configuration"]) - default)
        # one in twenty intervals misses; by how little is a matter of the fixture's low noise
        assert winner["speedup"]["low"] <= true * 1.01, (name, winner)
        assert winner["speedup"]["high"] >= true * 0.99, (name, winner)


def test_failures_are_outcomes_and_never_win(finished: tuple[Path, dict[str, Any]]) -> None:
    _, result = finished
    for trial in result["trials"]:
        settings = trial["configuration"]
        if settings.get("fake.layout") == "packed":
            assert trial["outcome"] in ("crashed", "pruned")
        elif settings.get("fake.streams") == 2:
            assert trial["outcome"] in ("wrong_output", "pruned")
        if trial["outcome"] != "measured":
            assert trial["reason"]
    assert {"crashed", "wrong_output"} <= {t["outcome"] for t in result["trials"]}
    for winner in result["winners"].values():
        assert winner["configuration"].get("fake.layout") != "packed"
        assert winner["configuration"].get("fake.streams") != 2


def test_baselines_are_listed_told_apart_and_confirmed(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    _, result = finished
    rows = {b["name"]: b for b in result["baselines"]}
    assert rows["vendor_default"]["same_as"] == "default"
    assert rows["vendor_threads_again"]["same_as"] == "vendor_threads"
    assert not rows["vendor_elsewhere"]["applicable"]
    assert rows["vendor_threads"]["dead_settings"]
    best = result["best_baseline"]
    assert rows[best]["speedup"] is not None
    assert result["speedup_over_best_baseline"]["point"] > 1


def test_what_the_shell_sets_is_removed_and_confirmed_as_a_baseline(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    """Else the default, and with it every ratio, would be another than the reader's."""
    cwd, result = finished
    assert result["environment"] == {**SET, "TF_API_TOKEN": "***"}
    (own,) = [b for b in result["baselines"] if b["name"] == "as_you_run_it"]
    assert own["configuration"] == {"env.FAKE_THREADS": 1}
    surface = Surface(0)

    def true(settings: dict[str, Any]) -> float:
        return max(truth(surface, {**settings, "workload.batch": b}) for b in (4, 16))

    assert own["speedup"]["point"] == pytest.approx(
        math.exp(true(own["configuration"]) - true({})), rel=0.03
    )
    winner = result["winners"][result["recommended_class"]]["configuration"]
    over = result["speedup_over_as_run"]
    assert over["point"] == pytest.approx(
        math.exp(truth(surface, winner) - true(own["configuration"])), rel=0.03
    )
    said = f"{over['point']:.2f}x ({over['low']:.2f} - {over['high']:.2f})"
    assert f"Against how you run it now: **{said}**" in (cwd / "out/report.md").read_text()
    html = (cwd / "out/report.html").read_text()
    assert f"Against how you run it now: {said}" in html
    assert "CUDA_VISIBLE_DEVICES=0, FAKE_THREADS=1" in html


def test_every_setting_of_a_winner_is_worth_something(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    _, result = finished
    surface = Surface(0)
    for winner in result["winners"].values():
        full = truth(surface, winner["configuration"])
        settings = set(winner["configuration"]) - {"workload.batch"}
        assert {c["knob"] for c in winner["contributions"]} == settings
        for each in winner["contributions"]:
            less = {k: v for k, v in winner["configuration"].items() if k != each["knob"]}
            true = math.exp(full - truth(surface, less))
            # one in twenty intervals misses; by how little is a matter of the fixture's low noise
            if each["speedup"] is None:
                assert each["ratio"] == pytest.approx(true, rel=0.05)
            else:
                assert each["speedup"]["low"] <= true * 1.02, each
                assert each["speedup"]["high"] >= true * 0.98, each
    assert result["contributions"] == result["winners"]["same"]["contributions"]


def test_every_setting_of_a_winner_was_was_read_back_in_force(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    _, result = finished
    for winner in result["winners"].values():
        seen = {item["knob"]: item for item in winner["read_back"]}
        for knob, value in winner["configuration"].items():
            if knob != "workload.batch":
                assert seen[knob]["observed"] == value
                assert seen[knob]["evidence"] == "effective"
        assert winner["not_in_force"] == []


def test_what_ships_is_what_was_confirmed(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, result = finished
    klass = result["recommended_class"]
    assert klass == "same"
    shipped = read_recommendation(cwd / "out/recommended.toml")
    assert read_recommendation(cwd / "out") == shipped  # its folder stands for it
    winner = result["winners"][klass]
    assert {s.knob: s.value for s in shipped.settings} == winner["configuration"]
    with Store(cwd / "out") as store:
        confirmed = {
            r.request.configuration.label()
            for r in store.launches.values()
            if r.request.purpose is Purpose.CONFIRM
        }
        finalists = store.all(FinalistNamed)
    assert any(dict(f.configuration.settings) == winner["configuration"] for f in finalists)
    assert " ".join(f"{k}={v}" for k, v in sorted(winner["configuration"].items())) in confirmed


def test_run_sh_starts_a_program_under_the_launch_settings(
    finished: tuple[Path, dict[str, Any]],
) -> None:

    cwd, _ = finished
    wanted = read_recommendation(cwd / "out/recommended.toml").environment
    done = subprocess.run([cwd / "out/run.sh", "env"], capture_output=True, text=True, check=True)
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert wanted
    assert wanted.items() <= environment.items()
    lines = (cwd / "out/recommended.env").read_text().splitlines()
    assert {f"{k}={v}" for k, v in wanted.items()} <= set(lines)
    assert done.stderr == ""
    tuned = {**os.environ, "OMP_NUM_THREADS": "7", "FOREIGN": "x"}
    again = subprocess.run([cwd / "out/run.sh", "true"], env=tuned, capture_output=True, text=True,
                           check=True)  # fmt: skip
    assert again.stderr == "run.sh: set besides, and not measured: OMP_NUM_THREADS \n"


def test_the_same_command_renders_a_finished_study_again(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    cwd, result = finished
    before = {p.name for p in (cwd / "out/launches").iterdir()}
    journal = (cwd / "out/study.jsonl").read_bytes()
    arguments = ("--model", FAULTY, *FAKE, "--budget", "20m", "--out", "out")
    done = run(*arguments, "--learn-from", str(cwd), cwd=cwd, environment={"FAKE_THREADS": "8"})
    assert "begun with CUDA_VISIBLE_DEVICES=0, FAKE_THREADS=1" in done.stderr
    assert "this shell has FAKE_THREADS=8" in done.stderr
    again = result_of(done.stdout)
    assert {p.name for p in (cwd / "out/launches").iterdir()} == before
    assert (cwd / "out/study.jsonl").read_bytes() == journal
    for part in ("winners", "baselines", "environment", "created", "budget_s", "command"):
        assert again[part] == result[part]
    (cwd / "out/report.md").unlink()
    assert run("report", "out", cwd=cwd).returncode == 0
    assert (cwd / "out/report.md").exists()


def test_a_finished_study_that_lost_a_launch_is_not_rendered_again(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, _ = finished
    before = (cwd / "out/result.json").read_bytes()
    shutil.copytree(cwd / "out", tmp_path / "out")
    (tmp_path / "out/launches/0005.jsonl").unlink()
    done = run("--model", FAULTY, *FAKE, "--out", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "out/launches/0005.jsonl is missing" in done.stderr
    assert "is still shown by: tune-framework report out" in done.stderr
    assert (tmp_path / "out/result.json").read_bytes() == before
    (tmp_path / "out/study.jsonl").write_text("broken\n")  # whatever is lost besides
    assert run("report", "out", cwd=tmp_path).returncode == 0


def test_what_is_made_again_of_a_finished_study_is_said(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    cwd, result = finished
    shutil.copytree(cwd / "out", tmp_path / "out")
    for name in ("study.db", "result.json", "recommended.toml"):
        (tmp_path / "out" / name).unlink()
    again = study(tmp_path, FAULTY, "20m")
    assert any("study.db was damaged" in warning for warning in again["warnings"])
    assert again["winners"] == result["winners"]
    assert again["seconds"] == result["seconds"]
    assert read_recommendation(tmp_path / "out").settings


def test_a_study_of_another_identity_is_refused_with_what_differs(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    cwd, _ = finished
    done = run("--model", "fake@seed=9", *FAKE, "--out", "out", cwd=cwd)
    assert done.returncode == 2
    assert "workload changed" in done.stderr
    assert "--out" in done.stderr


def test_nothing_of_the_users_secrets_is_kept(finished: tuple[Path, dict[str, Any]]) -> None:
    cwd, _ = finished
    for path in (cwd / "out").rglob("*"):
        if path.is_file():
            assert b"s3cr3t-t0ken" not in path.read_bytes(), path
    assert os.environ.get("MY_TOKEN") is None
