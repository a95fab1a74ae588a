"""Sockets, NUMA nodes, cores and their kinds, SMT siblings and last-level caches, from /sys."""

from __future__ import annotations

from pathlib import Path

import msgspec

# A core counts as efficient below this share of the largest cpu_capacity. One kind of core may come
# in several speeds: an NVIDIA GB10 shows five capacities for two kinds (ThreadPinning.jl#109), the
# slowest fast core at about 0.97 of the largest, the fastest efficient one at about 0.71.
_FAST_SHARE = 0.8


class Cpu(msgspec.Struct, frozen=True):
    """One online logical CPU."""

    id: int
    core: int
    """The lowest CPU of its physical core: unique on the host, unlike the kernel's core_id."""
    socket: int
    node: int
    llc: int
    """The lowest logical CPU that shares its last-level cache; its socket's, if none is reported.
    """
    is_efficient: bool = False
    """One of a hybrid processor's slower cores (Intel E cores, Arm LITTLE cores)."""


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


def _lowest(cpus: str) -> int:
    """Return the first CPU of a kernel list, which is its lowest, without expanding the list."""
    return int(cpus.replace("-", ",").partition(",")[0])


def _last_level_cache(folder: Path) -> int | None:
    """Return the lowest CPU sharing the cache of the highest level that a CPU has."""
    shared: dict[int, int] = {}
    for index in folder.glob("cache/index*"):
        level, cpus = _read(index / "level"), _read(index / "shared_cpu_list")
        if level and cpus:
            shared[int(level)] = _lowest(cpus)
    return shared[max(shared)] if shared else None


def _efficient_cpus(root: Path, online: tuple[int, ...]) -> set[int]:
    """Return the CPUs of a hybrid processor's slower cores.

    Intel's kinds are the kernel's event sources: cpu_atom, and cpu_lowpower for the E cores next to
    the memory controller (Arrow Lake H, Linux 6.13). Arm's differ in cpu_capacity.
    """
    found: set[int] = set()
    for kind in ("cpu_atom", "cpu_lowpower"):
        found.update(parse_cpu_list(_read(root / f"sys/devices/{kind}/cpus") or ""))
    capacities = {
        cpu: int(text)
        for cpu in online
        if (text := _read(root / f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"))
    }
    fast = _FAST_SHARE * max(capacities.values(), default=0)
    return found | {cpu for cpu, capacity in capacities.items() if capacity < fast}


def _online(root: Path, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the online CPUs: what /sys lists, else what /proc/cpuinfo does, else the mask."""
    listed = parse_cpu_list(_read(root / "sys/devices/system/cpu/online") or "")
    if not listed:
        lines = (_read(root / "proc/cpuinfo") or "").splitlines()
        fields = [line.split(":") for line in lines if line.startswith("processor")]
        listed = tuple(int(field[1]) for field in fields if field[1].strip().isdigit())
    # lxcfs shows a container CPUs counted from 0 in place of those in its mask
    return listed if not allowed or set(listed) & set(allowed) else allowed


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


def _memory_bytes(root: Path) -> int:
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def read_topology(root: Path = Path("/"), allowed: tuple[int, ...] = ()) -> Topology:
    """Read the machine's topology below `root` (a fixture tree in tests), each file once.

    A kernel without NUMA support counts as one node that holds everything, and a CPU that no online
    node lists counts with the first one. Missing files (virtual machines, sandboxes) make each CPU
    a core of its own, in one socket with one last-level cache.

    allowed: the affinity mask; what may run here is online, whatever a container's /sys shows.
    """
    base = root / "sys/devices/system/cpu"
    online = _online(root, allowed)
    nodes = _nodes(root) or (Node(0, online, _memory_bytes(root), (10,)),)
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    efficient = _efficient_cpus(root, online)
    cpus: list[Cpu] = []
    first_of_socket: dict[int, int] = {}
    for cpu in online:
        folder = base / f"cpu{cpu}"
        siblings = _read(folder / "topology/core_cpus_list") or _read(
            folder / "topology/thread_siblings_list"
        )
        package = _read(folder / "topology/physical_package_id")
        # -1 where the firmware does not tell (some virtual machines): one socket
        socket = max(0, int(package)) if package else 0
        first = first_of_socket.setdefault(socket, cpu)
        cache = _last_level_cache(folder)
        cpus.append(
            Cpu(
                id=cpu,
                core=_lowest(siblings) if siblings else cpu,
                socket=socket,
                node=node_of.get(cpu, nodes[0].id),
                llc=first if cache is None else cache,
                is_efficient=cpu in efficient,
            )
        )
    return Topology(tuple(cpus), nodes)
