"""Build the parts of /proc and /sys that describe a machine, as a fixture tree."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from tuner.host.topology import format_cpu_list

DESCRIBED = Path(__file__).parent / "topologies"


class MachineNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NUMA node as the kernel shows it; `memory_gib` 0 is a node of CPUs alone."""

    id: int
    memory_gib: float
    cpus: str = ""
    distances: list[int] = []


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine in the kernel's lists, and the mask and cgroup of a process on it.

    Lists are written as the kernel reads them: "0-3,8" and "0-31:1/2" (from 0 to 31, the first of
    every two; kernel-parameters documentation, "cpu lists").
    """

    name: str
    source: str
    """Where the numbering is from; what it does not tell is named as chosen."""
    numbering: Literal["published", "reconstructed"]
    """Whether the source lists which CPU is where, or only what there is."""
    vendor: str
    """/proc/cpuinfo's vendor_id; an implementer ("0x41") on Arm."""
    model: str
    """model name; the part ("0xd40") on Arm."""
    flags: str
    threads: list[list[str]]
    """How cores are made: the k-th CPUs of the lists in one group are core k's threads."""
    packages: dict[str, str]
    """The CPUs by physical_package_id."""
    nodes: list[MachineNode] = []
    core_ids: str = ""
    """The core_id of a package's cores, in the order of their lowest CPU; else from 0 on."""
    l2: list[str] = []
    """Groups of CPUs that share an L2; every other core has its own."""
    l3: list[str] = []
    offline: str = ""
    efficient: str = ""
    """Intel hybrids: the CPUs of /sys/devices/cpu_atom."""
    capacities: dict[str, str] = {}
    """Arm: CPUs by their cpu_capacity."""
    mask: str = ""
    """The affinity mask; every online CPU if empty."""
    mems_allowed: str = ""
    """Every node with memory if empty."""
    cgroup: str = "0::/"
    files: dict[str, str] = {}
    """Further files of the tree, the cgroup's for instance."""
    golden: dict[str, Any] = {}
    """Facts by their names after "host."; lists of several parts in the kernel's format."""

    @property
    def online(self) -> tuple[int, ...]:
        """The online CPUs."""
        everywhere = {cpu for cpus in self.packages.values() for cpu in expand(cpus)}
        return tuple(sorted(everywhere - set(expand(self.offline))))

    @property
    def allowed(self) -> tuple[int, ...]:
        """The CPUs of the affinity mask."""
        return expand(self.mask) or self.online


def described() -> dict[str, Machine]:
    """Return the machines of topologies/ by the names of their files."""
    return {
        path.stem: msgspec.convert(tomllib.loads(path.read_text()), Machine)
        for path in sorted(DESCRIBED.glob("*.toml"))
    }


def expand(cpus: str) -> tuple[int, ...]:
    """Read a kernel list with its groups, in the order written."""
    found: list[int] = []
    for part in filter(None, cpus.split(",")):
        span, _, group = part.partition(":")
        first, _, last = span.partition("-")
        used, _, size = (group or "1/1").partition("/")
        for start in range(int(first), int(last or first) + 1, int(size)):
            found.extend(range(start, min(start + int(used), int(last or first) + 1)))
    return tuple(found)


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    try:
        file.write_text(text + "\n")
    except FileNotFoundError:  # asked for each file, a folder's existence costs more than the file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def raise_tree(root: Path, machine: Machine) -> Path:
    """Write what the kernel shows of a machine; returns the root."""
    online = set(machine.online)
    cores = [
        tuple(sorted(set(core) & online))
        for group in machine.threads
        for core in zip(*(expand(cpus) for cpus in group), strict=True)
    ]
    siblings = {cpu: core for core in cores for cpu in core}
    package_of = {cpu: int(id) for id, cpus in machine.packages.items() for cpu in expand(cpus)}
    core_id = _core_ids(machine, package_of)
    package_list = {
        int(id): format_cpu_list(tuple(online.intersection(expand(cpus))))
        for id, cpus in machine.packages.items()
    }
    _write_lists(root, machine, tuple(sorted(package_of)))
    for cpu in machine.online:
        if _is_like_its_first_sibling(root, siblings[cpu], cpu):
            continue
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        for name in ("core_cpus_list", "thread_siblings_list"):
            write(root, f"{folder}/{name}", format_cpu_list(siblings[cpu]))
        for name in ("package_cpus_list", "core_siblings_list"):
            write(root, f"{folder}/{name}", package_list[package_of[cpu]])
        write(root, f"{folder}/core_id", str(core_id[cpu]))
        write(root, f"{folder}/physical_package_id", str(package_of[cpu]))
        write(root, f"{folder}/die_id", "0")
    _write_caches(root, machine, siblings)
    _write_kinds(root, machine)
    _write_nodes(root, machine)
    _write_proc(root, machine, package_of, core_id)
    for path, text in machine.files.items():
        write(root, path, text)
    return root


def _is_like_its_first_sibling(root: Path, core: tuple[int, ...], cpu: int) -> bool:
    """Let a further thread of a core show that core's files: making files is what takes long."""
    if cpu == core[0]:
        return False
    folder = root / f"sys/devices/system/cpu/cpu{cpu}"
    folder.mkdir(parents=True)
    for shown in ("topology", "cache"):
        (folder / shown).symlink_to(f"../cpu{core[0]}/{shown}")
    return True


def _core_ids(machine: Machine, package_of: dict[int, int]) -> dict[int, int]:
    ids = expand(machine.core_ids)
    found: dict[int, int] = {}
    seen: dict[int, int] = {}
    every = [
        core
        for group in machine.threads
        for core in zip(*(expand(cpus) for cpus in group), strict=True)
    ]
    for core in sorted(every, key=min):
        package = package_of[core[0]]
        place = seen.get(package, 0)
        seen[package] = place + 1
        for cpu in core:
            found[cpu] = ids[place] if ids else place
    return found


def _write_lists(root: Path, machine: Machine, present: tuple[int, ...]) -> None:
    base = "sys/devices/system/cpu"
    write(root, f"{base}/online", format_cpu_list(machine.online))
    write(root, f"{base}/present", format_cpu_list(present))
    write(root, f"{base}/possible", format_cpu_list(present))
    write(root, f"{base}/offline", format_cpu_list(expand(machine.offline)))


def _write_caches(root: Path, machine: Machine, siblings: dict[int, tuple[int, ...]]) -> None:
    online = set(machine.online)

    def shared(groups: list[str]) -> dict[int, str]:
        """Return what shared_cpu_list says, for each CPU of some groups."""
        lists = {group: format_cpu_list(tuple(online & set(expand(group)))) for group in groups}
        return {cpu: lists[group] for group in groups for cpu in expand(group)}

    shared_l2, shared_l3 = shared(machine.l2), shared(machine.l3)
    for cpu in machine.online:
        if cpu != siblings[cpu][0]:
            continue
        own = format_cpu_list(siblings[cpu])
        levels = [
            (0, 1, "Data", own),
            (1, 1, "Instruction", own),
            (2, 2, "Unified", shared_l2.get(cpu, own)),
        ]
        if cpu in shared_l3:
            levels.append((3, 3, "Unified", shared_l3[cpu]))
        for index, level, kind, cpus in levels:
            folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            write(root, f"{folder}/level", str(level))
            write(root, f"{folder}/type", kind)
            write(root, f"{folder}/shared_cpu_list", cpus)


def _write_kinds(root: Path, machine: Machine) -> None:
    if machine.efficient:
        atoms = set(expand(machine.efficient))
        fast = tuple(cpu for cpu in machine.online if cpu not in atoms)
        write(root, "sys/devices/cpu_atom/cpus", machine.efficient)
        write(root, "sys/devices/cpu_core/cpus", format_cpu_list(fast))
    for capacity, cpus in machine.capacities.items():
        for cpu in expand(cpus):
            write(root, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", capacity)


def _write_nodes(root: Path, machine: Machine) -> None:
    if not machine.nodes:
        return
    base = "sys/devices/system/node"
    online = set(machine.online)
    cpus = {node.id: tuple(c for c in expand(node.cpus) if c in online) for node in machine.nodes}
    with_memory = tuple(node.id for node in machine.nodes if node.memory_gib)
    write(root, f"{base}/online", format_cpu_list(tuple(cpus)))
    write(root, f"{base}/has_cpu", format_cpu_list(tuple(id for id in cpus if cpus[id])))
    write(root, f"{base}/has_memory", format_cpu_list(with_memory))
    for node in machine.nodes:
        folder = f"{base}/node{node.id}"
        write(root, f"{folder}/cpulist", format_cpu_list(cpus[node.id]))
        kib = int(node.memory_gib * 2**20)
        text = f"Node {node.id} MemTotal:       {kib} kB\nNode {node.id} MemFree:        1 kB"
        write(root, f"{folder}/meminfo", text)
        write(root, f"{folder}/distance", " ".join(map(str, node.distances)))


def _write_proc(
    root: Path, machine: Machine, package_of: dict[int, int], core_id: dict[int, int]
) -> None:
    blocks = []
    for cpu in machine.online:
        if machine.vendor.startswith("0x"):
            blocks.append(
                f"processor\t: {cpu}\nFeatures\t: {machine.flags}\n"
                f"CPU implementer\t: {machine.vendor}\nCPU part\t: {machine.model}\n"
            )
        else:
            blocks.append(
                f"processor\t: {cpu}\nvendor_id\t: {machine.vendor}\n"
                f"model name\t: {machine.model}\nphysical id\t: {package_of[cpu]}\n"
                f"core id\t\t: {core_id[cpu]}\nflags\t\t: {machine.flags}\n"
            )
    write(root, "proc/cpuinfo", "\n".join(blocks))
    kib = int(sum(node.memory_gib for node in machine.nodes) * 2**20)
    write(root, "proc/meminfo", f"MemTotal:       {kib} kB\nMemFree:        1 kB")
    with_memory = tuple(node.id for node in machine.nodes if node.memory_gib)
    status = f"Name:\ttest\nCpus_allowed_list:\t{format_cpu_list(machine.allowed)}"
    if machine.nodes:
        status += f"\nMems_allowed_list:\t{machine.mems_allowed or format_cpu_list(with_memory)}"
    write(root, "proc/self/status", status)
    write(root, "proc/self/cgroup", machine.cgroup)
    write(root, "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    write(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")


def build(
    root: Path,
    *,
    sockets: int = 1,
    cores: int = 2,
    threads: int = 1,
    nodes_per_socket: int = 1,
    cores_per_llc: int = 0,
    siblings_adjacent: bool = False,
    vendor: str = "GenuineIntel",
    flags: str = "sse4_2 avx avx2 fma avx512f avx512_bf16",
    memory_gib: int = 64,
) -> Path:
    """Write a regular machine of sockets x cores x threads; returns the root."""
    n_cores = sockets * cores
    step, apart = (threads, 1) if siblings_adjacent else (1, n_cores)

    def cpus_of(first_core: int, n: int) -> str:
        """Return the CPUs of some consecutive cores."""
        wanted = range(first_core, first_core + n)
        return format_cpu_list(tuple(c * step + t * apart for c in wanted for t in range(threads)))

    llc, per_node = cores_per_llc or cores, cores // nodes_per_socket
    n_nodes = sockets * nodes_per_socket
    return raise_tree(
        root,
        Machine(
            name="a regular machine",
            source="none",
            numbering="reconstructed",
            vendor=vendor,
            model="Test CPU",
            flags=flags,
            threads=[
                [
                    ",".join(str(core * step + thread * apart) for core in range(n_cores))
                    for thread in range(threads)
                ]
            ],
            packages={str(socket): cpus_of(socket * cores, cores) for socket in range(sockets)},
            l3=[cpus_of(first, llc) for first in range(0, n_cores, llc)],
            nodes=[
                MachineNode(
                    id=node,
                    cpus=cpus_of(node * per_node, per_node),
                    memory_gib=memory_gib / n_nodes,
                    distances=[10 if other == node else 21 for other in range(n_nodes)],
                )
                for node in range(n_nodes)
            ],
        ),
    )
