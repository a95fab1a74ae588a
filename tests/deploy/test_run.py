"""Programs that know nothing of this tool, under its recommendations."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.command import HANGS_S, MARKER, Here, command, new_marker, run, wait_until_gone
from tests.deploy.recommendations import recommendation, written
from tests.host.libraries import Describe
from tests.space.spaces import machine
from tests.wants import lack, needs
from tuner.deploy.run import CannotRun, become, observe, prepare
from tuner.host.identity import Host, probe
from tuner.record.configuration import Value
from tuner.record.files import write_recommendation
from tuner.record.recommendation import Placement, Recommendation
from tuner.space.launching import LaunchPlan

PYTHON = sys.executable


def under(
    folder: Path, settings: dict[str, Value], *program: str
) -> subprocess.CompletedProcess[str]:
    return run("run", str(written(folder, settings)), "--", *program, cwd=folder)


@pytest.mark.parametrize("code", [0, 7])
def test_the_programs_exit_code_is_returned(tmp_path: Path, code: int) -> None:
    done = under(tmp_path, {}, PYTHON, "-c", f"raise SystemExit({code})")
    assert done.returncode == code
    assert "nothing is set" in done.stderr


def test_a_signal_that_ends_the_program_ends_the_command(tmp_path: Path) -> None:
    done = under(tmp_path, {}, PYTHON, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL


def test_streams_are_the_programs_own(tmp_path: Path) -> None:
    path = written(tmp_path, {"env.OMP_NUM_THREADS": 1})
    done = subprocess.run(
        command("run", "--quiet", str(path), "cat", "-u"),
        input="through",
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("through", "")


def test_variables_and_preload_are_in_force_and_said_to_be(
    tmp_path: Path, system_libraries: Describe
) -> None:
    name = Path(system_libraries("tcmalloc")["tcmalloc"]).name
    code = (
        "import os; print(os.environ['OMP_NUM_THREADS'], "
        "'tcmalloc' in open('/proc/self/maps').read())"
    )
    settings: dict[str, Value] = {"env.OMP_NUM_THREADS": 1, "launch.allocator": "tcmalloc"}
    done = under(tmp_path, settings, PYTHON, "-c", code + "; import time; time.sleep(0.3)")
    assert done.stdout.split() == ["1", "True"]
    assert f"in force: {name} loaded\n" in done.stderr
    assert "set: OMP_NUM_THREADS=1\n" in done.stderr


def test_a_program_that_cannot_be_preloaded_is_noticed(
    tmp_path: Path, system_libraries: Describe
) -> None:
    system_libraries("tcmalloc")
    source, program = tmp_path / "still.c", tmp_path / "still"
    source.write_text("#include <unistd.h>\nint main(void) { return sleep(2); }\n")
    try:
        subprocess.run(["cc", "-static", "-o", program, source], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        lack("a static C library", detail=str(error))
    done = under(tmp_path, {"launch.allocator": "tcmalloc"}, str(program))
    assert done.returncode == 0
    assert "not in force: libtcmalloc" in done.stderr


def test_of_a_program_that_ended_too_soon_nothing_is_claimed(system_libraries: Describe) -> None:
    system_libraries("tcmalloc")
    host = probe()
    plan = prepare(recommendation({"launch.allocator": "tcmalloc"}, host), host, {}).plans[0]
    ended = subprocess.Popen(["true"])
    time.sleep(0.2)  # ended, and not yet waited for: a zombie
    (line,) = observe(plan, ended.pid)
    ended.wait()
    assert line.startswith("not known: libtcmalloc")


@needs("libnuma")
def test_a_memory_policy_reaches_the_program(tmp_path: Path) -> None:
    path = written(tmp_path, {"launch.numa_node": 0})
    code = "from tuner.host.numa import memory_policy; print(memory_policy())"
    done = run("run", str(path), "--", PYTHON, "-P", "-c", code, cwd=tmp_path)
    assert done.stdout.strip() == "bind:0"
    assert "memory bind:0" in done.stderr


@pytest.mark.usefixtures("real_cpus")
def test_the_given_cpus_are_never_left(tmp_path: Path) -> None:
    """A CPU list that was right where it was measured must not widen the mask given here."""
    cpu = min(os.sched_getaffinity(0))
    path = written(tmp_path, {"env.GOMP_CPU_AFFINITY": f"{cpu}-{cpu + 7}"})
    code = "import os; print(os.environ.get('GOMP_CPU_AFFINITY'), sorted(os.sched_getaffinity(0)))"
    done = subprocess.run(
        ["taskset", "-c", str(cpu), *command("run", str(path), "--", PYTHON, "-c", code)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"None [{cpu}]"
    assert "CPUs that are not allowed" in done.stderr


COUNTER = """
import signal, sys, time
received = []
signal.signal(signal.SIGINT, lambda *_: received.append("INT"))
signal.signal(signal.SIGTERM, lambda *_: received.append("TERM"))
print("ready", flush=True)
deadline = time.monotonic() + 20
while not received and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.3)  # a second one would arrive by now
print(*received, flush=True)
"""


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[list[str]]:
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    yield command("run", "-q", str(written(tmp_path, {})), "--", PYTHON, str(script))


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_signals_from_other_processes_are_passed_on_once(counter: list[str], name: str) -> None:
    process = subprocess.Popen(counter, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    output, _ = process.communicate(timeout=HANGS_S)
    assert (output, process.returncode) == (f"{name}\n", 0)


def test_what_the_terminal_sends_arrives_once(counter: list[str]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(counter[0], counter)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 1000)
        except OSError:  # the program has ended: no terminal any more
            break
        shown += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert shown.count(b"INT") == 1


def test_a_signal_to_the_whole_group_arrives_once(counter: list[str]) -> None:
    """As timeout(1) and job control send it."""
    process = subprocess.Popen(counter, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=HANGS_S)
    assert output == "TERM\n"


def test_descriptors_and_signal_dispositions_are_handed_on(tmp_path: Path) -> None:
    path = written(tmp_path, {})
    (tmp_path / "data").write_text("from descriptor 3")
    shell = f"{' '.join(command('run', '-q', str(path)))} -- sh -c 'cat <&3; yes | head -1' 3<data"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "from descriptor 3y\n"
    assert done.stderr == ""  # yes dies of SIGPIPE without a word


def test_nothing_is_left_of_the_observer(tmp_path: Path) -> None:
    marker = new_marker()
    done = run("run", str(written(tmp_path, {})), "true", cwd=tmp_path,
               environment={MARKER: marker})  # fmt: skip
    assert done.returncode == 0
    assert wait_until_gone(marker) == []


def test_killing_run_kills_the_program(tmp_path: Path) -> None:
    marker = new_marker()
    path = written(tmp_path, {})
    process = subprocess.Popen(
        command("run", "-q", str(path), "--", "sh", "-c", "echo ready; exec sleep 60"),
        env={**os.environ, MARKER: marker},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.communicate()
    assert wait_until_gone(marker) == []


def test_faults_of_ours_have_codes_of_their_own(here: Here, tmp_path: Path) -> None:
    """In this process, which a program that was started after all would end with 1."""
    path = written(tmp_path, {})
    plain = tmp_path / "plain.txt"
    plain.write_text("not a program")
    interpreted = tmp_path / "interpreted"
    interpreted.write_text("#!/no/such/python3 -u\nprint()\n")
    interpreted.chmod(0o755)
    missing = "interpreted: its first line names the interpreter /no/such/python3, which is not"
    strange = tmp_path / "strange.toml"
    strange.write_text(written(tmp_path, {"launch.numa_node": "abc"}).read_text())
    path = written(tmp_path, {})
    for arguments, code, message in (
        ((), 125, "name both"),
        ((str(path),), 125, "name both"),
        (("\udcff.toml", "--", "false"), 125, "is not UTF-8; rename it"),
        (("nothing.toml", "--", "false"), 125, "cannot read nothing.toml"),
        ((str(plain), "--", "false"), 125, "is not a recommendation"),
        ((str(path), "--", "no-such-program"), 127, "there is no program no-such-program"),
        ((str(path), "--", str(plain)), 126, "cannot execute"),
        ((str(path), "--", str(interpreted)), 126, missing),
        ((str(strange), "--", "false"), 125, "error: "),
    ):
        done = here("run", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def placed(r: Recommendation, *placements: Placement) -> Recommendation:
    return msgspec.structs.replace(r, placements=list(placements))


def planned(r: Recommendation, host: Host) -> list[tuple[tuple[int, ...] | None, str]]:
    return [(plan.cpus, plan.memory_policy) for plan in prepare(r, host, {}).plans]


def test_what_cannot_be_executed_leaves_signals_as_they_were() -> None:
    """Else the next write to a closed pipe would end whoever asked."""
    before = signal.getsignal(signal.SIGPIPE)
    with pytest.raises(CannotRun, match="there is no program"):
        become(LaunchPlan({}, None, "none"), ["no-such-program-anywhere"])
    assert signal.getsignal(signal.SIGPIPE) == before


def test_every_placement_is_heeded(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=2)
    plain = recommendation({"env.OMP_NUM_THREADS": 1}, host)
    assert planned(plain, host) == [(None, "none")]
    pinned = placed(plain, Placement("1,3", "bind:0"))
    assert planned(pinned, host) == [((1, 3), "bind:0")]
    elsewhere = msgspec.structs.replace(pinned, host=recommendation({}, probe()).host)
    assert planned(elsewhere, host) == [((1, 3), "bind:0")]
    two = recommendation({"launch.instances": 2}, host)
    assert planned(two, host) == [((0, 1), "none"), ((2, 3), "none")]
    swapped = placed(two, Placement("2-3", "interleave:0,1"), Placement("0"))
    assert planned(swapped, host) == [((2, 3), "interleave:0,1"), ((0,), "none")]


def test_a_placement_that_is_not_possible_here_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=4)
    outside = placed(recommendation({"env.OMP_NUM_THREADS": 1}, host), Placement("2-5"))
    with pytest.raises(CannotRun, match="names the CPUs 4-5, and 0-3 may be used here"):
        prepare(outside, host, {})


def test_settings_that_place_mean_other_cpus_on_another_host(tmp_path: Path) -> None:
    small, large = machine(tmp_path / "s", cores=4), machine(tmp_path / "l", cores=8)
    two = recommendation({"launch.instances": 2}, small)
    there = prepare(two, large, {})
    assert [plan.cpus for plan in there.plans] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert "placed anew by its launch settings" in "\n".join(there.notes)
    assert "placed anew" not in "\n".join(prepare(two, small, {}).notes)


def test_the_program_has_the_cpus_of_its_placement(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    path = tmp_path / "recommended.toml"
    plain = recommendation({"env.OMP_NUM_THREADS": 1}, probe())
    write_recommendation(path, placed(plain, Placement(str(cpu))))
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = run("run", str(path), "--", PYTHON, "-c", code, cwd=tmp_path)
    assert done.stdout.strip() == f"[{cpu}]"


def test_what_is_missing_or_different_here_is_said(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=4)
    settings: dict[str, Value] = {
        "env.OMP_NUM_THREADS": 4,
        "torch.compile.mode": "default",
        "workload.batch": 16,
    }
    elsewhere = prepare(
        recommendation(settings, probe()), host, {"KMP_BLOCKTIME": "1", "OMP_NUM_THREADS": "1"}
    )
    notes = "\n".join(elsewhere.notes)
    assert "confirmed on another host, its gain here is unknown: " in notes
    assert "cores: " in notes
    assert "the program itself must: torch.compile.mode=default: mode" in notes
    assert "confirmed with workload.batch=16" in notes
    assert "set here otherwise: OMP_NUM_THREADS=4 in place of 1" in notes
    assert "set in addition, and not measured: KMP_BLOCKTIME" in notes
    assert elsewhere.plans[0].environment == {"OMP_NUM_THREADS": "4"}
    with pytest.raises(CannotRun, match="mimalloc"):
        prepare(recommendation({"launch.allocator": "mimalloc"}, host), host, {})
