"""What is in force in this process, as the kernel and the loader have it.

Echoing the environment is no evidence: each function looks at what the setting was to change.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.host.numa import NumaError, memory_policy
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack

_ALLOCATORS = ("tcmalloc", "jemalloc", "mimalloc")


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


def _loaded_libraries() -> list[str]:
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


def _definer(symbol: str) -> str:
    """Return the first library in look-up order that defines a symbol, or an empty string.

    The address that the process as a whole has for it proves nothing: a position-dependent
    executable, as Debian's Python is, puts a call stub of its own in the function's place.
    """
    for path in _loaded_libraries():
        try:
            function = getattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD), symbol)
        except (OSError, AttributeError):
            continue
        # a library's look-up goes on in what it depends on
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        if mapped_file(address) == os.path.realpath(path):
            return path
    return ""


def allocator() -> str:
    """Name the allocator whose malloc the process's libraries are bound to.

    A library that is only mapped (loaded late, or without the symbol) is not in use: its malloc
    must come first in the global scope, where every framework library looks.
    """
    owners = set()
    for symbol in ("malloc", "posix_memalign"):  # frameworks allocate tensors with the latter
        file = Path(_definer(symbol)).name
        owners.add(next((name for name in _ALLOCATORS if name in file), "glibc"))
    return owners.pop() if len(owners) == 1 else "mixed:" + ",".join(sorted(owners))


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
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def numa_node() -> Value:
    """Return the node that memory is bound to by the kernel's account, or "none"."""
    try:
        policy = memory_policy()
    except NumaError:
        return "none"
    name, _, node = policy.partition(":")
    return int(node) if name == "bind" and node.isdigit() else "none"


def of_process(settings: Mapping[str, Value]) -> list[ReadBack]:
    """Read back the launch knobs that belong to no framework."""
    return [
        ReadBack(
            "launch.allocator",
            settings.get("launch.allocator"),
            allocator(),
            "effective",
            "which mapped file malloc and posix_memalign resolve to",
        ),
        ReadBack(
            "launch.numa_node",
            settings.get("launch.numa_node"),
            numa_node(),
            "effective",
            "get_mempolicy(2)",
        ),
    ]


def of_environment(settings: Mapping[str, Value], known: set[str]) -> list[ReadBack]:
    """Note the environment variables that nothing else could read back."""
    return [
        ReadBack(
            knob,
            value,
            value if os.environ.get(knob.removeprefix("env.")) == str(value) else None,
            "environment_only",
            "set in the environment; what it does cannot be observed",
        )
        for knob, value in settings.items()
        if knob.startswith("env.") and knob not in known
    ]


@contextmanager
def captured_stdout() -> Iterator[list[str]]:
    """Catch what libraries print on file descriptor 1; the list is filled on leaving."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        ctypes.CDLL(None).fflush(None)
        saved = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            lines.extend(file.read().decode(errors="replace").splitlines())
