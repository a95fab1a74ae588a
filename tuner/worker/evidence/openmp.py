"""The OpenMP runtime of this process, and what it reports of its settings.

Frameworks built with GCC call GOMP_parallel; the library that defines it first is the runtime.
libgomp reads OMP_* and GOMP_*, LLVM's libomp and Intel's libiomp5 read KMP_* as well.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tuner.host.topology import parse_cpu_list, read_topology
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.worker.evidence.output import captured
from tuner.worker.evidence.process import definer

_SCHEDULES = {1: "STATIC", 2: "DYNAMIC", 3: "GUIDED", 4: "AUTO"}  # omp_sched_t, OpenMP 5.1
_BINDINGS = {0: "false", 1: "true", 2: "MASTER", 3: "CLOSE", 4: "SPREAD"}  # omp_proc_bind_t
_INFINITE_MS = 2**31 - 1
_WATCHED_S = 0.1
_ATTEMPTS = 3
_AWAKE_FROM, _RAN_FROM, _PASSIVE_BELOW = 0.8, 0.25, 0.0025
"""Shares of time: libgomp's threads spin for good, by default for some 10 ms, or not at all.

Awake is running or waiting for a CPU. On a crowded host a spinning thread does not run all the
time, and one stopped by a quota seems to wait. An active policy must therefore show more running
than the default too. A passive thread may have to wait for a CPU before it sleeps, so that only
running counts.
"""


def runtime_path() -> str:
    """Return the file of the OpenMP runtime in use; empty if there is none."""
    return definer("GOMP_parallel")


def runtime_name(path: str) -> str:
    """Return libgomp, libomp or libiomp5; wheels bundle copies with a hash in their name."""
    file = Path(path).name
    return next(
        (n for n in ("libiomp5", "libomp", "libgomp") if file.startswith(n)), file or "none"
    )


def of_openmp(
    settings: Mapping[str, Value], cpus: Iterable[int], work: Callable[[], Any]
) -> list[ReadBack]:
    """Read back the runtime and its settings.

    cpus: the affinity mask that the process began with. work: a parallel piece of work, after which
    waiting threads are watched.
    """
    path = runtime_path()
    name = runtime_name(path)
    how = f"GOMP_parallel is defined by {Path(path).name}" if path else "nothing defines it"
    found = [ReadBack("launch.openmp", settings.get("launch.openmp"), name, "effective", how)]
    if not path:
        return found
    runtime = ctypes.CDLL(path)
    dynamic = "TRUE" if runtime.omp_get_dynamic() else "FALSE"
    allowed = set(cpus)
    seen = _Seen(_bound_threads(allowed), allowed, work)
    found += [
        _as_requested(settings, "env.OMP_DYNAMIC", dynamic, "omp_get_dynamic()"),
        _schedule(settings, runtime),
        _as_requested(
            settings,
            "env.OMP_PROC_BIND",
            _BINDINGS.get(runtime.omp_get_proc_bind(), "unset"),
            f"omp_get_proc_bind(); threads bound to {_masks(seen.bound)}",
        ),
    ]
    for knob in settings:
        reader = _ON_REQUEST.get(knob)
        if reader is not None:
            observed, detail = reader(runtime, str(settings[knob]), seen)
            found.append(_as_requested(settings, knob, observed, detail))
        elif knob.startswith("env.KMP_") and knob not in ("env.KMP_AFFINITY", "env.KMP_BLOCKTIME"):
            found.append(_displayed(runtime, name, knob, settings[knob]))
    return found


class _Seen(NamedTuple):
    """The kernel's view of this process's threads."""

    bound: list[set[int]]
    """Affinity masks of the threads that may use fewer CPUs than the process began with."""
    allowed: set[int]
    work: Callable[[], Any]


def _as_requested(settings: Mapping[str, Value], knob: str, observed: Value, how: str) -> ReadBack:
    """Make a read-back; what differs in the case of letters only is the same."""
    requested = settings.get(knob)
    if requested is not None and str(requested).casefold() == str(observed).casefold():
        observed = requested
    return ReadBack(knob, requested, observed, "effective", how)


def _schedule(settings: Mapping[str, Value], runtime: ctypes.CDLL) -> ReadBack:
    kind, chunk = ctypes.c_int(), ctypes.c_int()
    runtime.omp_get_schedule(ctypes.byref(kind), ctypes.byref(chunk))
    observed = _SCHEDULES.get(kind.value & 0x7FFFFFFF, "unset")  # the top bit says monotonic
    requested = settings.get("env.OMP_SCHEDULE")
    if requested is not None and str(requested).casefold() == observed.casefold():
        observed = str(requested)
    how = "omp_get_schedule(); only loops with schedule(runtime) ask for it"
    return ReadBack("env.OMP_SCHEDULE", requested, observed, "accepted", how)


def _bound_threads(allowed: set[int]) -> list[set[int]]:
    """Return the affinity masks of threads that may use fewer CPUs than the process began with."""
    masks = []
    for task in os.listdir("/proc/self/task"):
        try:
            mask = os.sched_getaffinity(int(task))
        except OSError:  # ended meanwhile
            continue
        if mask < allowed:
            masks.append(mask)
    return masks


def _masks(bound: list[set[int]]) -> str:
    shown = " ".join(str(sorted(mask)) for mask in bound[:8])
    return (shown or "no CPU") + (" ..." if len(bound) > 8 else "")


_Answer = tuple[Value, str]
"""What is in force, and the evidence."""


def _places(runtime: ctypes.CDLL, requested: str, seen: _Seen) -> _Answer:
    """Compare the runtime's places with the meaning of the words cores, threads and sockets."""
    places = _place_cpus(runtime)
    text = f"places {' '.join(map(str, map(sorted, places))) or 'none'}"
    groups: dict[int, set[int]] = {}
    for cpu in read_topology().cpus:
        if cpu.id in seen.allowed:
            key = {"threads": cpu.id, "cores": cpu.core, "sockets": cpu.socket}.get(requested, -1)
            groups.setdefault(key, set()).add(cpu.id)
    if requested not in ("threads", "cores", "sockets"):  # a list of places: that there are some
        return (requested if places else "unset"), text
    return (requested if sorted(map(sorted, groups.values())) == sorted(map(sorted, places))
            else "unset"), text  # fmt: skip


def _place_cpus(runtime: ctypes.CDLL) -> list[set[int]]:
    places = []
    for place in range(runtime.omp_get_num_places()):
        cpus = (ctypes.c_int * runtime.omp_get_place_num_procs(place))()
        runtime.omp_get_place_proc_ids(place, cpus)
        places.append(set(cpus))
    return places


def _thread_limit(runtime: ctypes.CDLL, requested: str, seen: _Seen) -> _Answer:
    return int(runtime.omp_get_thread_limit()), "omp_get_thread_limit()"


def _gomp_affinity(runtime: ctypes.CDLL, requested: str, seen: _Seen) -> _Answer:
    """Compare the list of CPUs with the runtime's places, one CPU each and in this order."""
    places = _place_cpus(runtime)
    text = f"places {' '.join(map(str, map(sorted, places))) or 'none'}"
    listed = [
        {cpu} for part in requested.replace(" ", ",").split(",") for cpu in parse_cpu_list(part)
    ]
    return (requested if places == listed else "unset"), text


def _kmp_affinity(runtime: ctypes.CDLL, requested: str, seen: _Seen) -> _Answer:
    """Look for every word in the runtime's listing, and for threads that are bound."""
    if not hasattr(runtime, "kmp_get_blocktime"):
        return "unset", "libgomp does not read KMP_AFFINITY"
    listed = _listed(runtime, "KMP_AFFINITY")
    text = f"listed as {listed}; threads bound to {_masks(seen.bound)}"
    words = requested.lower().replace("granularity=fine", "granularity=thread")  # one and the same
    is_listed = set(words.split(",")) - {"verbose"} <= set(listed.split(","))
    is_bound = bool(seen.bound) or len(seen.allowed) == 1
    is_obeyed = is_bound or "none" in requested.split(",")
    return (requested if is_listed and is_obeyed else "unset"), text


def _blocktime(runtime: ctypes.CDLL, requested: str, seen: _Seen) -> _Answer:
    if not hasattr(runtime, "kmp_get_blocktime"):
        return "unset", "libgomp does not read KMP_BLOCKTIME"
    milliseconds = int(runtime.kmp_get_blocktime())
    return ("infinite" if milliseconds == _INFINITE_MS else milliseconds), "kmp_get_blocktime()"


def _wait_policy(runtime: ctypes.CDLL, requested: str, seen: _Seen) -> _Answer:
    """Watch what waiting threads do after work: ACTIVE ones keep a CPU busy, PASSIVE ones sleep.

    libomp and libiomp5 spin for KMP_BLOCKTIME (200 ms) by default too; they tell the policy.
    """
    if hasattr(runtime, "kmp_get_library"):
        library = {1: "serial", 2: "turnaround", 3: "throughput"}[runtime.kmp_get_library()]
        blocktime_ms = runtime.kmp_get_blocktime()
        text = f"kmp_get_library() is {library}, kmp_get_blocktime() {blocktime_ms}"
        if requested.casefold() == "active":
            return (requested if library == "turnaround" else "unset"), text
        return (requested if library == "throughput" and blocktime_ms == 0 else "unset"), text
    if len(os.listdir("/proc/self/task")) == 1:
        return "unset", "there is no second thread that could wait"
    watched = [_shares_of_waiting(seen.work) for _ in range(_ATTEMPTS)]
    known = [shares for shares in watched if shares is not None]
    if not known:
        return "unset", "the kernel does not report for how long threads run"
    busy, awake = (max(shares) for shares in zip(*known, strict=True))
    how = (f"a waiting thread ran for {busy:.1%} and was awake for {awake:.0%} "
           f"of the {_WATCHED_S * 1000:.0f} ms after work")  # fmt: skip
    if awake > _AWAKE_FROM and busy > _RAN_FROM:
        return "ACTIVE", how
    return ("PASSIVE" if busy < _PASSIVE_BELOW else "unset"), how


def _shares_of_waiting(work: Callable[[], Any]) -> tuple[float, float] | None:
    """Return the largest shares of the time after work that another thread ran and was awake.

    None if no thread was seen both before and after.
    """
    work()
    before = _thread_seconds()
    began = time.monotonic()
    time.sleep(_WATCHED_S)
    after = _thread_seconds()
    elapsed = time.monotonic() - began
    others = after.keys() & before.keys() - {os.getpid()}
    if not others:
        return None
    ran = {t: (after[t][0] - before[t][0]) / elapsed for t in others}
    awake = {t: ran[t] + (after[t][1] - before[t][1]) / elapsed for t in others}
    return max(ran.values()), max(awake.values())


def _thread_seconds() -> dict[int, tuple[float, float]]:
    """Return for how long each thread ran and waited for a CPU; seconds, by the kernel's account.

    https://docs.kernel.org/scheduler/sched-stats.html
    """
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            ran_ns, waited_ns = (task / "schedstat").read_text().split()[:2]
        except (OSError, ValueError):  # ended meanwhile, or a kernel without it
            continue
        seconds[int(task.name)] = int(ran_ns) / 1e9, int(waited_ns) / 1e9
    return seconds


def _displayed(runtime: ctypes.CDLL, name: str, knob: str, requested: Value) -> ReadBack:
    """Look a variable up in the runtime's own list of its settings."""
    if not hasattr(runtime, "kmp_get_blocktime"):
        return ReadBack(knob, requested, "unset", "effective", f"{name} does not read KMP_*")
    seen = _listed(runtime, knob.removeprefix("env."))
    if not seen:
        how = f"{name} does not list it among its settings"
        return ReadBack(knob, requested, "unset", "effective", how)
    observed = requested if seen.casefold() == str(requested).casefold() else seen
    return ReadBack(knob, requested, observed, "accepted", "omp_display_env()")


def _listed(runtime: ctypes.CDLL, variable: str) -> str:
    """Return a variable's value in the runtime's own list of its settings; empty if not there."""
    with captured(2) as errors, captured(1) as lines:
        runtime.omp_display_env(1)
    for line in (*lines, *errors):
        name, equals, value = line.partition("]")[2].strip().partition("=")
        if equals and name == variable:
            return value.strip("'")
    return ""


_ON_REQUEST: dict[str, Callable[[ctypes.CDLL, str, _Seen], _Answer]] = {
    "env.OMP_PLACES": _places,
    "env.OMP_THREAD_LIMIT": _thread_limit,
    "env.OMP_WAIT_POLICY": _wait_policy,
    "env.GOMP_CPU_AFFINITY": _gomp_affinity,
    "env.KMP_AFFINITY": _kmp_affinity,
    "env.KMP_BLOCKTIME": _blocktime,
}
