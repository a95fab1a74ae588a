"""The supervisor kills everything below it, however the tool or itself ends."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.command import HANGS_S, MARKER, marked_processes, new_marker, wait_until_gone
from tuner import supervisor

# A process that leaves a child in its group, one in another session, and a double-forked daemon.
FAMILY = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sleep", "1000"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
print("whole", flush=True)
{after}
"""


class Supervised:
    def __init__(self, tmp_path: Path, code: str, program: str = sys.executable) -> None:
        self.marker = new_marker()
        self.log = tmp_path / "log"
        self.log.touch()
        control_read, self.control = os.pipe()
        self.status, status_write = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(control_read), str(status_write)],
            pass_fds=(control_read, status_write),
            start_new_session=True,
        )
        os.close(control_read)
        os.close(status_write)
        order = {
            "argv": [program, "-c", code],
            "env": {**os.environ, MARKER: self.marker},
            "cwd": str(tmp_path),
            "log": str(self.log),
            "cpus": None,
            "pass_fds": [],
        }
        os.write(self.control, json.dumps(order).encode() + b"\n")

    def await_line(self, line: str) -> None:
        """Wait until the process has printed `line`.

        Counting the family would not do: the one between it and the daemon counts, then ends.
        """
        deadline = time.monotonic() + 20
        while line not in self.log.read_text().splitlines():
            assert time.monotonic() < deadline, marked_processes(self.marker)
            time.sleep(0.01)

    def statuses(self) -> list[dict[str, object]]:
        data = b""
        while piece := os.read(self.status, 4096):
            data += piece
        self.process.wait(timeout=HANGS_S)
        os.close(self.status)
        return [json.loads(line) for line in data.splitlines()]


def test_closing_the_pipe_kills_children_other_sessions_and_daemons(tmp_path: Path) -> None:
    family = Supervised(tmp_path, FAMILY.format(after="time.sleep(1000)"))
    family.await_line("whole")
    assert len(marked_processes(family.marker)) == 4
    os.close(family.control)
    assert family.statuses()[-1]["signal"] == signal.SIGKILL
    assert wait_until_gone(family.marker) == []


def test_what_an_ended_process_left_behind_is_killed(tmp_path: Path) -> None:
    family = Supervised(tmp_path, FAMILY.format(after="sys.exit(3)"))
    assert family.statuses()[-1]["exit"] == 3
    assert wait_until_gone(family.marker) == []
    os.close(family.control)


def test_a_stopped_process_is_killed_too(tmp_path: Path) -> None:
    family = Supervised(tmp_path, FAMILY.format(after="time.sleep(1000)"))
    family.await_line("whole")
    for pid in marked_processes(family.marker):
        os.kill(pid, signal.SIGSTOP)
    os.close(family.control)
    family.statuses()
    assert wait_until_gone(family.marker) == []


def test_what_an_openmp_runtime_leaves_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    """The names are those of LLVM's runtime; a process that it did not start keeps its own."""
    code = """
import os, time
for pid in (os.getpid(), os.getppid()):
    open(f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_{os.getuid()}", "w").close()
print(os.getpid(), flush=True)
print("up", flush=True)
time.sleep(1000)
"""
    supervised = Supervised(tmp_path, code)
    supervised.await_line("up")
    pid, uid = int(supervised.log.read_text().split()[0]), os.getuid()
    own = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_{uid}")
    others = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{supervised.process.pid}_{uid}")
    try:
        assert own.exists()
        os.close(supervised.control)
        supervised.statuses()
        assert not own.exists()
        assert others.exists()
    finally:
        own.unlink(missing_ok=True)
        others.unlink(missing_ok=True)


def test_killing_the_supervisor_itself_kills_the_process(tmp_path: Path) -> None:
    lone = Supervised(tmp_path, "import time; print('up', flush=True); time.sleep(1000)")
    lone.await_line("up")
    lone.process.kill()
    lone.process.wait()
    assert wait_until_gone(lone.marker) == []
    os.close(lone.control)
    os.close(lone.status)


def test_a_signal_is_told_as_such(tmp_path: Path) -> None:
    lone = Supervised(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert lone.statuses()[-1]["signal"] == signal.SIGSEGV
    os.close(lone.control)


def test_a_program_that_cannot_start_is_told_in_the_log(tmp_path: Path) -> None:
    broken = Supervised(tmp_path, "", program="/nowhere/program")
    assert broken.statuses()[-1]["exit"] == 127
    assert "cannot start /nowhere/program" in broken.log.read_text()
    os.close(broken.control)


@pytest.mark.parametrize("depth", [1, 3])
def test_descendants_are_found_at_any_depth(depth: int, tmp_path: Path) -> None:
    script = tmp_path / "nested.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "n = int(sys.argv[1])\n"
        "if n: subprocess.Popen([sys.executable, __file__, str(n - 1)])\n"
        "print('up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    root = subprocess.Popen([sys.executable, script, str(depth)], stdout=subprocess.PIPE, text=True)
    assert root.stdout is not None
    for _ in range(depth + 1):
        assert root.stdout.readline() == "up\n"
    below = supervisor.descendants(root.pid)
    assert len(below) == depth
    for pid in [*below, root.pid]:
        os.kill(pid, signal.SIGKILL)
    root.wait()
    root.stdout.close()


def test_kin_are_found_as_they_come_and_strangers_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = (
        "import subprocess, sys\n"
        "for line in sys.stdin:\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "    print(child.pid, flush=True)\n"
    )
    read: list[str] = []

    def looked_up(path: str, mode: str) -> IO[Any]:
        read.append(path.split("/")[2])
        return open(path, mode)

    monkeypatch.setattr(supervisor, "open", looked_up, raising=False)
    monkeypatch.setattr(supervisor.Kin, "_READ_AGAIN_S", math.inf)
    kin = supervisor.Kin()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        assert root.stdin is not None
        assert root.stdout is not None
        children = set[int]()
        try:
            assert kin.below(root.pid) == []
            assert "1" in read
            for _ in range(2):
                root.stdin.write("\n")
                root.stdin.flush()
                children.add(int(root.stdout.readline()))
                read.clear()
                assert set(kin.below(root.pid)) == children
                assert {str(root.pid), *map(str, children)} <= set(read)
                assert "1" not in read
            monkeypatch.setattr(supervisor.Kin, "_READ_AGAIN_S", -1.0)
            kin.below(root.pid)
            assert "1" in read
        finally:
            for pid in (*children, root.pid):
                os.kill(pid, signal.SIGKILL)
