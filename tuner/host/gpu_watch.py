"""What else happens on the measured card while a slice runs, and the energy that it takes.

Read just before and after the timed calls, with nothing of the worker's own under way, by NVML's
counters: of energy, and of the time in which limits held the clocks down.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from tuner.host.gpus import read_gpus
from tuner.host.interference import Reading, Watch
from tuner.host.nvml import Nvml, nvml
from tuner.record.launch import Interference
from tuner.record.workload import CUDA

# nvml.h, nvmlPerfPolicyType_t: counters of the time in which a limit held the clocks down
_POWER, _THERMAL = 0, 1
MAX_FOREIGN_GPU = 5
"""Per cent of the card's multiprocessors that others may use in a clean slice."""


class GpuReading(Reading, frozen=True):
    """One look at the clocks, the card's too."""

    wall_us: int
    """Microseconds since the epoch: what NVML's samples of processes are stamped with."""
    energy_mj: int | None
    power_ns: int | None
    thermal_ns: int | None


class GpuWatch(Watch):
    """Reads the interference on the CPUs and on one card.

    The power limit is recorded and never judged: every fast program reaches it, so that it is due
    to the configuration itself. Heat is judged: it would affect the next slice, of another
    configuration.
    """

    def __init__(self, library: Nvml, card: int) -> None:
        super().__init__()
        self._library = library
        self._card = card
        self._tool = _parent(os.getppid())

    def read(self) -> GpuReading:
        """Take a reading."""
        base = super().read()
        violations = [
            (self._ask("nvmlDeviceGetViolationStatus", policy) or {}).get("violationTime")
            for policy in (_POWER, _THERMAL)
        ]
        return GpuReading(
            **msgspec.structs.asdict(base),
            wall_us=time.time_ns() // 1000,
            energy_mj=self._ask("nvmlDeviceGetTotalEnergyConsumption"),
            power_ns=violations[0],
            thermal_ns=violations[1],
        )

    def between(self, before: Reading, after: Reading) -> Interference:
        """Judge the time between two readings."""
        found = super().between(before, after)
        assert isinstance(before, GpuReading) and isinstance(after, GpuReading)
        elapsed = max(after.at - before.at, 1e-9)
        dirty = list(found.dirty)
        hot_s = _passed_s(before.thermal_ns, after.thermal_ns)
        if hot_s > 0:
            dirty.append(f"heat held the GPU's clocks down for {hot_s / elapsed:.0%} of the time")
        foreign = self._foreign(before.wall_us)
        if foreign is not None and foreign >= MAX_FOREIGN_GPU:
            dirty.append(f"other processes used {foreign} % of the GPU")
        return msgspec.structs.replace(
            found,
            dirty=tuple(dirty),
            gpu_foreign=None if foreign is None else foreign / 100,
            gpu_power_capped=min(1.0, _passed_s(before.power_ns, after.power_ns) / elapsed),
        )

    def energy_j(self, before: Reading, after: Reading) -> float | None:
        """Return the card's energy between two readings, for all processes."""
        assert isinstance(before, GpuReading) and isinstance(after, GpuReading)
        if before.energy_mj is None or after.energy_mj is None:
            return None
        return max(0, after.energy_mj - before.energy_mj) / 1000

    def _ask(self, question: str, *arguments: int) -> Any:
        return self._library.of_card(self._card, question, *arguments)

    def _foreign(self, since_us: int) -> int | None:
        """Return the per cent of the multiprocessors that other processes used since then.

        None if unknown: NVML names processes by the machine's numbers, and a container may have
        others.
        """
        running = {each["pid"] for each in self._ask("nvmlDeviceGetComputeRunningProcesses") or ()}
        if os.getpid() not in running:
            return None
        samples = self._ask("nvmlDeviceGetProcessUtilization", since_us) or ()
        used: dict[int, int] = {}
        for sample in samples:
            if sample["timeStamp"] >= since_us and not self._is_ours(sample["pid"]):
                used[sample["pid"]] = max(used.get(sample["pid"], 0), sample["smUtil"])
        return sum(used.values())

    def _is_ours(self, pid: int) -> bool:
        """Tell whether a process belongs to this run of the tool: its stopped workers do."""
        while pid and pid not in (os.getpid(), self._tool):
            pid = _parent(pid)
        return pid > 0


def watch_on(device: str) -> Watch:
    """Return an observer of the CPUs, and of the first visible card if it computes.

    Without NVML it observes the CPUs alone: slices on the card then count as undisturbed.
    """
    library = nvml() if device == CUDA else None
    cards = read_gpus(visible=os.environ.get("CUDA_VISIBLE_DEVICES")) if library else ()
    return GpuWatch(library, cards[0].index) if library and cards else Watch()


def _passed_s(before_ns: int | None, after_ns: int | None) -> float:
    return 0.0 if before_ns is None or after_ns is None else max(0, after_ns - before_ns) / 1e9


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 for one that has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])
