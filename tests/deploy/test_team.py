"""Several instances of a program that knows nothing of this tool."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.command import (
    HANGS_S,
    MARKER,
    command,
    marked_processes,
    new_marker,
    run,
    wait_until_gone,
)
from tests.deploy.recommendations import recommendation, written
from tests.output.exports.shipped import exported
from tests.space.spaces import machine
from tests.wants import needs
from tuner.deploy.run import CannotRun, prepare
from tuner.host.identity import probe
from tuner.host.topology import format_cpu_list, parse_cpu_list
from tuner.record.configuration import Configuration, Value
from tuner.space.launching import plan_launch

pytestmark = [needs("two cores"), pytest.mark.usefixtures("real_cpus")]


@pytest.fixture(autouse=True)
def lines_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unbuffered, Python writes a line in pieces, which those of another instance come between."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


TWO: dict[str, Value] = {"launch.instances": 2, "env.OMP_NUM_THREADS": 1}
TELL = (
    "import os, sys; e = os.environ; "
    "sys.stdout.write(' '.join([e['TUNE_FRAMEWORK_RANK'], e['TUNE_FRAMEWORK_INSTANCES'], "
    "e['TUNE_FRAMEWORK_CPUS'], e['OMP_NUM_THREADS'], "
    "','.join(map(str, sorted(os.sched_getaffinity(0))))]) + '\\n')"
)


def team(
    folder: Path, code: str, settings: dict[str, Value] = TWO, marker: str = ""
) -> subprocess.CompletedProcess[str]:
    path = written(folder, settings)
    program = (sys.executable, "-c", code)
    return run("run", str(path), "--", *program, cwd=folder, environment={MARKER: marker})


def planned() -> list[tuple[int, ...]]:
    return [plan.cpus or () for plan in plan_launch(Configuration.of(TWO), probe())]


def test_every_instance_has_its_rank_its_cpus_and_the_variables(tmp_path: Path) -> None:
    done = team(tmp_path, TELL)
    assert done.returncode == 0, done.stderr
    found = sorted(line.split() for line in done.stdout.splitlines())
    for rank, (line, cpus) in enumerate(zip(found, planned(), strict=True)):
        assert line == [str(rank), "2", format_cpu_list(cpus), "1", ",".join(map(str, cpus))]
        assert parse_cpu_list(line[2]) == cpus


def test_what_is_in_force_is_said_for_each_instance(tmp_path: Path) -> None:
    done = team(tmp_path, "import time; time.sleep(0.5)")
    first, second = map(format_cpu_list, planned())
    assert f"instance 0: in force: CPUs {first}" in done.stderr
    assert f"instance 1: in force: CPUs {second}" in done.stderr
    assert done.stderr.count("set: OMP_NUM_THREADS=1") == 1


def test_the_first_failure_ends_the_others_and_is_the_exit_code(tmp_path: Path) -> None:
    # run_cpu (torch 2.13) exits with 0 whatever its script returned
    marker = new_marker()
    code = (
        "import os, sys, time\n"
        "if os.environ['TUNE_FRAMEWORK_RANK'] == '1': sys.exit(7)\n"
        "time.sleep(600)\n"
    )
    done = team(tmp_path, code, marker=marker)
    assert done.returncode == 7
    assert "instance 1 of 2 ended with exit code 7: ending the others" in done.stderr
    assert wait_until_gone(marker) == []


def test_an_instance_that_dies_by_a_signal(tmp_path: Path) -> None:
    code = (
        "import os, time\nif os.environ['TUNE_FRAMEWORK_RANK'] == '0': os.kill(os.getpid(), 11)\n"
    )
    done = team(tmp_path, code + "time.sleep(600)")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "instance 0 of 2 ended with SIGSEGV" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_command_reaches_every_instance(
    tmp_path: Path, number: signal.Signals
) -> None:
    marker = new_marker()
    path = written(tmp_path, TWO)
    code = "import os, time; os.write(1, b'up\\n'); time.sleep(600)"
    with subprocess.Popen(
        command("run", "--quiet", str(path), "--", sys.executable, "-c", code),
        env={**os.environ, MARKER: marker},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        process.send_signal(number)
        code_ = process.wait(30)
    assert wait_until_gone(marker) == []
    assert code_ == (-number if number == signal.SIGKILL else 128 + number)


def end_now(marker: str) -> list[int]:
    """Kill the marked processes; return those that there were."""
    left = marked_processes(marker)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


KILLED = (
    "if os.environ['TUNE_FRAMEWORK_RANK'] == '1':\n"
    "    while not os.path.exists(os.path.join(FOLDER, 'rank0')): time.sleep(0.01)\n"
    "    os.kill(os.getpid(), 9)"
)
ORPHANS = (
    "import os, signal, subprocess, sys, time\n"
    "def end(*_): os._exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "sleeping = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
    "subprocess.Popen(sleeping, start_new_session=True, stdout=subprocess.DEVNULL)\n"
    "os.write(1, b'up\\n')\n"
    "open(os.path.join(FOLDER, 'rank' + os.environ['TUNE_FRAMEWORK_RANK']), 'w').close()\n"
    "HOW\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize(
    ("how", "is_told", "code"),
    [
        # killed, as the kernel does when memory runs out
        (KILLED, False, 128 + 9),
        ("", True, 0),
    ],
)
def test_what_ended_instances_had_started_is_ended(
    tmp_path: Path, how: str, is_told: bool, code: int
) -> None:
    marker = new_marker()
    program = [
        sys.executable,
        "-c",
        ORPHANS.replace("HOW", how).replace("FOLDER", repr(str(tmp_path))),
    ]
    with subprocess.Popen(
        command("run", "--quiet", str(written(tmp_path, TWO)), "--", *program),
        env={**os.environ, MARKER: marker}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        if is_told:
            process.terminate()
        returned = process.wait(60)
    assert end_now(marker) == []  # not a moment later: it had waited for them
    assert returned == code


def test_what_the_shell_had_started_before_is_let_be(tmp_path: Path) -> None:
    """An entry point of a container starts its logger, and then becomes this command."""
    path = written(tmp_path, TWO)
    fails = command("run", "--quiet", str(path), "--", "false")
    script = 'sleep 321 & echo $! >pid; exec "$@"'
    done = subprocess.run(["sh", "-c", script, "sh", *fails], cwd=tmp_path, check=False)
    assert done.returncode == 1
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # else: no such process


def test_what_a_team_leaves_when_it_ends_by_itself_is_let_be(tmp_path: Path) -> None:
    marker = new_marker()
    code = (
        "import subprocess\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL,"
        " stderr=subprocess.DEVNULL)"
    )
    done = team(tmp_path, code, marker=marker)
    left = end_now(marker)
    assert done.returncode == 0
    assert len(left) >= 2  # and the observer, for a moment


def test_only_the_first_instance_reads_the_standard_input(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    code = "import os, sys; print(os.environ['TUNE_FRAMEWORK_RANK'], repr(sys.stdin.read()))"
    done = subprocess.run(
        command("run", "--quiet", str(path), "--", sys.executable, "-c", code),
        input="words", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["0 'words'", "1 ''"]


@pytest.mark.parametrize(("program", "code"), [("/no/such/program", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_be_started_is_said_once(
    tmp_path: Path, program: str, code: int
) -> None:
    done = run("run", str(written(tmp_path, TWO)), "--", program, cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.count(program) == 1
    assert "Traceback" not in done.stderr


def test_more_instances_than_cores_are_refused(tmp_path: Path) -> None:
    # run_cpu in latency mode divides two cores by four, starts nothing, and exits with 0
    too_many: dict[str, Value] = {"launch.instances": 4096}
    done = team(tmp_path, "print('ran')", too_many)
    assert done.returncode == 125
    assert "4096 cores are wanted" in done.stderr
    assert "ran" not in done.stdout


def test_no_instance_at_all_is_refused(tmp_path: Path) -> None:
    # run_cpu with nothing to start says nothing and exits with 0
    done = team(tmp_path, "print('ran')", {"launch.instances": 0})
    assert done.returncode == 125
    assert "launch.instances cannot be 0" in done.stderr
    assert done.stdout == ""


def test_a_missing_allocator_is_refused(tmp_path: Path) -> None:
    # run_cpu warns, and starts the script with glibc's
    without = {name: path for name, path in probe().libraries.items() if name != "mimalloc"}
    host = msgspec.structs.replace(probe(), libraries=without)
    wanted = recommendation({**TWO, "launch.allocator": "mimalloc"}, host)
    with pytest.raises(CannotRun, match="mimalloc"):
        prepare(wanted, host, {})


def test_a_thread_count_left_in_the_shell_does_not_win(tmp_path: Path) -> None:
    # run_cpu keeps an OMP_NUM_THREADS that is already set
    code = "import os; print(os.environ['OMP_NUM_THREADS'])"
    program = (sys.executable, "-c", code)
    preset = {"OMP_NUM_THREADS": "7"}
    done = run("run", str(written(tmp_path, TWO)), "--", *program, cwd=tmp_path, environment=preset)
    assert done.stdout.split() == ["1", "1"]
    by_script = subprocess.run(
        [str(script(tmp_path)), *program],
        env={**os.environ, **preset}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert by_script.stdout.split() == ["1", "1"]


def script(folder: Path) -> Path:
    path = folder / "run.sh"
    path.write_text(exported("shell", recommendation(TWO, probe())))
    path.chmod(0o755)
    return path


def test_the_script_starts_the_same_team(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(script(tmp_path)), sys.executable, "-c", TELL],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = sorted(line.split() for line in done.stdout.splitlines())
    for rank, (line, cpus) in enumerate(zip(found, planned(), strict=True)):
        assert line == [str(rank), "2", format_cpu_list(cpus), "1", ",".join(map(str, cpus))]


def test_the_scripts_first_instance_reads_the_standard_input(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['TUNE_FRAMEWORK_RANK'], repr(sys.stdin.read()))"
    done = subprocess.run(
        [str(script(tmp_path)), sys.executable, "-c", code],
        input="words", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["0 'words'", "1 ''"]


def test_the_script_ends_with_the_code_of_what_failed(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit(3 if os.environ['TUNE_FRAMEWORK_RANK'] == '0' else 0)"
    done = subprocess.run([str(script(tmp_path)), sys.executable, "-c", code], check=False)
    assert done.returncode == 3


def test_the_script_passes_a_termination_on(tmp_path: Path) -> None:
    marker = new_marker()
    with subprocess.Popen(
        [str(script(tmp_path)), sys.executable, "-c",
         "import os, time; os.write(1, b'up\\n'); time.sleep(600)"],
        env={**os.environ, MARKER: marker}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        process.terminate()
        assert process.wait(30) != 0
    assert wait_until_gone(marker) == []


def test_the_files_say_what_variables_cannot_do(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=2, threads=2)
    settings: dict[str, Value] = {"launch.instances": 2, "launch.memory_policy": "bind"}
    text = exported("env", recommendation(settings, host))
    assert "2 instances, each started by" in text
    assert "#   numactl --physcpubind=0-1,4-5 --membind=0 --" in text
    assert "#   numactl --physcpubind=2-3,6-7 --membind=1 --" in text


GRACEFUL = (
    "import os, signal, sys, time\n"
    "def end(*_):\n"
    "    time.sleep(0.5 * int(os.environ['TUNE_FRAMEWORK_RANK']))\n"
    "    os.write(1, b'ended in order\\n')\n"  # print is not for signal handlers
    "    sys.exit(0 if os.environ['TUNE_FRAMEWORK_RANK'] == '1' else CODE)\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "os.write(1, b'up\\n')\n"  # print writes the end of its line by itself
    "time.sleep(600)\n"
)


@pytest.mark.parametrize("how", ["run", "run.sh"])
@pytest.mark.parametrize("code", [0, 143])
def test_who_was_told_to_end_may_take_its_time(tmp_path: Path, how: str, code: int) -> None:
    program = [sys.executable, "-c", GRACEFUL.replace("CODE", str(code))]
    started = [str(script(tmp_path)), *program]
    if how == "run":
        started = command("run", "--quiet", str(written(tmp_path, TWO)), "--", *program)
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
        process.terminate()
        assert process.wait(30) == code
        assert process.stdout.read() == "ended in order\n" * 2


def test_the_scripts_first_failure_ends_the_others(tmp_path: Path) -> None:
    code = "import os, time\nif os.environ['TUNE_FRAMEWORK_RANK'] == '1': os._exit(7)\n"
    program = [sys.executable, "-c", code + "time.sleep(600)"]
    done = subprocess.run([str(script(tmp_path)), *program], timeout=HANGS_S, check=False)
    assert done.returncode == 7


def test_children_that_are_ignored_are_waited_for_all_the_same(tmp_path: Path) -> None:
    inner = " ".join(command("run", "--quiet", str(written(tmp_path, TWO)), "--", "true"))
    done = subprocess.run(["sh", "-c", f"trap '' CHLD; exec {inner}"], timeout=HANGS_S, check=False)
    assert done.returncode == 0
