"""A running program from outside, according to the kernel: libraries, threads, CPUs, memory.

This shows less than a process can report: a mapped library may be unused, so that only placement is
`effective`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner import supervisor
from tuner.frameworks import FRAMEWORKS
from tuner.host.numa import policy_of
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.worker.evidence.process import cpu_choice, memory_choice

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
_OPENMP = ("libiomp5", "libomp", "libgomp")  # a preloaded one is looked up before the bundled one


class Sighting:
    """Observations of a program and its children, over time."""

    def __init__(self) -> None:
        self.libraries: set[str] = set()
        self.max_threads = 0
        self.cpus: set[int] = set()
        self.policy = ""
        self._is_framework_seen = False

    def look(self, pid: int) -> None:
        """Add the kernel's present view; a process that has ended shows nothing."""
        for each in (pid, *supervisor.descendants(pid)):
            try:
                mapped = _mapped(each)
                n_threads = len(os.listdir(f"/proc/{each}/task"))
                cpus = os.sched_getaffinity(each)
            except OSError:
                continue
            self.libraries |= mapped
            self.max_threads = max(self.max_threads, n_threads)
            # before a framework is there: OpenMP runtimes bind the main thread when they load
            if not self._is_framework_seen:
                self.cpus |= cpus
                self.policy = policy_of(each) or self.policy
        self._is_framework_seen = bool(self.frameworks())

    def frameworks(self) -> tuple[str, ...]:
        """Return the frameworks whose library is mapped."""
        names = {Path(path).name for path in self.libraries}
        return tuple(
            framework
            for framework, entry in FRAMEWORKS.items()
            if entry.library and any(name.startswith(entry.library) for name in names)
        )

    def read_back(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        """Return the observed values of the launch knobs."""
        names = {Path(path).name for path in self.libraries}
        allocator = next((a for a in ALLOCATORS if any(a in name for name in names)), "glibc")
        runtime = next((r for r in _OPENMP if any(n.startswith(r) for n in names)), "none")
        mapped = "which libraries are mapped while the program runs, not which are used"
        policy, _, nodes = self.policy.partition(":")
        node: Value = int(nodes) if policy == "bind" and nodes.isdigit() else "none"
        memory = memory_choice(policy, settings)
        placed = "/proc/PID/numa_maps and sched_getaffinity(2) of the program"
        return [
            ReadBack("launch.allocator", settings.get("launch.allocator"), allocator,
                     "accepted", mapped),
            ReadBack("launch.openmp", settings.get("launch.openmp"), runtime, "accepted", mapped),
            ReadBack("launch.numa_node", settings.get("launch.numa_node"), node,
                     "effective", placed),
            ReadBack("launch.memory_policy", settings.get("launch.memory_policy"), memory,
                     "effective", placed),
            ReadBack("launch.cpus", settings.get("launch.cpus"), cpu_choice(self.cpus),
                     "effective", placed),
        ]  # fmt: skip


def memory_of(pids: Iterable[int]) -> tuple[int, int]:
    """Return the peak bytes of all processes together, and those that each has alone.

    Shared memory counts once: the proportional set size, and by how much each was larger before.
    """
    peak = private = 0
    for pid in pids:
        try:
            shares = _sizes(f"/proc/{pid}/smaps_rollup")
            sizes = _sizes(f"/proc/{pid}/status")
        except OSError:
            continue
        peak += shares.get("Pss", 0) + sizes.get("VmHWM", 0) - sizes.get("VmRSS", 0)
        private += sizes.get("RssAnon", 0)
    return peak, private


def _sizes(path: str) -> dict[str, int]:
    """Return the bytes in a file of lines such as "Pss: 12 kB"."""
    lines = (line.split() for line in Path(path).read_text().splitlines())
    return {each[0].rstrip(":"): int(each[1]) * 1024 for each in lines if each[-1:] == ["kB"]}


def _mapped(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    parts = (line.split(maxsplit=5) for line in lines)
    return {p[5] for p in parts if len(p) > 5 and "x" in p[1] and p[5].startswith("/")}
