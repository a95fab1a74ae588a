"""Whether a host is calm enough to be measured now.

Permanent properties, such as its governor, are no reason: they hold for the whole kind, and studies
report them.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import threading
import time
from pathlib import Path

import msgspec

from tuner.host.checks import examine, look_around
from tuner.host.identity import probe
from tuner.host.interference import Watch

_WATCH_S = 3.0
"""How long others' use of the CPUs is watched."""
_PACE_S = 2.0
_WINDOWS = 15
"""No multiple of a quota's periods of a tenth of a second."""
_MOST_SWING = 0.2
"""SD of the speed in a window, as a share of it: benchmarks/fleet.py, pace."""
_MIB = 1 << 20
_MOST_MIB = 16
_CPUS_A_MIB = 8
_PASSING = ("disk", "unwritable")
"""What doctor finds (host/checks.py) that is otherwise at another time."""


class Pace(msgspec.Struct, frozen=True):
    """How fast a host did the same work again and again, on all CPUs at once."""

    rates: list[float]
    """In windows of equal length, one after another."""
    steal: float
    """Share of the CPU time that a hypervisor took away meanwhile."""

    @property
    def swing(self) -> float:
        """SD over the windows, as a share of the mean; infinite if nothing was done."""
        mean = statistics.fmean(self.rates)
        return statistics.stdev(self.rates) / mean if mean else math.inf


def unfit_now(place: Path, most_foreign: float) -> str:
    """Say why nothing should be measured here now; empty if nothing speaks against it.

    place: the folder of studies. most_foreign: the share of the CPUs that others may take, programs
    or a hypervisor's other guests. Takes five seconds. Raises OSError, and RuntimeError if no
    thread can be started.
    """
    host = probe()
    surroundings = look_around(host, place, seconds=_WATCH_S)
    if surroundings.idle.foreign > most_foreign:
        return f"other programs use {min(1.0, surroundings.idle.foreign):.0%} of its CPUs"
    for finding in examine(surroundings):
        if finding.id in _PASSING:
            return finding.message
    return fault_of(pace(host.usable_cpus), most_foreign)


def fault_of(seen: Pace, most_foreign: float) -> str:
    """Say why a pace is that of a host on which nothing should be measured."""
    if seen.steal > most_foreign:
        return f"the hypervisor takes {seen.steal:.0%} of its CPU time away"
    if math.isinf(seen.swing):
        return f"it did nothing at all within {_PACE_S:.0f} s"
    if seen.swing > _MOST_SWING:
        return f"its speed swings by {seen.swing:.0%} within {_PACE_S:.0f} s"
    return ""


def pace(n_cpus: int, seconds: float = _PACE_S) -> Pace:
    """Keep n CPUs busy with hashing, each by a thread, and return how fast it went."""
    # more at a time of many: they take turns at the interpreter's lock
    block = bytes(_MIB * min(_MOST_MIB, 1 + n_cpus // _CPUS_A_MIB))
    counts = [[0] * _WINDOWS for _ in range(n_cpus)]
    watch = Watch()
    before, began_s = watch.read(), time.monotonic()

    def work(own: list[int]) -> None:
        while (passed := (time.monotonic() - began_s) / seconds) < 1:
            hashlib.sha256(block).digest()  # which lets go of the interpreter's lock
            own[int(passed * _WINDOWS)] += 1

    threads = [threading.Thread(target=work, args=(own,)) for own in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steal = watch.between(before, watch.read()).steal
    windows = list(zip(*counts, strict=True))[1:]  # the threads begin one after another
    return Pace([sum(window) * _WINDOWS / seconds for window in windows], steal)
