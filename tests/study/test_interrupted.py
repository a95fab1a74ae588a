"""Studies that are killed, stopped or started twice go on and lose nothing."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

from tests.command import HANGS_S, new_marker, result_of, run, start, wait_until_gone
from tests.study.fake_studies import FAKE, check_seconds
from tuner.record.journal import RoundDone, TrialNoted
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.record.store import Store

FORKED = ("--exclude", "launch.allocator")
"""Without allocators, for which each worker would have to be started from nothing."""


def interrupted_command(
    cwd: Path, budget: str, without: tuple[str, ...] = FORKED
) -> tuple[str, ...]:
    return ("--model", "fake@seed=1", *FAKE, *without, "--budget", budget, "--out",
            str(cwd / "out"))  # fmt: skip


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


def test_ten_kills_at_random_moments_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    moments, budget = random.Random(11), "12s"
    log = tmp_path / "log"
    for _ in range(10):
        marker = new_marker()
        process = start(
            *interrupted_command(tmp_path, budget), cwd=tmp_path, marker=marker, log=log
        )
        time.sleep(moments.uniform(0.4, 1.8))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert wait_until_gone(marker) == []
    done = run(*interrupted_command(tmp_path, budget), cwd=tmp_path, is_virtual=True)
    assert done.returncode == 0, done.stderr
    check_store(tmp_path / "out")
    result = result_of(done.stdout)
    assert {t["outcome"] for t in result["trials"]} <= {"measured", "pruned"}
    assert result["verdict"] == "faster"
    assert result["winners"]["same"]["output_drift"] is not None  # checked, be it before a kill
    check_seconds(result)


def test_kills_in_late_phases_are_resumed_there(tmp_path: Path) -> None:
    marker, log, budget = new_marker(), tmp_path / "log", "7s"
    before: list[str] = []
    for phase in ("race", "minimise", "confirm"):
        with log.open("wb"):
            process = start(
                *interrupted_command(tmp_path, budget), cwd=tmp_path, marker=marker, log=log
            )
        wait_for_line(process, log, f'"phase_begins","name":"{phase}"')
        time.sleep(0.5 if phase == "confirm" else 0.02)
        process.kill()
        process.wait()
        assert wait_until_gone(marker) == []
        now = launch_files(tmp_path)
        assert now[: len(before)] == before
        before = now
    done = run(*interrupted_command(tmp_path, budget), cwd=tmp_path, is_virtual=True)
    assert done.returncode == 0, done.stderr
    assert "used before" in done.stderr
    assert launch_files(tmp_path)[: len(before)] == before
    check_store(tmp_path / "out")
    with Store(tmp_path / "out") as store:
        baselines = [
            r.request.session
            for r in store.launches.values()
            if r.request.purpose is Purpose.BASELINE
        ]
    assert set(baselines) == {1}


def launch_files(cwd: Path) -> list[str]:
    return sorted(p.name for p in (cwd / "out/launches").glob("*.jsonl"))


def wait_for_line(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    deadline = time.monotonic() + HANGS_S
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_signal_ends_with_130_and_says_how_to_go_on(tmp_path: Path) -> None:
    marker, log = new_marker(), tmp_path / "log"
    with_allocators = interrupted_command(tmp_path, "7s", without=())
    for number in (signal.SIGINT, signal.SIGTERM):
        with log.open("wb"):
            process = start(*with_allocators, cwd=tmp_path, marker=marker, log=log)
        wait_for_line(process, log, '"phase_begins","name":"explore"')
        time.sleep(0.3)
        process.send_signal(number)
        assert process.wait(timeout=HANGS_S) == 130
        assert wait_until_gone(marker) == []
        text = log.read_text()
        assert "the same command goes on" in text
        assert "Traceback" not in text
    another = {"FAKE_THREADS": "8"}  # what was begun without it goes on without it
    done = run(*with_allocators, cwd=tmp_path, environment=another, is_virtual=True)
    assert done.returncode == 0
    begins = json.loads(done.stdout.splitlines()[0])
    assert begins["n_measured"] > 0  # of the sessions that were stopped
    result = result_of(done.stdout)
    assert result["environment"] == {}
    assert any("this shell has FAKE_THREADS=8" in text for text in result["warnings"])
    assert "as_you_run_it" not in {b["name"] for b in result["baselines"]}
    check_store(tmp_path / "out")


def test_two_tools_on_one_study_do_not_meet(tmp_path: Path) -> None:
    marker, log, budget = new_marker(), tmp_path / "log", "7s"
    first = start(*interrupted_command(tmp_path, budget), cwd=tmp_path, marker=marker, log=log)
    wait_for_line(first, log, '"phase_begins","name":"baselines"')
    second = run(*interrupted_command(tmp_path, budget), cwd=tmp_path, is_virtual=True)
    first.kill()
    first.wait()
    assert second.returncode == 2
    assert "another tune-framework" in second.stderr
    assert wait_until_gone(marker) == []
