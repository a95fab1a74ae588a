"""Sockets, NUMA nodes, cores, SMT siblings and last-level caches, from /sys."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Cpu(msgspec.Struct, frozen=True):
    """One online logical CPU."""

    id: int
    core: int
    """The lowest CPU of its physical core: unique on the host, unlike the kernel's core_id."""
    socket: int
    node: int
    llc: int
    """The lowest logical CPU that shares its last-level cache."""


class Node(msgspec.Struct, frozen=True):
    """One NUMA node; `cpus` may be empty (memory only) and `memory_bytes` 0 (CPUs only)."""

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int
    distances: tuple[int, ...]
    """To every online node, in the order of their ids (ACPI SLIT: 10 is local)."""


class Topology(msgspec.Struct, frozen=True):
    """The online CPUs and nodes of the whole machine, allowed to us or not."""

    cpus: tuple[Cpu, ...]
    nodes: tuple[Node, ...]

    def of(self, allowed: tuple[int, ...]) -> tuple[Cpu, ...]:
        """Return the CPUs among `allowed` that exist and are online."""
        wanted = set(allowed)
        return tuple(cpu for cpu in self.cpus if cpu.id in wanted)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read the kernel's list format: "0-3,8" is (0, 1, 2, 3, 8). Empty text is no CPU."""
    ids: list[int] = []
    for part in text.strip().split(","):
        if not part:
            continue
        first, _, last = part.partition("-")
        ids.extend(range(int(first), int(last or first) + 1))
    return tuple(ids)


def format_cpu_list(cpus: tuple[int, ...]) -> str:
    """Write the kernel's list format: (0, 1, 2, 5) is "0-2,5"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # absent on this kernel or architecture, or unreadable in a container
        return None


def _last_level_cache(folder: Path, cpu: int) -> int:
    """Return the lowest CPU sharing the cache of the highest level that this CPU has."""
    shared: dict[int, int] = {}
    for index in sorted(folder.glob("cache/index*")):
        level, cpus = _read(index / "level"), _read(index / "shared_cpu_list")
        if level and cpus:
            shared[int(level)] = parse_cpu_list(cpus)[0]
    return shared[max(shared)] if shared else cpu


def _nodes(root: Path) -> tuple[Node, ...]:
    base = root / "sys/devices/system/node"
    online = parse_cpu_list(_read(base / "online") or "")
    nodes = []
    for node in online:
        folder = base / f"node{node}"
        memory = 0
        for line in (_read(folder / "meminfo") or "").splitlines():
            if "MemTotal:" in line:
                memory = int(line.split()[3]) * 1024
        distances = tuple(int(d) for d in (_read(folder / "distance") or "").split())
        cpus = parse_cpu_list(_read(folder / "cpulist") or "")
        nodes.append(Node(node, cpus, memory, distances))
    return tuple(nodes)


def read_topology(root: Path = Path("/")) -> Topology:
    """Read the machine's topology below `root` (a fixture tree in tests).

    A kernel without NUMA support counts as one node that holds everything.
    """
    base = root / "sys/devices/system/cpu"
    nodes = _nodes(root)
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    online = parse_cpu_list(_read(base / "online") or "")
    cpus = []
    for cpu in online:
        folder = base / f"cpu{cpu}"
        siblings = _read(folder / "topology/core_cpus_list") or _read(
            folder / "topology/thread_siblings_list"
        )
        socket = _read(folder / "topology/physical_package_id")
        cpus.append(
            Cpu(
                id=cpu,
                core=parse_cpu_list(siblings)[0] if siblings else cpu,
                # -1 where the firmware does not tell (some virtual machines): one socket
                socket=max(0, int(socket)) if socket else 0,
                node=node_of.get(cpu, 0),
                llc=_last_level_cache(folder, cpu),
            )
        )
    if not nodes:
        nodes = (Node(0, online, 0, (10,)),)
    return Topology(tuple(cpus), nodes)
