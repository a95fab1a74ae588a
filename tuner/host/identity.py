"""The host as one value: what changes results (identity) apart from what merely varies."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tuner.errors import UsageError
from tuner.host.gpus import Gpu, GpuObservation, observe_gpus, read_gpus
from tuner.host.libraries import (
    find_cxx,
    find_engines,
    find_libraries,
    find_packaged,
    find_quantizers,
    read_versions,
    searched_folders,
)
from tuner.host.limits import Limits, read_limits
from tuner.host.topology import Cpu, Topology, format_cpu_list, read_topology

STANDS_IN = "TUNE_FRAMEWORK_TEST_MACHINE"
"""A variable for tests: the root of a described machine, whose CPUs, nodes and limits replace this
host's."""
_DIGITS_OF_KIND = 8


class Observations(msgspec.Struct, frozen=True):
    """Properties that may differ from hour to hour on the same host."""

    memory_available_bytes: int
    swap_used_bytes: int
    load_1min: float
    frequency_mhz: float | None
    governor: str | None
    turbo: bool | None
    transparent_huge_pages: str | None
    gpus: tuple[GpuObservation, ...] = ()


HOST_FACTS = (
    "host.arch",
    "host.vendor",
    "host.isa",
    "host.logical_cpus",
    "host.cpu_list",
    "host.core_list",
    "host.node_core_list",
    "host.node_cores",
    "host.physical_cores",
    "host.performance_cores",
    "host.usable_cores",
    "host.sockets",
    "host.numa_nodes",
    "host.nodes",
    "host.memory_nodes",
    "host.cores_per_socket",
    "host.cores_per_node",
    "host.cores_per_llc",
    "host.smt",
    "host.llc_groups",
    "host.memory_gib",
    "host.libraries",
    "host.engines",
    "host.quantizers",
    "host.cxx",
    "host.gpus",
    "host.gpu_memory_gib",
    "host.compute_capability",
    "host.transparent_huge_pages",
)
"""Every name that `Host.facts` has."""


class Host(msgspec.Struct, frozen=True):
    """The measured machine as this process may use it."""

    processor: Processor
    topology: Topology
    limits: Limits
    libraries: dict[str, str]
    cxx: str | None
    gpus: tuple[Gpu, ...]
    """The cards that this process may see; the first is the one that is measured."""
    versions: dict[str, str]
    observations: Observations
    packages: dict[str, str] = {}
    """The package, NAME==VERSION, of each library that pip installed."""
    unusable: dict[str, str] = {}
    """Libraries that pip installed and that cannot be preloaded, with the reason and the remedy."""
    engines: tuple[str, ...] = ()
    """Engines that are installed beside the frameworks (tuner/engines.py)."""
    quantizers: tuple[str, ...] = ()
    """Those of them whose models can be quantised."""

    @property
    def cpus(self) -> tuple[Cpu, ...]:
        """The online CPUs in this process's affinity mask."""
        return self.topology.of(self.limits.allowed_cpus)

    @property
    def physical_cores(self) -> int:
        """Number of distinct physical cores among the allowed CPUs."""
        return len({cpu.core for cpu in self.cpus})

    @property
    def performance_cores(self) -> int:
        """Physical cores of the fast kind; all of them where only one kind is allowed."""
        fast = {cpu.core for cpu in self.cpus if not cpu.is_efficient}
        return len(fast) or self.physical_cores

    @property
    def memory_nodes(self) -> tuple[int, ...]:
        """The nodes whose memory may be used, including those without CPUs.

        If /sys reports no node's memory, those with allowed CPUs.
        """
        allowed = set(self.limits.allowed_nodes)
        known = [n.id for n in self.topology.nodes if n.memory_bytes and n.id in allowed]
        return tuple(known or sorted({cpu.node for cpu in self.cpus}))

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that a process can be bound to: they have allowed CPUs and allowed memory.

        If no node has both, those with allowed CPUs: formulas then still have a node, and a launch
        that binds to it fails with the reason.
        """
        holding = {cpu.node for cpu in self.cpus}
        return tuple(sorted(holding & set(self.memory_nodes) or holding))

    @property
    def usable_cores(self) -> int:
        """Physical cores, or fewer if the cgroup's quota grants less; at least 1."""
        quota = self.limits.quota_cores
        return max(1, min(self.physical_cores, int(quota) if quota else self.physical_cores))

    @property
    def usable_cpus(self) -> int:
        """Allowed CPUs (hardware threads), or fewer if the quota grants less; at least 1."""
        quota = self.limits.quota_cores
        return max(1, min(len(self.cpus), int(quota) if quota else len(self.cpus)))

    def facts(self) -> dict[str, Any]:
        """Return what formulas in search spaces may ask, by its name there (HOST_FACTS)."""
        cpus = self.cpus
        sockets, nodes = {c.socket for c in cpus}, {c.node for c in cpus}
        bindable = self.nodes
        return {
            "host.arch": self.processor.arch,
            "host.vendor": self.processor.vendor,
            "host.isa": self.processor.isa,
            "host.logical_cpus": len(cpus),
            "host.cpu_list": format_cpu_list(tuple(cpu.id for cpu in cpus)),
            "host.core_list": self._core_list(nodes),
            "host.node_core_list": self._core_list({min(bindable)}),
            "host.node_cores": len({c.core for c in cpus if c.node == min(bindable)}),
            "host.physical_cores": self.physical_cores,
            "host.performance_cores": self.performance_cores,
            "host.usable_cores": self.usable_cores,
            "host.sockets": len(sockets),
            "host.numa_nodes": len(nodes),
            "host.nodes": bindable,
            "host.memory_nodes": self.memory_nodes,
            "host.cores_per_socket": self._fewest_cores(lambda cpu: cpu.socket),
            "host.cores_per_node": self._fewest_cores(lambda cpu: cpu.node),
            "host.cores_per_llc": self._fewest_cores(lambda cpu: cpu.llc),
            "host.smt": len(cpus) > self.physical_cores,
            "host.llc_groups": len({c.llc for c in cpus}),
            "host.memory_gib": self.limits.memory_bytes / 2**30,
            "host.libraries": tuple(self.libraries),
            "host.engines": self.engines,
            "host.quantizers": self.quantizers,
            "host.cxx": self.cxx is not None,
            "host.gpus": len(self.gpus),
            "host.gpu_memory_gib": self.gpus[0].memory_bytes / 2**30 if self.gpus else 0.0,
            "host.compute_capability": float(self.gpus[0].compute_capability) if self.gpus else 0.0,
            "host.transparent_huge_pages": self.observations.transparent_huge_pages or "unknown",
        }

    def _fewest_cores(self, place: Callable[[Cpu], int]) -> int:
        """Return the allowed physical cores of the place (socket, node, cache) that has fewest.

        Not their average: a mask may leave four cores of one node and two of the next, and an equal
        share has to fit into every place.
        """
        cores: dict[int, set[int]] = {}
        for cpu in self.cpus:
            cores.setdefault(place(cpu), set()).add(cpu.core)
        return min(len(held) for held in cores.values())

    def _core_list(self, nodes: set[int]) -> str:
        """Return the first allowed CPU of each core on some nodes, as a list."""
        first: dict[int, int] = {}
        for cpu in self.cpus:
            if cpu.node in nodes:
                first[cpu.core] = min(cpu.id, first.get(cpu.core, cpu.id))
        return format_cpu_list(tuple(first.values()))

    def identity(self) -> dict[str, Any]:
        """Return what changes results: hardware, limits, libraries and versions."""
        return {
            **self._peculiarities(),
            "processor": msgspec.to_builtins(self.processor),
            "allowed_cpus": format_cpu_list(self.limits.allowed_cpus),
            "sockets": len({c.socket for c in self.cpus}),
            "numa_nodes": len({c.node for c in self.cpus}),
            "physical_cores": self.physical_cores,
            "logical_cpus": len(self.cpus),
            "last_level_caches": len({c.llc for c in self.cpus}),
            "quota_cores": self.limits.quota_cores,
            "memory_gib": round(self.limits.memory_bytes / 2**30, 1),
            "gpus": [gpu.identity() for gpu in self.gpus],
            # two hosts with the same package are equal, wherever their environments lie
            "libraries": {
                name: self.packages.get(name) or str(Path(p).resolve())
                for name, p in self.libraries.items()
            },
            "cxx": self.cxx,
            "versions": self.versions,
        }

    def _peculiarities(self) -> dict[str, Any]:
        """Return what few hosts have; absent elsewhere, so that their fingerprints stay."""
        efficient = {cpu.core for cpu in self.cpus if cpu.is_efficient}
        remote = {cpu.node for cpu in self.cpus} - set(self.memory_nodes)
        found: dict[str, Any] = {}
        if efficient:
            found["efficient_cores"] = len(efficient)
        if remote:
            found["nodes_without_memory"] = sorted(remote)
        return found

    def fingerprint(self) -> str:
        """Return the SHA-256 of the identity."""
        return fingerprint(self.identity())

    def summary(self) -> str:
        """Describe the host on one line."""
        facts = self.facts()
        quota = self.limits.quota_cores
        return (
            f"{self.processor.model}, {facts['host.sockets']} socket(s), "
            f"{facts['host.numa_nodes']} NUMA node(s), {self.physical_cores} cores, "
            f"{facts['host.logical_cpus']} CPUs{f', quota {quota:g} cores' if quota else ''}, "
            f"{facts['host.memory_gib']:.1f} GiB{self._cards()}"
        )

    def _cards(self) -> str:
        """Name the cards, for the end of a line; equal ones once."""
        names = [gpu.name for gpu in self.gpus]
        counted = (f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        return "".join(f", {each}" for each in counted)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def kind_of(host: Host, models: Path) -> str:
    """Name the kind of a host in a fleet: hosts of one kind can continue each other's studies.

    models: the path of the gallery. With what formulas use, it is part of a study's identity, but
    not of the host's.
    """
    besides = [str(models), host.observations.transparent_huge_pages]
    return fingerprint([host.identity(), besides])[:_DIGITS_OF_KIND]


def _first(root: Path, *paths: str) -> str | None:
    for path in paths:
        try:
            return (root / path).read_text().strip()
        except OSError:
            continue
    return None


def _observe(root: Path, gpus: tuple[Gpu, ...]) -> Observations:
    cpu = "sys/devices/system/cpu"
    no_turbo = _first(root, f"{cpu}/intel_pstate/no_turbo")
    boost = _first(root, f"{cpu}/cpufreq/boost")
    turbo = no_turbo == "0" if no_turbo is not None else None
    if turbo is None and boost is not None:
        turbo = boost == "1"
    pages = _first(root, "sys/kernel/mm/transparent_hugepage/enabled") or ""
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError):  # virtual machines without cpufreq
        frequency = None
    return Observations(
        memory_available_bytes=psutil.virtual_memory().available,
        swap_used_bytes=psutil.swap_memory().used,
        load_1min=psutil.getloadavg()[0],
        frequency_mhz=frequency.current if frequency else None,
        governor=_first(root, f"{cpu}/cpu0/cpufreq/scaling_governor"),
        turbo=turbo,
        transparent_huge_pages=pages.partition("[")[2].partition("]")[0] or None,
        gpus=observe_gpus(gpus, root),
    )


def probe(root: Path = Path("/"), allowed: tuple[int, ...] | None = None) -> Host:
    """Read the host; `root` and `allowed` serve fixture trees.

    Raises UsageError on a system that is not Linux: there is no /sys to read there.
    """
    if not sys.platform.startswith("linux"):
        raise UsageError(
            f"cannot measure on {sys.platform}: settings are read back from Linux's "
            "/proc and /sys; run it on Linux, or in a Linux container"
        )
    is_here = root == Path("/")
    packaged = find_packaged() if is_here else {}
    usable = {name: each for name, each in packaged.items() if not each.fault}
    faulty = {str(Path(each.path).resolve()) for each in packaged.values() if each.fault}
    libraries = {
        name: path
        for name, path in find_libraries(searched_folders(root)).items()
        if str(Path(path).resolve()) not in faulty
    }
    gpus = read_gpus(root, os.environ.get("CUDA_VISIBLE_DEVICES") if is_here else None)
    described = os.environ.get(STANDS_IN) if is_here else None
    machine = Path(described) if described else root
    limits = read_limits(machine, allowed)
    return Host(
        processor=read_processor(root),
        topology=read_topology(machine, limits.allowed_cpus),
        limits=limits,
        libraries=libraries | {name: each.path for name, each in usable.items()},
        cxx=find_cxx(),
        gpus=gpus,
        versions=read_versions(),
        observations=_observe(root, gpus),
        packages={name: each.package for name, each in usable.items()},
        unusable={
            name: f"{each.package} is installed, but {each.fault}"
            for name, each in packaged.items()
            if name not in libraries and each.fault
        },
        engines=find_engines() if is_here else (),
        quantizers=find_quantizers() if is_here else (),
    )


# The flags by which oneDNN, MKL, OpenBLAS and XLA choose kernels; all others change nothing here.
_RELEVANT = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16"),
)


class Processor(msgspec.Struct, frozen=True):
    """What /proc/cpuinfo tells."""

    vendor: str
    """intel, amd, arm, or the kernel's own word."""
    model: str
    arch: str
    isa: tuple[str, ...]
    virtualised: bool


_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}


def read_processor(root: Path = Path("/"), arch: str | None = None) -> Processor:
    """Read the first processor of /proc/cpuinfo below `root`."""
    fields: dict[str, str] = {}
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    vendor = fields.get("vendor_id", "")
    if "CPU implementer" in fields:
        vendor = "arm"
    return Processor(
        vendor=_VENDORS.get(vendor, vendor or "unknown"),
        model=fields.get("model name") or fields.get("CPU part", "unknown"),
        arch=arch or platform.machine(),
        isa=tuple(flag for flag in _RELEVANT if flag in flags),
        virtualised="hypervisor" in flags,
    )
