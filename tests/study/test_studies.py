"""Whole studies of the fake: made up, and one in real processes that everybody shares."""

import json
import math
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from tests.command import FINISHED, MARKER, Here
from tests.made_up import MadeUpFake
from tests.study.fake_studies import check_seconds, made_up_study
from tuner.record.configuration import Configuration
from tuner.record.files import RECOMMENDATION_SCHEMA, RESULT_SCHEMA, read_recommendation
from tuner.record.journal import FinalistNamed
from tuner.record.launch import Purpose
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.worker.frameworks.fake import Surface

FAULTY = "fake@noise=0.003,faults=fake.layout=packed:crash;fake.streams=2:wrong_output"


FAKE = ("--hw", "fake", "--json")
SET = {"FAKE_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"}
SECRETS = {"MY_TOKEN": "s3cr3t-t0ken", "TF_API_TOKEN": "s3cr3t-t0ken", MARKER: "x"}


def truth(surface: Surface, configuration: dict[str, Any]) -> float:
    return surface.log_rate(configuration)


class Finished(NamedTuple):
    """A finished study below a folder, and the surface that it searched."""

    cwd: Path
    result: dict[str, Any]
    surface: Surface


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One study with a crash and a wrong output in its space, made up."""
    cwd = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRETS, **SET}.items():
            patch.setenv(name, value)
        return Finished(cwd, made_up_study(cwd, FAULTY, "20s"), Surface(0))


@pytest.fixture(scope="module")
def in_processes(shared_study: Callable[..., Path]) -> Finished:
    """The same in real processes."""
    out = shared_study(FAULTY, "30s", environment={**SECRETS, **SET})
    return Finished(out.parent, json.loads((out / "result.json").read_text()), Surface(0))


@pytest.fixture(params=["finished", pytest.param("in_processes", marks=pytest.mark.slow)])
def either(request: pytest.FixtureRequest) -> Finished:
    found: Finished = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def copied(finished: Finished, tmp_path: Path) -> Finished:
    """A copy of the study that is made up."""
    shutil.copytree(finished.cwd / "out", tmp_path / "out")
    return finished._replace(cwd=tmp_path)


def test_files_of_the_contract_are_there_and_valid(either: Finished) -> None:
    cwd, result, _ = either
    names = {p.name for p in (cwd / "out").iterdir()}
    assert {"result.json", "report.html", "report.md", "recommended.toml", "recommended.env",
            "run.sh", "study.db", "launches"} <= names  # fmt: skip
    assert {f"recommended.{winner_class}.toml" for winner_class in WinnerClass} <= names
    stored = json.loads((cwd / "out/result.json").read_text())
    assert stored == result
    jsonschema.validate(stored, json.loads(RESULT_SCHEMA.read_text()))
    for name in sorted(n for n in names if n.startswith("recommended") and n.endswith(".toml")):
        plain = tomllib.loads((cwd / "out" / name).read_text())
        jsonschema.validate(plain, json.loads(RECOMMENDATION_SCHEMA.read_text()))


@pytest.mark.slow
def test_the_result_tells_where_the_time_goes_and_when_what_was_measured(
    in_processes: Finished,
) -> None:
    result = in_processes.result
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


def test_a_dry_run_says_what_the_folder_holds(
    here: Here, copied: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = ("--model", FAULTY, "--hw", "fake", "--out", "out", "--dry-run")
    same = here(*again, testbed=MadeUpFake()).stdout
    assert "holds this study already" in same
    assert "as_you_run_it" in same  # of the shell that it was begun in
    monkeypatch.setenv("FAKE_THREADS", "4")
    other = here(*again, "--batch", "8", testbed=MadeUpFake()).stdout
    assert "FAKE_THREADS=4: set in this shell, and removed" in " ".join(other.split())
    assert "holds another study (workload" in " ".join(other.split())


def test_a_study_learns_from_an_earlier_one(here: Here, finished: Finished, tmp_path: Path) -> None:
    cwd, earlier, _ = finished
    arguments = ("--model", "fake@noise=0.003", "--hw", "fake", "--budget", "9s", "--out", "out")
    done = here(*arguments, "--learn-from", str(cwd), testbed=MadeUpFake())
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert re.search(rf"told of \d+ configurations by .*{cwd}", done.stdout)
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
        if allowed_in(WinnerClass.SAME_PRECISION, Configuration.of(trial["configuration"]))
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
    here: Here, finished: Finished, tmp_path: Path
) -> None:
    cwd = finished.cwd
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text((cwd / "out/result.json").read_text())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/result.json").write_text("{}")
    again = ("--model", "fake", "--hw", "fake", "--dry-run", "--json", "--learn-from")
    shown = json.loads(here(*again, ".", "--learn-from", "one", testbed=MadeUpFake()).stdout)
    assert len(shown["earlier"]) == 2
    done = here(*again, "broken", testbed=MadeUpFake())
    assert done.returncode == 2
    assert "is not a result that this version reads" in done.stderr


def test_a_dry_run_says_whom_it_learns_from(here: Here, finished: Finished) -> None:
    out = str(finished.cwd / "out")
    again = ("--model", "fake", "--hw", "fake", "--dry-run", "--learn-from")
    assert "learns from fake@" in here(*again, out, testbed=MadeUpFake()).stdout
    shown = json.loads(here(*again, out, "--json", testbed=MadeUpFake()).stdout)
    assert len(shown["earlier"]) == 1


def test_no_claim_exceeds_the_truth(either: Finished) -> None:
    _, result, surface = either
    default = max(truth(surface, {"workload.batch": b}) for b in (4, 16))
    for name, winner in result["winners"].items():
        assert winner["verdict"] == "faster", (name, winner)
        true = math.exp(truth(surface, winner["configuration"]) - default)
        # one in twenty intervals misses; by how little is a matter of the fixture's low noise
        assert winner["speedup"]["low"] <= true * 1.01, (name, winner)
        assert winner["speedup"]["high"] >= true * 0.99, (name, winner)


def test_failures_are_outcomes_and_never_win(either: Finished) -> None:
    result = either.result
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


def test_a_process_that_crashes_is_an_outcome_and_never_wins(
    shared_study: Callable[..., Path],
) -> None:
    """In processes, of which a study of 4 s launches some on every host."""
    result = json.loads((shared_study(FINISHED, "4s") / "result.json").read_text())
    ended = {t["outcome"] for t in result["trials"]
             if t["configuration"].get("fake.compile") == "fast"}  # fmt: skip
    assert {"crashed"} <= ended <= {"crashed", "pruned"}
    for winner in result["winners"].values():
        assert winner["configuration"].get("fake.compile") != "fast"
        assert winner["not_in_force"] == []
        observed = {item["knob"]: item["observed"] for item in winner["read_back"]}
        assert observed.items() >= {k: v for k, v in winner["configuration"].items()
                                    if k != "workload.batch"}.items()  # fmt: skip


def test_baselines_are_listed_told_apart_and_confirmed(either: Finished) -> None:
    result = either.result
    rows = {b["name"]: b for b in result["baselines"]}
    assert rows["vendor_default"]["same_as"] == "default"
    assert rows["vendor_threads_again"]["same_as"] == "vendor_threads"
    assert not rows["vendor_elsewhere"]["applicable"]
    assert rows["vendor_threads"]["dead_settings"]
    best = result["best_baseline"]
    assert rows[best]["speedup"] is not None
    assert result["speedup_over_best_baseline"]["point"] > 1


def test_what_the_shell_sets_is_removed_and_confirmed_as_a_baseline(
    either: Finished,
) -> None:
    """Else the default, and with it every ratio, would be another than the reader's."""
    cwd, result, surface = either
    assert result["environment"] == {**SET, "TF_API_TOKEN": "***"}
    of_default = {item["knob"]: item["observed"] for item in result["default"]["read_back"]}
    assert of_default["env.FAKE_THREADS"] == 2
    (own,) = [b for b in result["baselines"] if b["name"] == "as_you_run_it"]
    assert own["configuration"] == {"env.FAKE_THREADS": 1}

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
    assert f"Compared with your present settings: **{said}**" in (cwd / "out/report.md").read_text()
    html = (cwd / "out/report.html").read_text()
    assert f"Compared with your present settings: {said}" in html
    assert "CUDA_VISIBLE_DEVICES=0, FAKE_THREADS=1" in html


def test_every_setting_of_a_winner_is_worth_something(either: Finished) -> None:
    _, result, surface = either
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
    assert result["contributions"] == result["winners"]["same_precision"]["contributions"]


def test_every_setting_of_a_winner_was_read_back_in_force(either: Finished) -> None:
    for winner in either.result["winners"].values():
        seen = {item["knob"]: item for item in winner["read_back"]}
        for knob, value in winner["configuration"].items():
            if knob != "workload.batch":
                assert seen[knob]["observed"] == value
                assert seen[knob]["evidence"] == "effective"
        assert winner["not_in_force"] == []


def test_what_ships_is_what_was_confirmed(either: Finished) -> None:
    cwd, result, _ = either
    winner_class = result["recommended_class"]
    assert winner_class == "same_precision"
    shipped = read_recommendation(cwd / "out/recommended.toml")
    assert read_recommendation(cwd / "out") == shipped  # its folder stands for it
    winner = result["winners"][winner_class]
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


def test_run_sh_starts_a_program_under_the_launch_settings(finished: Finished) -> None:
    cwd = finished.cwd
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
    assert again.stderr == "run.sh: set in addition, and not measured: OMP_NUM_THREADS \n"


def test_the_same_command_renders_a_finished_study_again(
    here: Here, copied: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    cwd, result, _ = copied
    before = {p.name for p in (cwd / "out/launches").iterdir()}
    journal = (cwd / "out/study.jsonl").read_bytes()
    arguments = ("--model", FAULTY, "--hw", "fake", "--budget", "20s", "--out", "out")
    monkeypatch.setenv("FAKE_THREADS", "8")
    testbed = MadeUpFake()
    done = here(*arguments, "--learn-from", "out", testbed=testbed)
    said = " ".join(done.stderr.split()) + " ".join(done.stdout.split())
    assert "begun with CUDA_VISIBLE_DEVICES=0, FAKE_THREADS=1" in said
    assert "this shell has FAKE_THREADS=8" in said
    assert testbed.clock.now_s() == 0
    again = json.loads((cwd / "out/result.json").read_text())
    assert {p.name for p in (cwd / "out/launches").iterdir()} == before
    assert (cwd / "out/study.jsonl").read_bytes() == journal
    for part in ("winners", "baselines", "environment", "created", "budget_s", "command"):
        assert again[part] == result[part]
    (cwd / "out/report.md").unlink()
    assert here("report", "out", testbed=MadeUpFake()).returncode == 0
    assert (cwd / "out/report.md").exists()


def test_a_finished_study_that_lost_a_launch_is_not_rendered_again(
    here: Here, copied: Finished
) -> None:
    cwd = copied.cwd
    before = (cwd / "out/result.json").read_bytes()
    (cwd / "out/launches/0005.jsonl").unlink()
    done = here("--model", FAULTY, *FAKE, "--out", "out", testbed=MadeUpFake())
    assert done.returncode == 1
    assert "out/launches/0005.jsonl is missing" in done.stderr
    assert "is still shown by: tune-framework report out" in done.stderr
    assert (cwd / "out/result.json").read_bytes() == before
    (cwd / "out/study.jsonl").write_text("broken\n")  # whatever is lost besides
    assert here("report", "out", testbed=MadeUpFake()).returncode == 0


def test_what_is_made_again_of_a_finished_study_is_said(copied: Finished) -> None:
    cwd, result, _ = copied
    for name in ("study.db", "result.json", "recommended.toml"):
        (cwd / "out" / name).unlink()
    again = made_up_study(cwd, FAULTY, "20s")
    assert any("study.db was damaged" in warning for warning in again["warnings"])
    assert again["winners"] == result["winners"]
    assert again["seconds"] == result["seconds"]
    assert read_recommendation(cwd / "out").settings


def test_a_study_of_another_identity_is_refused_with_what_differs(
    here: Here, finished: Finished
) -> None:
    out = str(finished.cwd / "out")
    done = here("--model", "fake@seed=9", *FAKE, "--out", out, testbed=MadeUpFake())
    assert done.returncode == 2
    assert "workload changed" in done.stderr
    assert "--out" in done.stderr


def test_nothing_of_the_users_secrets_is_kept(either: Finished) -> None:
    for path in either.cwd.rglob("*"):
        if path.is_file():
            assert b"s3cr3t-t0ken" not in path.read_bytes(), path
    assert os.environ.get("MY_TOKEN") is None
