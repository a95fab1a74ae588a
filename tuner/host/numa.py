"""Bind this process to NUMA nodes with py-libnuma, and prove it by the kernel.

For the measured process alone: py-libnuma 1.2 passes unchecked NULL masks to libnuma, so a bad
argument is a segmentation fault, and it ignores the failures of set_mempolicy. Therefore arguments
are checked against /sys and the affinity mask first, the mask is never widened, and the outcome is
read back from the kernel. In a tool process this would risk the study; in a worker, one launch.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.errors import WorkerFailed
from tuner.host.limits import read_allowed_nodes
from tuner.host.topology import Node, read_topology

# include/uapi/linux/mempolicy.h
_POLICIES = {0: "default", 1: "preferred", 2: "bind", 3: "interleave", 4: "local"}
_MAX_NODES = 1024  # libnuma's own limit; get_mempolicy wants at least the kernel's


class NumaError(WorkerFailed):
    """The binding was refused, or the kernel shows that it did not happen."""


def _memory_nodes() -> dict[int, Node]:
    """Return the nodes whose memory this process may use."""
    allowed = read_allowed_nodes()
    return {n.id: n for n in read_topology().nodes if n.memory_bytes and n.id in allowed}


def bind_to_nodes(*nodes: int) -> None:
    """Restrict this process to the CPUs of some nodes (of those it has) and to their memory.

    Raises NumaError, before libnuma sees the arguments, if a node does not exist, has no memory,
    is outside the cpuset, or holds none of the allowed CPUs; and after, if the kernel disagrees.
    """
    known, usable = {n.id: n for n in read_topology().nodes}, _memory_nodes()
    mine = os.sched_getaffinity(0)
    if not nodes:
        raise NumaError("no NUMA node was named to bind to")
    for node in nodes:
        if node not in known:
            raise NumaError(f"there is no NUMA node {node} here, only {sorted(known)}")
        if node not in usable:
            why = (
                "is outside this process's cpuset" if known[node].memory_bytes else "does not exist"
            )
            raise NumaError(f"memory of NUMA node {node} {why}")
        if not set(known[node].cpus) & mine:
            raise NumaError(f"none of the allowed CPUs belongs to NUMA node {node}")
    cpus = {cpu for node in nodes for cpu in known[node].cpus} & mine
    memory, schedule = _libnuma()
    schedule.run_on_cpus(0, *sorted(cpus))
    memory.set_membind_nodes(*nodes)
    actual = os.sched_getaffinity(0)
    if actual != cpus:
        raise NumaError(f"asked for CPUs {sorted(cpus)}, the kernel shows {sorted(actual)}")
    policy = memory_policy()
    expected = "bind:" + ",".join(map(str, sorted(nodes)))
    if policy != expected:
        raise NumaError(f"asked for memory policy {expected}, the kernel shows {policy}")


def interleave(nodes: Sequence[int]) -> None:
    """Spread this process's memory page by page over several nodes.

    Raises NumaError, before libnuma sees the arguments, if there are fewer than two nodes or one
    has no memory or is not allowed; and after, if the kernel disagrees.
    """
    allowed = _memory_nodes().keys()
    if len(nodes) < 2 or not set(nodes) <= allowed:
        raise NumaError(f"cannot interleave memory over nodes {list(nodes)} of {sorted(allowed)}")
    memory, _ = _libnuma()
    memory.set_interleave_nodes(*nodes)
    policy = memory_policy()
    expected = "interleave:" + ",".join(map(str, sorted(nodes)))
    if policy != expected:
        raise NumaError(f"asked for memory policy {expected}, the kernel shows {policy}")


def apply_memory_policy(policy: str) -> None:
    """Apply "none", "bind:NODE,NODE" or "interleave:NODE,NODE"; raises NumaError."""
    name, _, listed = policy.partition(":")
    if name == "none":
        return
    nodes = [int(node) for node in listed.split(",")]
    if name == "bind":
        bind_to_nodes(*nodes)
    elif name == "interleave":
        interleave(nodes)


def _libnuma() -> tuple[Any, Any]:
    """Return py-libnuma's memory and schedule; raises NumaError where libnuma is missing."""
    try:
        from numa import memory, schedule
    except (ImportError, OSError, AttributeError) as error:
        # AttributeError: py-libnuma without libnuma.so.1 loads the program itself instead
        raise NumaError(
            "libnuma cannot be loaded; install it (apt-get install libnuma1)"
        ) from error
    return memory, schedule


def memory_policy() -> str:
    """Return this thread's memory policy according to the kernel: "default", "bind:0", ...

    Raises NumaError if the kernel or a container's profile forbids the call.
    """
    try:
        from numa import LIBNUMA
    except (ImportError, OSError, AttributeError) as error:
        raise NumaError(
            "libnuma cannot be loaded; install it (apt-get install libnuma1)"
        ) from error
    mode = ctypes.c_int()
    words = _MAX_NODES // (8 * ctypes.sizeof(ctypes.c_ulong))
    mask = (ctypes.c_ulong * words)()
    ask = LIBNUMA.get_mempolicy
    ask.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
    ]
    ask.restype = ctypes.c_long
    if ask(ctypes.byref(mode), mask, _MAX_NODES, None, 0) != 0:
        raise NumaError("the kernel refused get_mempolicy (a container's seccomp profile?)")
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    nodes = [i for i in range(_MAX_NODES) if mask[i // bits] >> (i % bits) & 1]
    name = _POLICIES.get(mode.value & 0xFF, f"mode {mode.value}")
    return name + (":" + ",".join(map(str, nodes)) if nodes else "")


def policy_of(pid: int) -> str:
    """Return the policy of a process's first mapping, as numa(7) has it; empty if unknown."""
    try:
        lines = Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
    except OSError:
        return ""
    return lines[0].split()[1] if lines else ""
