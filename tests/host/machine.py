"""Build the parts of /proc and /sys that describe a machine, as a fixture tree."""

from pathlib import Path

from tuner.host.topology import format_cpu_list


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


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
    """Write a machine of sockets x cores x threads; returns the root."""
    n_cores = sockets * cores
    cpus: dict[int, tuple[int, int]] = {}  # id -> (core, socket)
    for core in range(n_cores):
        for thread in range(threads):
            cpu = core * threads + thread if siblings_adjacent else core + thread * n_cores
            cpus[cpu] = (core, core // cores)
    llc = cores_per_llc or cores
    per_node = cores // nodes_per_socket
    base = "sys/devices/system/cpu"
    write(root, f"{base}/online", format_cpu_list(tuple(cpus)))
    for cpu, (core, socket) in cpus.items():
        siblings = tuple(c for c, (k, _) in cpus.items() if k == core)
        shared = tuple(c for c, (k, _) in cpus.items() if k // llc == core // llc)
        write(root, f"{base}/cpu{cpu}/topology/core_cpus_list", format_cpu_list(siblings))
        write(root, f"{base}/cpu{cpu}/topology/physical_package_id", str(socket))
        write(root, f"{base}/cpu{cpu}/cache/index0/level", "1")
        write(root, f"{base}/cpu{cpu}/cache/index0/shared_cpu_list", format_cpu_list(siblings))
        write(root, f"{base}/cpu{cpu}/cache/index3/level", "3")
        write(root, f"{base}/cpu{cpu}/cache/index3/shared_cpu_list", format_cpu_list(shared))
    n_nodes = sockets * nodes_per_socket
    write(root, "sys/devices/system/node/online", format_cpu_list(tuple(range(n_nodes))))
    for node in range(n_nodes):
        members = tuple(c for c, (core, _) in cpus.items() if core // per_node == node)
        folder = f"sys/devices/system/node/node{node}"
        write(root, f"{folder}/cpulist", format_cpu_list(members))
        kib = memory_gib * 2**20 // n_nodes
        write(root, f"{folder}/meminfo", f"Node {node} MemTotal: {kib} kB")
        distances = " ".join("10" if other == node else "21" for other in range(n_nodes))
        write(root, f"{folder}/distance", distances)
    write(root, "proc/cpuinfo", f"vendor_id\t: {vendor}\nmodel name\t: Test CPU\nflags\t: {flags}")
    write(root, "proc/meminfo", f"MemTotal: {memory_gib * 2**20} kB\nMemFree: 1 kB")
    write(root, "proc/self/cgroup", "0::/")
    write(root, "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    write(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
    return root
