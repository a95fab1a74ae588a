"""The synthetic neighbour is really busy, on the allowed CPUs, and really goes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command import MARKER, marked_processes, new_marker, wait_until_gone
from tuner.host.identity import probe
from tuner.host.limits import read_quota
from tuner.launchers.neighbour import n_neighbours, neighbour


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    name = new_marker()
    monkeypatch.setenv(MARKER, name)
    return name


def cpu_seconds(pids: list[int]) -> float:
    """Return what these processes have used of the CPUs, those of the neighbour alone."""
    ticks = 0
    for pid in pids:
        if b"tuner.worker.busy" in Path(f"/proc/{pid}/cmdline").read_bytes():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_it_works_in_so_many_processes_and_leaves_nothing(tmp_path: Path, marker: str) -> None:
    with neighbour(2, tmp_path / "log") as is_busy:
        assert is_busy
        pids = [
            pid
            for pid in marked_processes(marker)
            if b"tuner.worker.busy" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        before = cpu_seconds(pids)
        while cpu_seconds(pids) == before:
            time.sleep(0.05)
    assert len(pids) == 2
    assert wait_until_gone(marker) == []


@pytest.mark.usefixtures("real_cpus")
def test_it_takes_half_of_the_cpu_time_that_is_allowed() -> None:
    host = probe()
    assert n_neighbours(host) == max(1, int(min(len(host.cpus), read_quota() or 1e9) // 2))


def test_one_that_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.launchers.neighbour._START_S", 0.2)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(OSError), neighbour(1, tmp_path / "log"):
        pass
    monkeypatch.undo()
    monkeypatch.setattr("tuner.launchers.neighbour._START_S", 0.0)
    with neighbour(1, tmp_path / "log") as is_busy:
        assert not is_busy  # it had no time to begin


def test_it_goes_with_the_tool(tmp_path: Path, marker: str) -> None:
    script = (
        "import time, sys; from pathlib import Path; "
        "from tuner.launchers.neighbour import neighbour\n"
        "with neighbour(2, Path(sys.argv[1])) as busy:\n"
        "    assert busy; print('on', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-P", "-c", script, str(tmp_path / "log")]
    tool = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert tool.stdout is not None
    assert tool.stdout.readline() == b"on\n"
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    tool.stdout.close()
    assert wait_until_gone(marker) == []
