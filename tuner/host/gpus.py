"""The NVIDIA cards of a host: what changes results apart from what merely varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.host.nvml import Nvml, nvml

# NVML's numbers for its clocks and sensors (nvml.h: nvmlClockType_t, nvmlTemperatureSensors_t)
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_OF_THE_GPU = 0
# nvml.h: nvmlClocksEventReason*; what the driver says of why clocks are not the highest
_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit (driver)",
    0x40: "thermal limit (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class Gpu(msgspec.Struct, frozen=True):
    """What of a card changes results; its identity is all but the first two."""

    index: int
    """NVML's number of it."""
    uuid: str
    name: str
    memory_bytes: int
    compute_capability: str
    """Such as 9.0."""
    power_limit_w: float | None
    max_sm_mhz: int | None
    max_memory_mhz: int | None
    driver: str
    pcie: str
    """Generation and width of the link at its best, such as 5 x16; empty if not known."""
    is_partitioned: bool
    """Whether multi-instance mode (MIG) is on."""
    is_ecc: bool | None
    numa_node: int | None
    """The NUMA node that it is attached to; None if the machine does not report it."""

    def identity(self) -> dict[str, Any]:
        """Return the properties that identify it for measurements: an equal card may replace it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        del found["index"], found["uuid"]
        return found


class GpuObservation(msgspec.Struct, frozen=True):
    """What of a card may differ from hour to hour."""

    memory_used_bytes: int | None
    sm_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    held_back_by: tuple[str, ...]
    """Why its clocks are not the highest now, in words."""
    n_processes: int | None
    """That compute on it, or hold memory to do so."""


def read_gpus(root: Path = Path("/"), visible: str | None = None) -> tuple[Gpu, ...]:
    """Read the cards that a process may see, in the order of the PCI bus.

    visible: CUDA_VISIBLE_DEVICES, if it is set: numbers or UUIDs (CUDA C++ Programming Guide, "CUDA
    Environment Variables"); a list ends at the first invalid one. Numbers follow the order of
    CUDA_DEVICE_ORDER=PCI_BUS_ID. CUDA's own default puts the fastest of different cards first.
    """
    library = nvml(root)
    if library is None:
        return ()
    found = [_read(library, card, root) for card in range(library.n_cards())]
    return tuple(_visible(found, visible))


def observe_gpus(gpus: Sequence[Gpu], root: Path = Path("/")) -> tuple[GpuObservation, ...]:
    """Read what varies of some cards."""
    library = nvml(root)
    return tuple(_observe(library, gpu.index) for gpu in gpus) if library is not None else ()


def held_back(mask: int | None) -> tuple[str, ...]:
    """Name the reasons in NVML's mask of why clocks are not the highest."""
    return tuple(name for bit, name in _REASONS.items() if mask and mask & bit)


def _visible(found: Sequence[Gpu], listed: str | None) -> list[Gpu]:
    if listed is None:
        return list(found)
    chosen: list[Gpu] = []
    for part in map(str.strip, listed.split(",")):
        if part.isdecimal():
            named = [gpu for gpu in found if gpu.index == int(part)]
        else:
            named = [gpu for gpu in found if part and gpu.uuid.startswith(part)]
        if len(named) != 1:
            break
        chosen += named
    return chosen


def _read(library: Nvml, card: int, root: Path) -> Gpu:
    def ask(question: str, *arguments: int) -> Any:
        return library.of_card(card, question, *arguments)

    capability = ask("nvmlDeviceGetCudaComputeCapability") or (0, 0)
    generation = ask("nvmlDeviceGetMaxPcieLinkGeneration")
    width = ask("nvmlDeviceGetMaxPcieLinkWidth")
    limit_mw, mig = ask("nvmlDeviceGetEnforcedPowerLimit"), ask("nvmlDeviceGetMigMode")
    ecc = ask("nvmlDeviceGetEccMode")
    return Gpu(
        index=card,
        uuid=str(ask("nvmlDeviceGetUUID")),
        name=str(ask("nvmlDeviceGetName")),
        memory_bytes=int((ask("nvmlDeviceGetMemoryInfo") or {}).get("total", 0)),
        compute_capability=".".join(map(str, capability)),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        max_sm_mhz=ask("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
        max_memory_mhz=ask("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),
        driver=str(library.of_driver("nvmlSystemGetDriverVersion")),
        pcie=f"{generation} x{width}" if generation and width else "",
        is_partitioned=bool(mig and mig[0]),
        is_ecc=None if ecc is None else bool(ecc[0]),
        numa_node=_numa_node(ask("nvmlDeviceGetPciInfo"), root),
    )


def _numa_node(pci: Mapping[str, Any] | None, root: Path) -> int | None:
    """Return the node according to the kernel; -1 there means that it is unknown."""
    if not pci:
        return None
    place = str(pci.get("busIdLegacy", "")).lower()
    try:
        node = int((root / "sys/bus/pci/devices" / place / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _observe(library: Nvml, card: int) -> GpuObservation:
    def ask(question: str, *arguments: int) -> Any:
        return library.of_card(card, question, *arguments)

    power_mw = ask("nvmlDeviceGetPowerUsage")
    processes = ask("nvmlDeviceGetComputeRunningProcesses")
    return GpuObservation(
        memory_used_bytes=(ask("nvmlDeviceGetMemoryInfo") or {}).get("used"),
        sm_mhz=ask("nvmlDeviceGetClockInfo", _SM_CLOCK),
        temperature_c=ask("nvmlDeviceGetTemperature", _OF_THE_GPU),
        power_w=None if power_mw is None else power_mw / 1000,
        held_back_by=held_back(ask("nvmlDeviceGetCurrentClocksEventReasons")),
        n_processes=None if processes is None else len(processes),
    )
