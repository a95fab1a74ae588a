"""Whole studies through everything that goes wrong: in real workers, or with the folder.

Each ends with the right outcome and its reason; the study goes on, nothing measured is lost, and no
process is left. Hangs, a dead pacer and a preload that does not load: tests/launchers. Signals,
kills and two tools: tests/study/test_interrupted.py.
"""

import gc
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command import (
    HANGS_S,
    MARKER,
    Here,
    command,
    new_marker,
    result_of,
    run,
    wait_until_gone,
)
from tests.made_up import MadeUpFake, tuned_here
from tests.study.test_interrupted import check_store
from tests.virtual import DRAWS, STARTS
from tests.wants import lack, needs
from tests.worker.workers import Launched
from tuner.errors import Interrupted
from tuner.host.identity import probe
from tuner.host.limits import cgroup_folders
from tuner.record.outcome import Outcome
from tuner.record.store import MIN_ROOM_BYTES, Store

IS_ROOT = os.geteuid() == 0
# what the first baseline sets, which the shortest study tries, and two more
_EXHAUSTING = ";".join(
    f"{setting}:exhaust"
    for setting in ("env.FAKE_THREADS=4", "fake.layout=blocked", "fake.streams=2")
)
FAULTS = {  # the first that applies is met
    "launch.allocator=jemalloc:crash": ("crashed", "killed by SIGSEGV"),
    "launch.allocator=tcmalloc:exit": ("crashed", "ended with exit code 3"),
    "fake.layout=packed:nan": ("wrong_output", "not finite"),
    "fake.layout=blocked:misshapen": ("wrong_output", "another number or shape"),
    "fake.streams=2:exception": ("crashed", "told to fail"),
    "fake.precision=bf16:memory": ("out_of_memory", "MemoryError"),  # its outputs may drift by more
    "fake.compile=fast:drifting": ("wrong_output", "drift by 0.01"),
    "fake.compile=frozen:wrong_output": ("wrong_output", "drift"),
    "env.FAKE_THREADS=1:garbage": ("measured", ""),
    "env.FAKE_THREADS=4:daemon": ("measured", ""),
    "env.FAKE_THREADS=8:ignored": ("not_applicable", "env.FAKE_THREADS=8 is not in force: 2"),
}


def arguments(model: str, budget: str, *more: str, out: Path | str = "out") -> tuple[str, ...]:
    return ("--model", model, "--hw", "fake", "--json", "--budget", budget, "--out", str(out),
            *more)  # fmt: skip


def limited(
    cwd: Path, wrapper: str, *given: str, marker: str, draws: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the command from a shell that puts a limit on itself first."""
    return subprocess.run(
        ["sh", "-c", f'{wrapper} && exec "$@"', "sh", *command(*given, is_virtual=True)],
        cwd=cwd,
        env={**os.environ, MARKER: marker, "COLUMNS": "200", **({DRAWS: "1"} if draws else {})},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )


def outcomes(result: dict[str, Any]) -> set[tuple[str, str]]:
    return {(t["outcome"], t["reason"]) for t in result["trials"]}


def jumping_clock(tmp_path: Path) -> dict[str, str]:
    """Return variables by which the clock jumps back and forth by a day, in the tool and in every
    worker, each of which adds a letter to the file `loaded`."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        "import itertools, time\n"
        "real, jumps = time.time, itertools.cycle((0, 86400, -86400))\n"
        "time.time = lambda: real() + next(jumps)\n"
        "time.time_ns = lambda: int(1e9 * time.time())\n"
        f"open({str(tmp_path / 'loaded')!r}, 'a').write('x')\n"
    )
    return {
        "PYTHONPATH": f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}",
        STARTS: "1",
    }


@pytest.mark.slow
def test_a_study_goes_on_past_every_fault_and_a_wall_clock_that_jumps(tmp_path: Path) -> None:
    marker = new_marker()
    done = run(
        *arguments(f"fake@noise=0.003,faults={';'.join(FAULTS)}", "18s", "--batch", "4"),
        cwd=tmp_path,
        environment={MARKER: marker, **jumping_clock(tmp_path)},
        is_virtual=True,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "loaded").read_text()) > 10
    assert wait_until_gone(marker) == []
    check_store(tmp_path / "out")
    result = result_of(done.stdout)
    n_seen = 0
    for rule, (outcome, reason) in FAULTS.items():
        knob, _, value = rule.rpartition(":")[0].partition("=")
        alone = [t for t in result["trials"] if set(t["configuration"]) == {knob}
                 and str(t["configuration"][knob]) == value]  # fmt: skip
        n_seen += bool(alone)
        for trial in alone:
            assert trial["outcome"] in (outcome, "pruned"), trial
            assert reason in trial["reason"] or trial["outcome"] == "pruned", trial
    assert n_seen > len(FAULTS) / 2
    seen = {t["outcome"] for t in result["trials"]}
    assert {"measured", "crashed", "wrong_output", "out_of_memory", "not_applicable"} <= seen
    for winner in result["winners"].values():
        assert set(winner["configuration"]) <= {"env.FAKE_THREADS"}
        assert winner["configuration"].get("env.FAKE_THREADS") != 8
    assert result["winners"]["reduced_precision"]["verdict"] == "faster"
    assert 0 < result["seconds"]["wall"] < 3600


# ------------------------------------------------------------------------ memory


@pytest.mark.slow
def test_an_address_space_limit_is_out_of_memory_and_the_study_goes_on(tmp_path: Path) -> None:
    marker = new_marker()
    model = f"fake@faults={_EXHAUSTING}"
    done = limited(
        tmp_path,
        "ulimit -v 2000000",
        *arguments(model, "2s", "--batch", "4"),
        marker=marker,
        draws=True,
    )
    assert done.returncode == 0, done.stderr
    assert wait_until_gone(marker) == []
    check_store(tmp_path / "out")
    failed = [t for t in result_of(done.stdout)["trials"] if t["outcome"] == "out_of_memory"]
    assert failed
    assert all("MemoryError" in t["reason"] for t in failed)
    page = (tmp_path / "out/report.html").read_text()  # V8 has no room here: all else is told
    assert "could not be drawn here" in page and "not in this test" not in page
    assert "The three winners" in page


@contextmanager
def cgroup(controller: str) -> Iterator[Path]:
    """Make a cgroup of our own below this process's; skip where that is not allowed."""
    version, folders = cgroup_folders(Path("/"), controller)
    if not IS_ROOT or not folders:
        lack("a cgroup of one's own", detail="it takes root and a mounted hierarchy")
    folder = folders[0] / f"tune-framework-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        lack("a cgroup of one's own", detail=str(error))
    try:
        if version == 2 and not (folder / f"{controller}.max").exists():
            lack("a cgroup of one's own", detail=f"{controller} is not delegated to it")
        yield folder
    finally:
        folder.rmdir()


@pytest.mark.slow
def test_a_cgroup_that_is_out_of_memory_kills_the_worker_and_not_the_study(tmp_path: Path) -> None:
    marker = new_marker()
    with cgroup("memory") as folder:
        file = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
        (folder / file).write_text(str(1500 << 20))
        model = f"fake@faults={_EXHAUSTING}"
        done = limited(
            tmp_path,
            f"echo $$ > {folder}/cgroup.procs",
            *arguments(model, "2s", "--batch", "4"),
            marker=marker,
        )
        left = wait_until_gone(marker)
    assert left == []
    assert done.returncode == 0, done.stderr
    check_store(tmp_path / "out")
    failed = [t for t in result_of(done.stdout)["trials"] if t["outcome"] == "out_of_memory"]
    assert failed
    assert any("killed by the kernel" in t["reason"] for t in failed), failed


# ------------------------------------------------------------------------ the quota


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=needs("torch")),
     pytest.param("tensorflow", marks=needs("tensorflow"))],
)  # fmt: skip
def test_a_quota_that_is_lowered_during_the_run_flags_the_slices(
    tmp_path: Path, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended as measured and flagged; on a real model, in a real cgroup."""
    monkeypatch.setenv(STARTS, "1")  # a fork would be in the cgroup of what forks it
    with cgroup("cpu") as folder:
        home = folder.parent / "cgroup.procs"
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            with Launched(tmp_path, framework, {}) as launched:
                launched.prepare()
                before = launched.measured().slice
                if (folder / "cpu.max").exists():
                    (folder / "cpu.max").write_text("5000 100000")
                else:
                    (folder / "cpu.cfs_quota_us").write_text("5000")
                launched.measured()  # the period under way ends
                after = launched.measured().slice
        finally:
            home.write_text(str(os.getpid()))
    if probe().limits.quota_cores is None:  # else what surrounds the cgroup may throttle it too
        assert before.interference.throttled_periods == 0
    assert after.interference.throttled_periods > 0
    assert any("quota throttled" in reason for reason in after.interference.dirty)


# ------------------------------------------------------------------------ the disk


@contextmanager
def small_disk(tmp_path: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a file system of so many bytes; skip where that is not allowed."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if not IS_ROOT or subprocess.run(mount, check=False).returncode:
        lack("a mount of one's own")
    try:
        yield folder
    finally:
        gc.collect()  # what a command of this process had open there
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def n_slices(folder: Path) -> int:
    return sum(p.read_text().count('"type":"slice"') for p in (folder / "launches").glob("*.jsonl"))


@pytest.mark.parametrize(
    "is_made_up", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["made up", "processes"]
)
def test_a_full_disk_stops_the_study_which_goes_on_with_more_room(
    here: Here, tmp_path: Path, is_made_up: bool
) -> None:
    """With little room, whatever is written fails; with some left, it stops before a launch."""

    def tuned(out: Path) -> subprocess.CompletedProcess[str]:
        given = arguments("fake@seed=1", "3s", out=out)
        if is_made_up:
            return here(*given, testbed=MadeUpFake())
        marker = new_marker()
        done = run(*given, cwd=tmp_path, environment={MARKER: marker}, is_virtual=True)
        assert wait_until_gone(marker) == []
        return done

    with small_disk(tmp_path, 300 << 10) as disk:
        out = disk / "out"
        before = 0
        some = [] if is_made_up else [MIN_ROOM_BYTES + (150 << 10)]  # processes alone ask for it
        for size in (None, *some):
            if size is not None:
                remount(disk, f"size={size}")
            done = tuned(out)
            assert done.returncode == 1
            assert "free disk space, then run the same command to resume" in done.stderr
            assert "Traceback" not in done.stderr
            before = n_slices(out)
            assert (before > 0) is (size is not None)
        remount(disk, "size=64m")
        again = tuned(out)
        assert again.returncode == 0, again.stderr
        check_store(out)
        assert n_slices(out) > before
        with Store(out) as store:
            ended = [r.ending.outcome for r in store.launches.values() if r.ending]
        assert set(ended) <= {Outcome.MEASURED, Outcome.PRUNED, Outcome.INTERRUPTED}


def test_a_read_only_folder_is_refused_before_anything_is_measured(
    here: Here, tmp_path: Path
) -> None:
    testbed = MadeUpFake()
    with small_disk(tmp_path, 64 << 20) as disk:
        remount(disk, "ro")
        done = here(*arguments("fake", "5s", out=disk / "out"), testbed=testbed)
    assert done.returncode == 2
    assert "name a writable folder with --out" in done.stderr
    assert testbed.clock.now_s() == 0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was stopped while it explored."""
    cwd = tmp_path_factory.mktemp("stopped")

    def stop_at_the_twelfth() -> None:
        if (cwd / "out/launches/0012.jsonl").exists():
            raise Interrupted("stopped by SIGINT")

    given = arguments("fake@seed=1", "30s", out=cwd / "out")
    assert tuned_here(given, MadeUpFake(stop_at_the_twelfth)) == 130
    return cwd / "out"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study in processes that was killed while it explored."""
    cwd = tmp_path_factory.mktemp("killed")
    tool = subprocess.Popen(
        command(*arguments("fake@seed=1", "30s"), is_virtual=True),
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (cwd / "out/launches/0012.jsonl").exists():
        assert tool.poll() is None
        time.sleep(0.01)
    tool.kill()
    tool.wait()
    return cwd / "out"


IN_THE_JOURNAL = {"study.jsonl": 0.9, "launches/0008.jsonl": 0.8}
BESIDE_IT = {"study.db": 0.5, "reference.npz": 0.5, "compiled": 0.0}
"""Which part of a file is left; 0 of a folder: it is gone."""
SAID = {
    "study.jsonl": "study.jsonl has lost",
    "launches/0008.jsonl": "launches/0008.jsonl was cut short",
    "study.db": "study.db was damaged",
    "reference.npz": "reference.npz was damaged and is made again",
    "compiled": "compiled/ was lost",
}


@pytest.mark.parametrize(
    "cuts",
    [IN_THE_JOURNAL, {file: BESIDE_IT[file] for file in ("study.db", "reference.npz")}],
    ids=["the journal and a launch", "Optuna's file, the reference"],
)
def test_files_that_were_damaged_are_mended_and_the_study_goes_on(
    here: Here, stopped: Path, tmp_path: Path, cuts: dict[str, float]
) -> None:
    check_mended(
        stopped,
        tmp_path / "out",
        cuts,
        lambda: here(*arguments("fake@seed=1", "6s"), testbed=MadeUpFake()),
    )


@pytest.mark.slow
def test_in_processes_too_damaged_files_are_mended(killed: Path, tmp_path: Path) -> None:
    """The compiler's cache as well, which only processes fill."""
    check_mended(
        killed,
        tmp_path / "out",
        {**IN_THE_JOURNAL, **BESIDE_IT},
        lambda: run(*arguments("fake@seed=1", "6s"), cwd=tmp_path, is_virtual=True),
    )


def check_mended(
    begun: Path,
    out: Path,
    cuts: dict[str, float],
    again: Callable[[], subprocess.CompletedProcess[str]],
) -> None:
    shutil.copytree(begun, out)
    for file, keep in cuts.items():
        if (out / file).is_dir():
            shutil.rmtree(out / file)
        else:
            left = (out / file).read_bytes()[: int(keep * (out / file).stat().st_size)]
            # within a line: one that is cut off at its end has lost nothing
            left = left.rstrip(b"\n")[:-5] if file.endswith(".jsonl") else left
            (out / file).write_bytes(left)
    (out / "reference.weights").write_bytes(b"kept until the study ends")
    before = n_slices(out)
    done = again()
    assert done.returncode == 0, done.stderr
    assert n_slices(out) > before
    assert not (out / "reference.weights").exists()
    result = result_of(done.stdout)
    for file in cuts:
        assert any(SAID[file] in warning for warning in result["warnings"]), file
    assert {t["outcome"] for t in result["trials"]} <= {"measured", "pruned"}
    for file in ("study.db", "reference.npz"):
        assert (out / f"broken-{file}").exists() is (file in cuts)
    check_store(out)


def test_launches_that_are_lost_are_not_gone_on_without(
    here: Here, stopped: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(stopped, out)
    shutil.rmtree(out / "launches")
    done = here(*arguments("fake@seed=1", "60s"), testbed=MadeUpFake())
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: out/launches/0001.jsonl is missing")
    assert "another --out" in line
