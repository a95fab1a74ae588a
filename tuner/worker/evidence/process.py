"""This process according to the loader and kernel: libraries, threads, CPUs, memory policy."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tuner.host.numa import NumaError, memory_policy
from tuner.host.topology import read_topology
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack


def mapped_file(address: int) -> str:
    """Return the file that is mapped at an address of this process, or an empty string."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *rest = line.split(maxsplit=5)
        first, last = (int(part, 16) for part in span.split("-"))
        if first <= address < last:
            return rest[4] if len(rest) > 4 else ""
    return ""


class _LoadedObject(ctypes.Structure):
    """The beginning of the loader's struct dl_phdr_info, as dl_iterate_phdr(3) has it."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def loaded_libraries() -> list[str]:
    """Return the files of the loaded libraries in the order in which symbols are looked up."""
    names: list[str] = []

    def note(loaded: Any, _size: int, _data: int) -> int:
        names.append(os.fsdecode(loaded.contents.name or b""))
        return 0

    # with the interpreter's lock held: a thread that imports meanwhile waits for the loader's lock
    visit = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(_LoadedObject), ctypes.c_size_t, ctypes.c_void_p
    )
    ctypes.PyDLL(None).dl_iterate_phdr(visit(note), None)
    return [name for name in names if name.startswith("/")]  # not the program, not the kernel's


def definer(symbol: str) -> str:
    """Return the first library in look-up order that defines a symbol, or an empty string.

    The address that the process as a whole has for it proves nothing: a position-dependent
    executable, as Debian's Python is, puts a call stub of its own in the function's place.
    """
    for path in loaded_libraries():
        try:
            function = getattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD), symbol)
        except (OSError, AttributeError):
            continue
        # a library's look-up goes on in what it depends on
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        if mapped_file(address) == os.path.realpath(path):
            return path
    return ""


def threads_by_name() -> dict[int, str]:
    """Return the kernel's name of every thread of this process."""
    names = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            names[int(task.name)] = (task / "comm").read_text().strip()
        except OSError:  # ended meanwhile
            continue
    return names


def private_bytes() -> int:
    """Return the anonymous memory of this process that is resident."""
    return _resident("RssAnon")


def proportional_bytes(pid: int) -> tuple[int, int]:
    """Return another process's share of the memory that it maps, and of its anonymous memory.

    Of a page that several processes map each has its part (proc(5), Pss). 0 if it has gone.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0, 0
    sizes = {line.partition(":")[0]: line.split()[1] for line in text.splitlines()[1:]}
    return int(sizes["Pss"]) * 1024, int(sizes.get("Pss_Anon", 0)) * 1024


def shared_bytes() -> int:
    """Return the resident memory of mapped files, libraries among them.

    Other processes that map the same files need no memory of their own for them.
    """
    return _resident("RssFile")


def _resident(kind: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    return 0


def _memory_policy() -> tuple[str, str]:
    """Return the kernel's memory policy of this thread and its nodes: ("bind", "0")."""
    try:
        name, _, nodes = memory_policy().partition(":")
    except NumaError:
        return "default", ""
    return name, nodes


def numa_node() -> Value:
    """Return the node that memory is bound to by the kernel's account, or "none"."""
    name, nodes = _memory_policy()
    return int(nodes) if name == "bind" and nodes.isdigit() else "none"


def memory_choice(policy: str, settings: Mapping[str, Value]) -> str:
    """Return where memory comes from under a kernel's policy.

    Binding to one node together with its CPUs is another knob's.
    """
    is_node = policy == "bind" and settings.get("launch.numa_node", "none") != "none"
    return policy if policy in ("bind", "interleave") and not is_node else "local"


def cpu_choice(cpus: Iterable[int]) -> str:
    """Return "one_per_core" if SMT siblings were left out of a mask, else "all"."""
    allowed = set(cpus)
    everything = read_topology().cpus
    mine = [cpu for cpu in everything if cpu.id in allowed]
    cores = {cpu.core for cpu in mine}
    has_siblings = len(cores) < sum(cpu.core in cores for cpu in everything)
    return "one_per_core" if has_siblings and len(cores) == len(mine) else "all"


def of_process(settings: Mapping[str, Value], cpus: Iterable[int]) -> list[ReadBack]:
    """Read back placement; `cpus` is the affinity mask before any library bound its threads."""
    return [
        ReadBack(
            "launch.numa_node",
            settings.get("launch.numa_node"),
            numa_node(),
            "effective",
            "get_mempolicy(2)",
        ),
        ReadBack(
            "launch.memory_policy",
            settings.get("launch.memory_policy"),
            memory_choice(_memory_policy()[0], settings),
            "effective",
            "get_mempolicy(2)",
        ),
        ReadBack(
            "launch.cpus",
            settings.get("launch.cpus"),
            cpu_choice(cpus),
            "effective",
            "sched_getaffinity(2) before the framework was imported",
        ),
    ]
