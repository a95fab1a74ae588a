"""Run the tests of `make test` under one of the conditions that a host may be in.

    python -m tests.conditions CONDITION [ARGUMENTS OF PYTEST]

alone    as they are
busy     beside two processes that compute all the time
half     in a cgroup that grants half a core; takes root and a cgroup that may be written to
cpus1    on one CPU
cpus2    on a described machine of 2 CPUs (TUNE_FRAMEWORK_TEST_MACHINE)
cpus64   on a described machine of 64 CPUs
bare     with every library of the system hidden (TUNE_FRAMEWORK_TEST_LIBRARIES=none)
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.host.machine import build
from tuner.host import identity, libraries
from tuner.host.limits import cgroup_folders, read_memory

FAST = "not slow and not alone and not numa and not gpu"
_IN_GROUP = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


class Around(NamedTuple):
    """What is set around pytest."""

    prefix: tuple[str, ...] = ()
    """What starts it."""
    environment: tuple[tuple[str, str], ...] = ()


@contextlib.contextmanager
def alone() -> Iterator[Around]:
    """Set nothing."""
    yield Around()


@contextlib.contextmanager
def busy() -> Iterator[Around]:
    """Compute in two processes."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(spin) for _ in range(2)]
    try:
        yield Around()
    finally:
        for each in spinners:
            each.kill()
            each.wait()


@contextlib.contextmanager
def half() -> Iterator[Around]:
    """Grant half a core."""
    version, folders = cgroup_folders(Path("/"), "cpu")
    if not version:
        raise SystemExit("half: no cgroup that limits CPUs is mounted here")
    group = folders[0] / f"tune-framework-half-{os.getpid()}"
    try:
        group.mkdir()
        if version == 2:
            (group / "cpu.max").write_text("50000 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("50000")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise SystemExit(f"half: no cgroup with a quota can be made here: {error}") from error
    try:
        yield Around(prefix=("sh", "-c", _IN_GROUP, str(group)))
    finally:
        for _ in range(100):  # it stays busy for a moment after its last process has ended
            with contextlib.suppress(OSError):
                group.rmdir()
            if not group.exists():
                break
            time.sleep(0.1)


@contextlib.contextmanager
def one_cpu() -> Iterator[Around]:
    """Take the first CPU alone."""
    yield Around(prefix=("taskset", "-c", str(min(os.sched_getaffinity(0)))))


def described(n_cpus: int) -> Callable[[], contextlib.AbstractContextManager[Around]]:
    """Describe a machine of one socket, with the memory that is here."""

    @contextlib.contextmanager
    def around() -> Iterator[Around]:
        with tempfile.TemporaryDirectory(prefix="tune-framework-machine-") as folder:
            root = build(Path(folder), cores=n_cpus, memory_gib=read_memory() >> 30)
            yield Around(environment=((identity.STANDS_IN, str(root)),))

    return around


@contextlib.contextmanager
def bare() -> Iterator[Around]:
    """Hide the system's libraries."""
    yield Around(environment=((libraries.STANDS_IN, libraries.HIDDEN),))


CONDITIONS: dict[str, Callable[[], contextlib.AbstractContextManager[Around]]] = {
    "alone": alone,
    "busy": busy,
    "half": half,
    "cpus1": one_cpu,
    "cpus2": described(2),
    "cpus64": described(64),
    "bare": bare,
}


def main(name: str, arguments: list[str]) -> int:
    """Run pytest under a condition; print how long it took, and return its exit code."""
    pytest = [sys.executable, "-m", "pytest", "-m", FAST, "-n", "3", "--dist", "worksteal"]
    began, last = time.monotonic(), ""
    with CONDITIONS[name]() as around:
        command = [*around.prefix, *pytest, *arguments]
        environment = os.environ | dict(around.environment)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for line in run.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
    print(f"{name}: {last.strip('= ')}; {time.monotonic() - began:.0f} s; exit {run.returncode}")
    return run.returncode


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in CONDITIONS:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
