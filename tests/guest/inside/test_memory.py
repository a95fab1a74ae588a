"""Where touched memory lies, by /proc/self/numa_maps and, page by page, by move_pages(2)."""

import ctypes
import mmap
import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.guest.inside.child import in_child
from tuner.host.numa import apply_memory_policy

N_PAGES = (64 << 20) // mmap.PAGESIZE


class Placed(NamedTuple):
    """Where the pages of one mapping lie."""

    policy: str
    by_numa_maps: dict[int, int]
    by_move_pages: dict[int, int]


def _touched(policy: str, cpu: int | None = None) -> Placed:
    """Take 64 MiB under a policy, touch every page, and ask the kernel twice where they are."""
    apply_memory_policy(policy)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    # mmap's own default is shared memory, which numa_maps counts as pages of /dev/zero
    memory = mmap.mmap(-1, N_PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # the kernel merges neighbouring mappings that are alike, and numa_maps would count both
    memory.madvise(mmap.MADV_DONTFORK)
    for offset in range(0, len(memory), mmap.PAGESIZE):
        memory[offset] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return Placed(*_numa_maps(address), _move_pages(address))


def _numa_maps(address: int) -> tuple[str, dict[int, int]]:
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        start, policy, *rest = line.split()
        if int(start, 16) == address:
            assert f"anon={N_PAGES}" in rest, line
            counts = [word[1:].split("=") for word in rest if word[0] == "N" and "=" in word]
            return policy, {int(node): int(pages) for node, pages in counts}
    raise AssertionError(f"no mapping begins at {address:x}")


def _move_pages(address: int) -> dict[int, int]:
    """Ask for the node of every page: numa_move_pages(3) without nodes to move to."""
    from numa import LIBNUMA

    pages = (ctypes.c_void_p * N_PAGES)(
        *range(address, address + N_PAGES * mmap.PAGESIZE, mmap.PAGESIZE)
    )
    status = (ctypes.c_int * N_PAGES)()
    assert LIBNUMA.numa_move_pages(0, ctypes.c_ulong(N_PAGES), pages, None, status, 0) == 0
    return dict(Counter(status))


@pytest.mark.parametrize(("node", "cpu_elsewhere"), [(0, 5), (1, 2)])
def test_memory_of_a_bound_process_lies_on_its_node(node: int, cpu_elsewhere: int) -> None:
    """Touched from the other node, so that the policy decides and not the CPU."""
    placed = in_child(_touched, f"bind:{node}", cpu=cpu_elsewhere)
    assert placed == Placed(f"bind:{node}", {node: N_PAGES}, {node: N_PAGES})


def test_interleaved_memory_lies_half_on_each_node() -> None:
    placed = in_child(_touched, "interleave:0,1")
    assert placed.policy == "interleave:0-1"
    assert placed.by_numa_maps == placed.by_move_pages
    assert sum(placed.by_move_pages.values()) == N_PAGES
    for node in (0, 1):  # pages of 2 MiB may take turns as well: 32 of them
        assert placed.by_move_pages[node] == pytest.approx(N_PAGES / 2, rel=0.1)


@pytest.mark.parametrize(("cpu", "node"), [(2, 0), (5, 1)])
def test_without_a_policy_memory_lies_where_it_is_touched(cpu: int, node: int) -> None:
    placed = in_child(_touched, "none", cpu=cpu)
    assert placed == Placed("default", {node: N_PAGES}, {node: N_PAGES})
