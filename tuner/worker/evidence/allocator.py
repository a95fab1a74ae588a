"""The malloc in use and its tuning, as reported by the allocator itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tuner.record.configuration import Value
from tuner.record.launch import Evidence, ReadBack
from tuner.worker.evidence.process import definer

_ALLOCATORS = ("tcmalloc", "jemalloc", "mimalloc")

# C types of jemalloc's opt.* (jemalloc(3), 5.3); what is not here cannot be asked
_JEMALLOC_TYPES: dict[str, type[ctypes._SimpleCData]] = {  # type: ignore[type-arg]
    "background_thread": ctypes.c_bool,
    "retain": ctypes.c_bool,
    "tcache": ctypes.c_bool,
    "narenas": ctypes.c_uint,
    "oversize_threshold": ctypes.c_size_t,
    "tcache_max": ctypes.c_size_t,
    "dirty_decay_ms": ctypes.c_ssize_t,
    "muzzy_decay_ms": ctypes.c_ssize_t,
    "metadata_thp": ctypes.c_char_p,
    "thp": ctypes.c_char_p,
    "percpu_arena": ctypes.c_char_p,
    "dss": ctypes.c_char_p,
}
_LARGE_BLOCK = 64 << 20
_MMAPPED_CHUNK = 2
"""Bit of the size field before a block, set if it has a mapping of its own (glibc malloc.c)."""


def allocator() -> str:
    """Name the allocator to which the malloc of the process's libraries is bound.

    A library that is only mapped (loaded late, or without the symbol) is not in use: its malloc
    must come first in the global scope, where every framework library looks.
    """
    owners = set()
    for symbol in ("malloc", "posix_memalign"):  # frameworks allocate tensors with the latter
        file = Path(definer(symbol)).name
        owners.add(next((name for name in _ALLOCATORS if name in file), "glibc"))
    return owners.pop() if len(owners) == 1 else "mixed:" + ",".join(sorted(owners))


def _version() -> str:
    """Return the version that the allocator in use reports, as the end of a sentence."""
    library = ctypes.CDLL(definer("malloc") or None)
    if hasattr(library, "mi_version"):  # 30403 is 3.4.3, and 212 was 2.1.2 (mimalloc.h)
        number = library.mi_version()
        base = 100 if number >= 10000 else 10
        return f": mimalloc {number // base**2}.{number // base % base}.{number % base}"
    if hasattr(library, "tc_version"):
        library.tc_version.restype = ctypes.c_char_p
        return f": {library.tc_version(None, None, None).decode()}"
    if hasattr(library, "mallctl"):
        text, size = ctypes.c_char_p(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_char_p))
        library.mallctl(b"version", ctypes.byref(text), ctypes.byref(size), None, ctypes.c_size_t())
        return f": jemalloc {(text.value or b'').decode()}"
    return ""


def has_huge_pages(address: int) -> bool:
    """Tell whether the mapping that holds an address was advised to use huge pages (smaps: hg)."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, dash, rest = line.partition("-")
        if dash and " " in rest and not line.startswith("VmFlags"):
            last = rest.split(maxsplit=1)[0]
            is_inside = int(first, 16) <= address < int(last, 16)
        elif is_inside and line.startswith("VmFlags:"):
            return " hg" in line
    return False


def of_allocator(settings: Mapping[str, Value]) -> list[ReadBack]:
    """Read back the allocator and the tuning strings that the settings give it."""
    found = [
        ReadBack(
            "launch.allocator",
            settings.get("launch.allocator"),
            allocator(),
            "effective",
            f"which mapped file malloc and posix_memalign resolve to{_version()}",
        )
    ]
    for knob, read in _TUNING.items():
        if knob in settings:
            found.append(_read_options(knob, str(settings[knob]), read))
    knob = "env.MIMALLOC_LARGE_OS_PAGES"
    if knob in settings:
        is_advised = _with_block(_LARGE_BLOCK, has_huge_pages)
        how = f"a block of {_LARGE_BLOCK >> 20} MiB {'is' if is_advised else 'is not'} advised"
        found.append(ReadBack(knob, settings[knob], int(is_advised), "effective", how))
    return found


_Option = tuple[str, str | None]
"""An option as written, and the value in force instead; None if it is in force."""


def _read_options(
    knob: str, text: str, read: Callable[[str], Iterator[tuple[_Option, Evidence]]]
) -> ReadBack:
    """Judge a tuning string of several options, each by itself: in force if any of them is."""
    notes = []
    seen, unseen = [], 0
    for (option, instead), kind in read(text):
        if kind == "environment_only":
            unseen += 1
        else:
            seen.append(instead is None)
        notes.append(option if instead is None else f"{option} ({instead})")
    # what cannot be observed vouches for nothing where what can be observed is not in force
    is_good = any(seen) or not seen
    weakest: Evidence = "environment_only" if unseen and is_good else "effective"
    requested: Value = int(text) if text.isdigit() else text
    return ReadBack(knob, requested, requested if is_good else "unset", weakest, "; ".join(notes))


def _jemalloc_options(text: str) -> Iterator[tuple[_Option, Evidence]]:
    path = definer("mallctl")
    for option in text.split(","):
        name, _, requested = option.partition(":")
        if not path:
            yield (option, "there is no jemalloc in this process"), "effective"
            continue
        if name not in _JEMALLOC_TYPES:
            yield (option, None), "environment_only"
            continue
        value = _JEMALLOC_TYPES[name]()
        size = ctypes.c_size_t(ctypes.sizeof(value))
        key = f"opt.{name}".encode()
        refused = ctypes.CDLL(path).mallctl(
            key, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
        )
        if refused:
            yield (option, "this jemalloc does not know it"), "effective"
            continue
        raw = value.value
        seen = raw.decode() if isinstance(raw, bytes) else str(raw).lower()
        # run_cpu's oversize_threshold:1 reads as 0 in Debian's jemalloc 5.3.0, unset as 8388608
        is_same = seen == requested.lower() or (name, requested, seen) == (
            "oversize_threshold",
            "1",
            "0",
        )
        yield (option, None if is_same else f"opt.{name} is {seen}"), "effective"


def _tcmalloc_options(text: str) -> Iterator[tuple[_Option, Evidence]]:
    path = definer("MallocExtension_GetNumericProperty")
    value = ctypes.c_size_t()
    key = b"tcmalloc.max_total_thread_cache_bytes"
    if not path or not ctypes.CDLL(path).MallocExtension_GetNumericProperty(
        key, ctypes.byref(value)
    ):
        yield (text, "there is no tcmalloc in this process"), "effective"
        return
    instead = None if str(value.value) == text else f"{key.decode()} is {value.value}"
    yield (text, instead), "effective"


def _glibc_options(text: str) -> Iterator[tuple[_Option, Evidence]]:
    for option in text.split(":"):
        name, _, requested = option.partition("=")
        if allocator() != "glibc":
            yield (option, f"malloc is {allocator()}'s"), "effective"
        elif name == "glibc.malloc.hugetlb":
            is_advised = _with_block(_LARGE_BLOCK, has_huge_pages)
            yield (option, None if is_advised else "a large block is not advised"), "effective"
        elif name == "glibc.malloc.mmap_threshold":
            try:
                is_mapped = _with_block(int(requested, 0) - 4096, _has_own_mapping)
            except ValueError:
                yield (option, "not a number"), "effective"
                continue
            why = "smaller blocks get mappings of their own"
            yield (option, why if is_mapped else None), "effective"
        else:
            yield (option, None), "environment_only"


def _with_block(size: int, look: Callable[[int], bool]) -> bool:
    """Return what the address of a fresh block of this many bytes shows."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(size)
    try:
        return bool(block) and look(block)
    finally:
        libc.free(block)


def _has_own_mapping(block: int) -> bool:
    word = ctypes.sizeof(ctypes.c_size_t)
    return bool(ctypes.c_size_t.from_address(block - word).value & _MMAPPED_CHUNK)


_TUNING = {
    "env.MALLOC_CONF": _jemalloc_options,
    "env.TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": _tcmalloc_options,
    "env.GLIBC_TUNABLES": _glibc_options,
}
