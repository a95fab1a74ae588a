"""What else uses the measured CPUs while a slice runs: two readings and their difference.

Read inside the measured process just before and after the timed calls (about 0.1 ms each), from
/proc and the cgroup; nothing here waits or spins.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from tuner.host.limits import cgroup_folders
from tuner.record.launch import Interference, LaunchRecord, Slice
from tuner.record.study_stats import Disturbance

# A slice is dirty above these (facts: benchmark hosts, section 1.2 of the measurement notes).
MAX_STEAL = 0.01
MAX_FOREIGN = 0.05
_MUCH_PRESSURE = 0.2
# /proc/stat counts ticks of 1/USER_HZ: one per CPU may be rounding alone.
_ROUNDING_TICKS = 1


Living = Callable[[], Iterable[int]]
"""Returns the numbers of living processes."""


class Reading(msgspec.Struct, frozen=True):
    """One look at the clocks."""

    at: float
    busy_s: float
    steal_s: float
    own_s: float
    throttled: int
    pressure_s: float
    involuntary_switches: int


def throttle_counters(root: Path = Path("/")) -> list[Path]:
    """List the cpu.stat of this process's cgroup and of every group around it.

    A quota stops all that runs below the group it stands on, and only that group counts the period
    (nr_throttled; kernel documentation, scheduler/sched-bwc). Groups without a quota count none;
    they are read too, since a quota may be set while a study runs.
    """
    _, folders = cgroup_folders(root, "cpu")
    return [folder / "cpu.stat" for folder in folders if (folder / "cpu.stat").exists()]


def throttled_periods(counters: list[Path]) -> int:
    """Sum the periods in which any of the groups was throttled since it was made."""
    periods = 0
    for counter in counters:
        try:
            text = counter.read_text()
        except OSError:  # the group was removed
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            periods += int(value) if name == "nr_throttled" else 0
    return periods


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and their ended children; 0 of those that are gone."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        # utime stime cutime cstime: proc(5) counts from the process's number on
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Watch:
    """Reads the interference on the CPUs that this process may use.

    with_children: the use of ended children is this process's own too. of: returns living processes
    whose use is its own as well.
    """

    def __init__(self, *, with_children: bool = False, of: Living = tuple) -> None:
        self._with_children = with_children
        self._of = of
        # the mask is the calling thread's: OpenMP may bind this thread to one CPU later
        self._cpus = os.sched_getaffinity(0)
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._counters = throttle_counters()
        self._pressure = Path("/proc/pressure/cpu")
        self.has_pressure = self._pressure.exists()

    def include(self, of: Living, *, with_children: bool = False) -> None:
        """Count the use of further processes as this one's own, from now on."""
        self._of, self._with_children = of, with_children

    def read(self) -> Reading:
        """Take a reading."""
        cpus = {f"cpu{cpu}" for cpu in self._cpus}
        busy = steal = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, _, rest = line.partition(" ")
            if name in cpus:
                # user nice system idle iowait irq softirq steal; guest time is inside user
                ticks = [int(n) for n in rest.split()[:8]]
                busy += sum(ticks[:3]) + sum(ticks[5:7])
                steal += ticks[7]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Reading(
            at=time.monotonic(),
            busy_s=busy * self._tick_s,
            steal_s=steal * self._tick_s,
            own_s=usage.ru_utime + usage.ru_stime + self._children_s() + self._others_s(),
            throttled=throttled_periods(self._counters),
            pressure_s=self._pressure_us() / 1e6,
            involuntary_switches=usage.ru_nivcsw,
        )

    def _children_s(self) -> float:
        if not self._with_children:
            return 0.0
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def _others_s(self) -> float:
        return cpu_seconds(self._of())

    def _pressure_us(self) -> int:
        try:
            return int(self._pressure.read_text().splitlines()[0].rpartition("total=")[2])
        except (OSError, ValueError, IndexError):  # a kernel without PSI
            return 0

    def energy_j(self, before: Reading, after: Reading) -> float | None:
        """Return the energy taken between two readings; None: nothing here tells it of CPUs."""
        return None

    def between(self, before: Reading, after: Reading) -> Interference:
        """Judge the time between two readings."""
        elapsed = max(after.at - before.at, 1e-9)
        n_cpus = len(self._cpus)
        offered = elapsed * n_cpus
        rounding = _ROUNDING_TICKS * n_cpus * self._tick_s
        steal_s = after.steal_s - before.steal_s
        foreign_s = max(0.0, (after.busy_s - before.busy_s) - (after.own_s - before.own_s))
        throttled = max(0, after.throttled - before.throttled)
        dirty = []
        if steal_s - rounding > MAX_STEAL * offered:
            dirty.append(f"the hypervisor stole {steal_s / offered:.0%} of the CPU time")
        if foreign_s - rounding > MAX_FOREIGN * offered:
            dirty.append(f"other processes used {foreign_s / offered:.0%} of the CPU time")
        if throttled > 0:
            dirty.append(f"the cgroup's quota throttled {throttled} period(s)")
        return Interference(
            steal=steal_s / offered,
            foreign=foreign_s / offered,
            throttled_periods=throttled,
            pressure=min(1.0, (after.pressure_s - before.pressure_s) / elapsed),
            involuntary_switches=after.involuntary_switches - before.involuntary_switches,
            dirty=tuple(dirty),
            own=min(1.0, max(0.0, after.own_s - before.own_s) / offered),
        )


def n_disturbed(slices: Iterable[Slice]) -> int:
    """Count the slices that something disturbed."""
    return sum(bool(s.interference.dirty) for s in slices)


def disturbed_share(launches: Iterable[LaunchRecord]) -> float:
    """Return how many of the slices of some launches were disturbed, of 1; 0 if there are none."""
    slices = [s for launch in launches for s in launch.slices]
    return n_disturbed(slices) / max(1, len(slices))


def disturbances(seen: Sequence[Interference]) -> list[Disturbance]:
    """Write what disturbed some slices, the most frequent first.

    Pressure is named only if nothing else is: the measured program may cause it itself.
    """
    dirty = [each for each in seen if each.dirty]
    foreign = [each.foreign for each in dirty if each.foreign > MAX_FOREIGN]
    stolen = [each.steal for each in dirty if each.steal > MAX_STEAL]
    throttled = [each for each in dirty if each.throttled_periods]
    found = [
        (len(foreign), f"other processes used {_share(foreign)} of the CPU time",
         "end other programs, or wait until they are done"),
        (len(stolen), f"the hypervisor stole {_share(stolen)} of the CPU time",
         "take a host whose CPUs are not shared, or another hour"),
        (len(throttled), "the cgroup's quota throttled it",
         "raise the quota, or tune where there is none"),
    ]  # fmt: skip
    found.sort(key=lambda each: -each[0])
    disturbances = [
        Disturbance(f"{what} in {n} of {len(seen)} slices", remedy)
        for n, what, remedy in found
        if n
    ]
    pressures = [each.pressure for each in seen]
    if not disturbances and pressures and statistics.median(pressures) > _MUCH_PRESSURE:
        what = (
            f"something waited for a CPU {_share(pressures)} of the time, perhaps the model itself"
        )
        disturbances.append(Disturbance(what, "see with top whether anything else runs"))
    return disturbances


def _share(shares: Sequence[float]) -> str:
    return f"{statistics.median(shares):.0%}" if shares else ""


def watch_idle(seconds: float) -> Interference:
    """Return what others do on the allowed CPUs while this process sleeps."""
    watch = Watch()
    before = watch.read()
    time.sleep(seconds)
    return watch.between(before, watch.read())
