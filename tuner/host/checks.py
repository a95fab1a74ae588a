"""What makes measurements unreliable here, each with the command that fixes it; changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tuner.frameworks import FRAMEWORKS, OFFERED
from tuner.host.environment import tuning_variables, without_effect
from tuner.host.finding import Finding, Surroundings
from tuner.host.identity import Host
from tuner.host.interference import MAX_FOREIGN, MAX_STEAL, watch_idle
from tuner.host.libraries import how_to_install, installed_frameworks
from tuner.host.topology import format_cpu_list
from tuner.record.launch import Interference
from tuner.record.workload import CPU, CUDA

# A study of the smallest gallery models wants about this much.
_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 1 << 30


def _frequency(s: Surroundings) -> list[Finding]:
    seen = s.host.observations
    found = []
    if seen.governor not in (None, "performance"):
        found.append(
            Finding(
                "governor",
                "shaky",
                f"the CPU frequency governor is {seen.governor}, not performance",
                "cpupower frequency-set -g performance",
            )
        )
    if seen.turbo:
        found.append(
            Finding(
                "turbo",
                "shaky",
                "turbo is on: the speed depends on temperature and neighbours",
                "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or "
                "echo 0 > /sys/devices/system/cpu/cpufreq/boost",
            )
        )
    return found


def _limits(s: Surroundings) -> list[Finding]:
    host, found = s.host, []
    facts, quota = host.facts(), host.limits.quota_cores
    if facts["host.smt"]:
        found.append(
            Finding(
                "smt",
                "note",
                f"{facts['host.logical_cpus']} CPUs are {host.physical_cores} cores: "
                "SMT siblings share execution units",
                "nothing: thread counts are searched up to physical cores",
            )
        )
    if quota is not None and quota < len(host.cpus):
        found.append(
            Finding(
                "quota",
                "shaky",
                f"the cgroup grants {quota:g} cores of {len(host.cpus)} CPUs: more "
                "threads than that are throttled",
                f"start the container with --cpuset-cpus for {int(quota) or 1} "
                "CPU(s) instead of --cpus",
            )
        )
    if len(host.cpus) < len(host.topology.cpus):
        found.append(
            Finding(
                "affinity",
                "note",
                f"only CPUs {format_cpu_list(host.limits.allowed_cpus)} of "
                f"{len(host.topology.cpus)} are allowed here",
                "nothing, if that is where the model will run",
            )
        )
    return found


def _nodes(s: Surroundings) -> list[Finding]:
    host, found = s.host, []
    slow = {cpu.core for cpu in host.cpus if cpu.is_efficient}
    if 0 < len(slow) < host.physical_cores:
        fast = format_cpu_list(tuple(cpu.id for cpu in host.cpus if not cpu.is_efficient))
        found.append(
            Finding(
                "hybrid",
                "note",
                f"{len(slow)} of {host.physical_cores} cores are efficient cores: a call that is "
                "split evenly waits for them",
                f"taskset -c {fast} tune-framework ..., to measure without them",
            )
        )
    remote = sorted({cpu.node for cpu in host.cpus} - set(host.memory_nodes))
    if remote:
        found.append(
            Finding(
                "remote_memory",
                "shaky",
                f"CPUs of NUMA node {', '.join(map(str, remote))} are allowed, but no memory "
                "there: all that they read comes from another node",
                "start the container with CPUs and memory of one node "
                "(--cpuset-cpus, --cpuset-mems), or populate the node's memory",
            )
        )
    return found


def _memory(s: Surroundings) -> list[Finding]:
    seen, found = s.host.observations, []
    if seen.memory_available_bytes < _LITTLE_MEMORY:
        found.append(
            Finding(
                "memory",
                "shaky",
                f"only {seen.memory_available_bytes / 2**30:.1f} GiB of memory are "
                "free: configurations take turns instead of staying resident",
                "end other programs (ps aux --sort=-rss | head)",
            )
        )
    if seen.swap_used_bytes > 0:
        found.append(
            Finding(
                "swap",
                "shaky",
                f"{seen.swap_used_bytes / 2**20:.0f} MiB are swapped out: a page read "
                "back falls into a measurement",
                "swapoff -a && swapon -a",
            )
        )
    return found


def _activity(s: Surroundings) -> list[Finding]:
    found = []
    if s.idle.foreign > MAX_FOREIGN:
        found.append(
            Finding(
                "busy",
                "shaky",
                f"other programs use {min(1.0, s.idle.foreign):.0%} of the allowed CPUs",
                "end them (ps aux --sort=-pcpu | head), or wait",
            )
        )
    if s.idle.steal > MAX_STEAL:
        found.append(
            Finding(
                "steal",
                "shaky",
                f"the hypervisor takes {s.idle.steal:.0%} of the CPU time away",
                "use a machine with dedicated CPUs",
            )
        )
    if s.host.processor.virtualised:
        found.append(
            Finding(
                "virtual",
                "note",
                "this is a virtual machine: neighbours may slow it without a trace in "
                "its own counters",
                "nothing: comparisons are interleaved",
            )
        )
    return found


def _kernel(s: Surroundings) -> list[Finding]:
    found = []
    if not s.has_pressure:
        found.append(
            Finding(
                "no_pressure",
                "note",
                "the kernel does not report CPU pressure (/proc/pressure/cpu)",
                "boot with psi=1",
            )
        )
    if s.clock_source not in (None, "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource"):
        found.append(
            Finding(
                "clock",
                "shaky",
                f"the clock source is {s.clock_source}: reading the time is slow",
                "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            )
        )
    if s.host.observations.transparent_huge_pages == "never":
        found.append(
            Finding(
                "no_huge_pages",
                "note",
                "transparent huge pages are off: allocators cannot use them",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            )
        )
    return found


def _shell(s: Surroundings) -> list[Finding]:
    names = tuning_variables(s.environment)
    if not names:
        return []
    frameworks = s.frameworks or OFFERED  # with none installed yet, any may be
    device = CUDA if s.host.gpus else CPU
    effective = [
        n for n in names if not all(without_effect(n, each, device) for each in frameworks)
    ]
    text = f"{', '.join(names)} set in this shell: removed from every measured process"
    if effective:
        text += f"; {', '.join(effective)} measured as a baseline of its own, as_you_run_it"
    else:
        text += "; none can change how fast a CPU computes"
    return [Finding("environment", "note", text, f"unset {' '.join(names)}")]


def _folder(s: Surroundings) -> list[Finding]:
    if not s.is_writable:
        return [
            Finding(
                "unwritable",
                "missing",
                f"{s.folder} cannot be written: no report there",
                "name another folder with --out",
            )
        ]
    if s.disk_free_bytes < _LITTLE_DISK:
        return [
            Finding(
                "disk",
                "shaky",
                f"only {s.disk_free_bytes / 2**20:.0f} MiB are free in {s.folder}",
                "make room, or name another folder with --out",
            )
        ]
    return []


def _frameworks(s: Surroundings) -> list[Finding]:
    return [
        Finding(
            f"no_{name}",
            "missing",
            f"{name} is not installed: its models cannot be tuned",
            FRAMEWORKS[name].install,
        )
        for name in OFFERED
        if name not in s.frameworks
    ]


def _libraries(s: Surroundings) -> list[Finding]:
    wanted = {
        "tcmalloc": "the tcmalloc allocator cannot be tried",
        "jemalloc": "the jemalloc allocator cannot be tried",
        "mimalloc": "the mimalloc allocator cannot be tried",
        "libnuma": "processes cannot be bound to NUMA nodes",
    }
    return [
        _missing_library(s.host, name, f"no_{name}", f"{name} is not installed: {loss}")
        for name, loss in wanted.items()
        if name not in s.host.libraries
    ]


def _missing_library(host: Host, name: str, id: str, message: str) -> Finding:
    """Say how to install a library, or why the one that pip installed cannot be used."""
    if name not in host.unusable:
        return Finding(id, "missing", message, how_to_install(name))
    fault, _, remedy = host.unusable[name].rpartition(": ")
    return Finding(id, "missing", f"{name} cannot be preloaded: {fault}", remedy)


def _openmp(s: Surroundings) -> list[Finding]:
    is_there = {"libiomp5", "libomp"} & s.host.libraries.keys()  # either stands in for the other
    if is_there or "torch" not in s.frameworks:
        return []
    message = (
        "neither Intel's OpenMP runtime (libiomp5) nor LLVM's (libomp) is installed: none but "
        "PyTorch's own can be tried"
    )
    found = _missing_library(s.host, "libiomp5", "no_openmp", message)
    if "libiomp5" in s.host.unusable:
        return [found]
    remedy = f"on x86-64: {found.remedy}; or {how_to_install('libomp')}"
    return [msgspec.structs.replace(found, remedy=remedy)]


def _compiler(s: Surroundings) -> list[Finding]:
    if s.host.cxx:
        return []
    return [
        Finding(
            "no_cxx",
            "missing",
            "no C++ compiler: torch.compile cannot be tried",
            "apt-get install g++",
        )
    ]


_CHECKS: tuple[Callable[[Surroundings], list[Finding]], ...] = (
    _frameworks,
    _compiler,
    _libraries,
    _openmp,
    _frequency,
    _limits,
    _nodes,
    _memory,
    _activity,
    _kernel,
    _shell,
    _folder,
)


def look_around(
    host: Host,
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    seconds: float = 0.5,
    look: Callable[[float], Interference] = watch_idle,
) -> Surroundings:
    """Collect what the checks need. look: waits `seconds` and returns who else is busy."""
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    clock = root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Surroundings(
        host=host,
        frameworks=installed_frameworks(),
        environment=dict(environment),
        disk_free_bytes=shutil.disk_usage(existing).free,
        folder=str(folder),
        is_writable=os.access(existing, os.W_OK) and existing.is_dir(),
        idle=look(seconds),
        has_pressure=(root / "proc/pressure/cpu").exists(),
        clock_source=clock.read_text().strip() if clock.exists() else None,
    )


def examine(surroundings: Surroundings) -> list[Finding]:
    """Return every finding, in the order in which a user should read them."""
    return [finding for check in _CHECKS for finding in check(surroundings)]
