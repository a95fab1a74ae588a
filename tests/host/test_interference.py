import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import HANGS_S
from tests.host.machine import write
from tests.wants import lack
from tuner.host.interference import (
    MAX_FOREIGN,
    MAX_STEAL,
    Reading,
    Watch,
    disturbances,
    disturbed_share,
    throttle_counters,
    throttled_periods,
)
from tuner.host.limits import cgroup_folders
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, LaunchRequest, Purpose, Slice


def reading(**changes: float) -> Reading:
    base = dict(at=0.0, busy_s=0.0, steal_s=0.0, own_s=0.0, throttled=0, pressure_s=0.0,
                involuntary_switches=0)  # fmt: skip
    return Reading(**{**base, **changes})  # type: ignore[arg-type]


def test_own_work_is_not_interference() -> None:
    n = len(os.sched_getaffinity(0))
    found = Watch().between(reading(), reading(at=1.0, busy_s=1.0 * n, own_s=1.0 * n))
    assert found.dirty == ()
    assert found.foreign == 0.0


def test_a_thread_that_is_bound_later_still_watches_all_cpus() -> None:
    """OpenMP binds the initial thread under OMP_PROC_BIND; its mask is then one CPU."""
    allowed = os.sched_getaffinity(0)
    watch = Watch()
    n = len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        bound = watch.between(watch.read(), watch.read())
        found = watch.between(reading(), reading(at=1.0, busy_s=0.5 * n))
    finally:
        os.sched_setaffinity(0, allowed)
    assert bound.foreign >= 0
    assert found.foreign == 0.5


def test_foreign_work_steal_and_throttling_make_a_slice_dirty() -> None:
    n = len(os.sched_getaffinity(0))
    foreign = Watch().between(reading(), reading(at=1.0, busy_s=0.5 * n))
    assert foreign.foreign > MAX_FOREIGN
    assert "other processes" in foreign.dirty[0]
    steal = Watch().between(reading(), reading(at=1.0, steal_s=0.2 * n))
    assert steal.steal > MAX_STEAL
    assert "hypervisor" in steal.dirty[0]
    throttled = Watch().between(reading(), reading(at=1.0, throttled=2))
    assert "throttled 2" in throttled.dirty[0]


def test_a_rounded_tick_is_not_interference() -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    found = Watch().between(reading(), reading(at=0.3, busy_s=tick, steal_s=tick))
    assert found.dirty == ()


def test_a_busy_neighbour_is_seen() -> None:
    watch = Watch()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        time.sleep(0.2)
        before = watch.read()
        time.sleep(1.0)
        found = watch.between(before, watch.read())
        neighbour.kill()
    assert found.dirty
    assert found.foreign > 0.5 / len(os.sched_getaffinity(0))


def test_a_quota_around_the_own_group_throttles_too(tmp_path: Path) -> None:
    """The kernel counts a stopped period on the group that has the quota, not on those inside."""
    write(tmp_path, "proc/self/cgroup", "0::/pod/box")
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    write(tmp_path, "sys/fs/cgroup/cpu.stat", "usage_usec 9")
    write(tmp_path, "sys/fs/cgroup/pod/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 4")
    write(tmp_path, "sys/fs/cgroup/pod/box/cpu.stat", "nr_periods 9\nnr_throttled 3\nnr_bursts 7")
    counters = throttle_counters(tmp_path)
    assert throttled_periods(counters) == 7
    (tmp_path / "sys/fs/cgroup/pod/box/cpu.stat").unlink()
    assert throttled_periods(counters) == 4


def test_without_cgroups_nothing_is_throttled(tmp_path: Path) -> None:
    assert throttled_periods(throttle_counters(tmp_path)) == 0


def set_small_quota(group: Path, version: int) -> None:
    if version == 2:
        (group / "cpu.max").write_text("5000 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("5000")


@pytest.fixture
def small_quota() -> Iterator[Path]:
    """A real cgroup without a quota, inside one that grants half a core."""
    version, folders = cgroup_folders(Path("/"), "cpu")
    if not version:
        lack("a cgroup of one's own", detail="no controller of CPUs is mounted")
    outer = folders[0] / f"tune-framework-test-{os.getpid()}"
    made: list[Path] = []
    try:
        try:
            for group in (outer, outer / "inner"):
                group.mkdir()
                made.append(group)
            set_small_quota(outer, version)
        except OSError as error:
            lack("a cgroup of one's own", detail=str(error))
        yield outer / "inner"
    finally:
        for group in reversed(made):
            remove(group)


def remove(group: Path) -> None:
    """Remove a cgroup; it stays busy for a moment after its last process has ended."""
    for _ in range(50):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return
    group.rmdir()


@pytest.mark.usefixtures("real_cpus")
def test_a_real_quota_makes_a_slice_dirty(small_quota: Path) -> None:
    script = (
        "import json, sys, time\n"
        "sys.stdin.readline()  # until the parent has moved this process into the group\n"
        "from tuner.host.identity import probe\n"
        "from tuner.host.interference import Watch\n"
        "watch = Watch()\n"
        "before = watch.read()\n"
        "while time.monotonic() < before.at + 1.0: pass\n"
        "found = watch.between(before, watch.read())\n"
        "host = probe()\n"
        "print(json.dumps([found.throttled_periods, found.dirty,\n"
        "                  host.limits.quota_cores, host.usable_cores]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            (small_quota / "cgroup.procs").write_text(str(child.pid))
            out, _ = child.communicate("go\n", timeout=HANGS_S)
        finally:
            child.kill()
    periods, dirty, quota, usable = json.loads(out)
    assert periods >= 3  # of ten: a twentieth of a core is had beside whatever else runs
    assert any("quota throttled" in reason for reason in dirty)
    assert (quota, usable) == (0.05, 1)


def test_what_disturbed_most_slices_is_told_first_with_what_to_do() -> None:
    stolen = Interference(steal=0.3, dirty=("stolen",))
    both = Interference(foreign=0.8, steal=0.2, throttled_periods=2, dirty=("used", "stolen"))
    told = disturbances([stolen, both, both, stolen, Interference(foreign=0.04, pressure=0.9)])
    assert [each.what for each in told] == [
        "the hypervisor stole 25% of the CPU time in 4 of 5 slices",
        "other processes used 80% of the CPU time in 2 of 5 slices",
        "the cgroup's quota throttled it in 2 of 5 slices",
    ]
    assert [each.remedy.split()[0] for each in told] == ["take", "end", "raise"]


def test_pressure_is_told_only_where_nothing_else_is_known() -> None:
    assert disturbances([]) == []
    assert disturbances([Interference(pressure=0.1)]) == []
    (told,) = disturbances([Interference(pressure=0.6)])
    assert told.what.startswith("something waited for a CPU 60% of the time")


def test_the_share_of_disturbed_slices_counts_slices_not_launches() -> None:
    def launch(*reasons: tuple[str, ...]) -> LaunchRecord:
        slices = [Slice(n, 1, 1, 1.0, 0.0, Interference(dirty=d)) for n, d in enumerate(reasons)]
        request = LaunchRequest(1, Configuration(), 1, Purpose.CONFIRM)
        return LaunchRecord(request, slices=slices)

    assert disturbed_share([launch(("stolen", "throttled")), launch((), (), ())]) == 0.25
    assert disturbed_share([launch()]) == 0.0
