"""Studies that are killed, stopped or started twice go on and lose nothing."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import HANGS_S, Here, new_marker, result_of, run, start, wait_until_gone
from tests.made_up import MadeUpFake
from tests.study.fake_studies import FAKE, check_seconds
from tuner.errors import Interrupted
from tuner.record.journal import RoundDone, TrialNoted
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.record.store import Store

BUDGET = "15s"


def asked(cwd: Path, budget: str = BUDGET) -> tuple[str, ...]:
    """Without allocators, for which each worker would have to be started from nothing."""
    return ("--model", "fake@seed=1", *FAKE, "--exclude", "launch.allocator", "--budget", budget,
            "--out", str(cwd / "out"))  # fmt: skip


def check_store(folder: Path) -> None:
    """Nothing measured is lost or repeated."""
    with Store(folder) as store:
        indices = [s.index for r in store.launches.values() for s in r.slices]
        assert len(indices) == len(set(indices))
        trials = store.all(TrialNoted)
        assert len({t.configuration for t in trials}) == len(trials)
        assert len({t.number for t in trials}) == len(trials)
        checked = [r.request.configuration for r in store.launches.values() if r.check]
        assert len(checked) == len(set(checked))
        numbers = [r.number for r in store.all(RoundDone)]
        assert numbers == list(range(1, len(numbers) + 1))
        # a complete launch of the search is told exactly once
        told = [launch for t in trials for launch in t.launches]
        assert len(told) == len(set(told))
        for record in store.launches.values():
            wanted = record.request.purpose in (Purpose.SEARCH, Purpose.BASELINE)
            complete = record.ending and record.ending.outcome is not Outcome.INTERRUPTED
            if wanted and complete:
                assert record.request.id in told
    for path in sorted((folder / "launches").glob("*.jsonl")):
        assert path.read_text().count('"type":"request"') == 1


def test_stopped_again_and_again_it_loses_nothing(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few launches, in every phase; what was begun without a variable goes on without it."""
    before: list[str] = []
    for n in (1, 2, 5, 9, 14, 6, 3, 8):
        begun: list[None] = []

        def stop(begun: list[None] = begun, n: int = n) -> None:
            begun.append(None)
            if len(begun) == n:
                raise Interrupted("stopped by SIGINT")

        done = here(*asked(tmp_path), testbed=MadeUpFake(stop))
        assert done.returncode == 130
        assert "the same command resumes" in done.stderr
        now = launch_files(tmp_path)
        assert now[: len(before)] == before
        before = now
    monkeypatch.setenv("FAKE_THREADS", "8")
    done = here(*asked(tmp_path), testbed=MadeUpFake())
    assert done.returncode == 0, done.stderr
    check_gone_on_with(tmp_path, done.stdout)
    assert launch_files(tmp_path)[: len(before)] == before


def check_gone_on_with(cwd: Path, printed: str) -> None:
    """The study is whole, though the shell that ended it sets what the first did not."""
    check_store(cwd / "out")
    begins = json.loads(printed.splitlines()[0])
    assert begins["n_measured"] > 0  # of the sessions that were stopped
    result = result_of(printed)
    assert {t["outcome"] for t in result["trials"]} <= {"measured", "pruned"}
    assert result["verdict"] == "faster"
    assert (
        result["winners"]["same_precision"]["output_drift"] is not None
    )  # checked, also before a kill
    check_seconds(result)
    assert result["environment"] == {}
    assert any("this shell has FAKE_THREADS=8" in text for text in result["warnings"])
    assert "as_you_run_it" not in {b["name"] for b in result["baselines"]}


def test_a_tool_that_is_killed_leaves_nothing_and_the_same_command_goes_on(tmp_path: Path) -> None:
    marker, log = new_marker(), tmp_path / "log"
    given = asked(tmp_path, "2s")
    process = start(*given, cwd=tmp_path, marker=marker, log=log)
    wait_for_line(process, log, '"phase_begins","name":"explore"')
    process.kill()
    process.wait()
    assert wait_until_gone(marker) == []
    before = launch_files(tmp_path)
    done = run(*given, cwd=tmp_path, is_virtual=True)
    assert done.returncode == 0, done.stderr
    assert launch_files(tmp_path)[: len(before)] == before
    assert json.loads(done.stdout.splitlines()[0])["n_measured"] > 0
    check_store(tmp_path / "out")


@pytest.mark.slow
def test_ten_ends_of_every_kind_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    """Kills at random moments, signals, and kills in late phases, which are resumed there."""
    moments, log = random.Random(11), tmp_path / "log"
    before: list[str] = []
    n_random = 5
    explored = [(signal.SIGINT, "explore"), (signal.SIGTERM, "explore")]
    late = [(signal.SIGKILL, phase) for phase in ("race", "minimise", "confirm")]
    for number, phase in [(signal.SIGKILL, "")] * n_random + explored + late:
        marker = new_marker()
        with log.open("wb"):
            process = start(*asked(tmp_path), cwd=tmp_path, marker=marker, log=log)
        if phase:
            wait_for_line(process, log, f'"phase_begins","name":"{phase}"')
            time.sleep(0.5 if phase == "confirm" else 0.02)
        else:
            time.sleep(moments.uniform(0.4, 1.8))
        if number == signal.SIGINT:  # two tools on one study do not meet
            process.send_signal(signal.SIGSTOP)
            second = run(*asked(tmp_path), cwd=tmp_path, is_virtual=True)
            process.send_signal(signal.SIGCONT)
            assert second.returncode == 2
            assert "another tune-framework" in second.stderr
        process.send_signal(number)
        code = process.wait(timeout=HANGS_S)
        assert wait_until_gone(marker) == []
        if number != signal.SIGKILL:
            text = log.read_text()
            assert code == 130, text
            assert "the same command resumes" in text
            assert "Traceback" not in text
        now = launch_files(tmp_path)
        assert now[: len(before)] == before
        before = now
    another = {"FAKE_THREADS": "8"}
    done = run(*asked(tmp_path), cwd=tmp_path, environment=another, is_virtual=True)
    assert done.returncode == 0, done.stderr
    assert "used before" in done.stderr
    assert launch_files(tmp_path)[: len(before)] == before
    check_gone_on_with(tmp_path, done.stdout)


def launch_files(cwd: Path) -> list[str]:
    return sorted(p.name for p in (cwd / "out/launches").glob("*.jsonl"))


def wait_for_line(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    deadline = time.monotonic() + HANGS_S
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_two_tools_on_one_study_do_not_meet(here: Here, tmp_path: Path) -> None:
    met: list[subprocess.CompletedProcess[str]] = []

    def meet() -> None:
        if not met:
            met.append(here(*asked(tmp_path), testbed=MadeUpFake()))

    assert here(*asked(tmp_path, "1s"), testbed=MadeUpFake(meet)).returncode == 0
    (second,) = met
    assert second.returncode == 2
    assert "another tune-framework" in second.stderr
