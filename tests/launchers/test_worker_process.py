"""Real worker processes on the fake framework."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import MARKER, marked_processes, new_marker, wait_until_gone
from tuner import supervisor
from tuner.launchers.worker_process import WorkerEnded, WorkerProcess
from tuner.record.outcome import Outcome
from tuner.record.protocol import Cards, ListModels
from tuner.space.launching import LaunchPlan

NOTHING = LaunchPlan({}, None, "none")


@pytest.fixture
def marker() -> Iterator[str]:
    made = new_marker()
    yield made
    assert wait_until_gone(made) == []


def start(tmp_path: Path, marker: str, plan: LaunchPlan = NOTHING) -> WorkerProcess:
    return WorkerProcess(plan, tmp_path / "log", {MARKER: marker})


def states(pid: int) -> set[str]:
    found = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        text = Path(f"/proc/{pid}/task/{task}/stat").read_text()
        found.add(text.rpartition(")")[2].split()[0])
    return found


def test_it_answers_and_nothing_is_left(tmp_path: Path, marker: str) -> None:
    worker = start(tmp_path, marker)
    worker.send(ListModels(()))
    assert worker.receive(10) == Cards(())
    assert marked_processes(marker)
    worker.close()
    worker.close()  # closing twice is no fault


def test_settings_are_there_before_exec(tmp_path: Path, marker: str) -> None:
    cpu = min(os.sched_getaffinity(0))
    worker = start(tmp_path, marker, LaunchPlan({"OMP_NUM_THREADS": "7"}, (cpu,), "none"))
    environment = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    assert b"OMP_NUM_THREADS=7" in environment
    assert os.sched_getaffinity(worker.pid) == {cpu}
    worker.close()


def test_the_users_own_tuning_variables_do_not_reach_it(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMP_AFFINITY", "compact")
    worker = start(tmp_path, marker)
    assert b"KMP_AFFINITY" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
    worker.close()


def test_a_paused_worker_runs_on_no_cpu(tmp_path: Path, marker: str) -> None:
    worker = start(tmp_path, marker)
    worker.pause()
    assert states(worker.pid) == {"T"}
    worker.send(ListModels(()))
    with pytest.raises(WorkerEnded) as error:
        worker.receive(0.3)
    assert error.value.ending.outcome is Outcome.TIMED_OUT
    worker.resume()
    assert worker.receive(10) == Cards(())
    worker.pause()
    worker.close()  # a stopped worker is killed too


def test_a_killed_worker_is_a_crash_with_the_signal(tmp_path: Path, marker: str) -> None:
    worker = start(tmp_path, marker)
    os.kill(worker.pid, signal.SIGSEGV)
    with pytest.raises(WorkerEnded, match="SIGSEGV"):
        worker.receive(10)
    worker.close()


def test_a_preload_that_does_not_load_is_seen_in_the_log(tmp_path: Path, marker: str) -> None:
    plan = LaunchPlan({"LD_PRELOAD": "/nowhere/libnothing.so"}, None, "none")
    worker = start(tmp_path, marker, plan)
    assert "libnothing.so" in (tmp_path / "log").read_text()
    worker.close()


def test_a_users_tuner_py_is_not_run_instead(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuner.py").write_text("raise SystemExit('wrong file')")
    monkeypatch.chdir(tmp_path)
    worker = start(tmp_path, marker)
    worker.send(ListModels(()))
    assert worker.receive(10) == Cards(())
    worker.close()


def test_when_the_tool_is_killed_the_worker_dies_with_it(tmp_path: Path, marker: str) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tuner.launchers.worker_process import WorkerProcess\n"
        "from tuner.space.launching import LaunchPlan\n"
        "w = WorkerProcess(LaunchPlan({}, None, 'none'), Path(sys.argv[1]), {})\n"
        "w.pause(); print('up', flush=True); time.sleep(1000)\n"
    )
    import subprocess
    import sys

    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, str(tmp_path / "log")],
        env={**os.environ, MARKER: marker},
        stdout=subprocess.PIPE,
        text=True,
    ) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "up\n"
        assert len(supervisor.descendants(tool.pid)) == 2
        time.sleep(0.05)
        tool.kill()
    assert wait_until_gone(marker) == []
