"""What this process may use of the machine: affinity mask, cgroup CPU quota, memory and nodes."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tuner.host.topology import parse_cpu_list


class Limits(msgspec.Struct, frozen=True):
    """The limits in force; None is no limit."""

    allowed_cpus: tuple[int, ...]
    quota_cores: float | None
    """CPU seconds per second that the cgroup grants."""
    memory_bytes: int
    """The smaller of physical memory and the cgroup's limit."""
    allowed_nodes: tuple[int, ...]
    """The NUMA nodes whose memory the cpuset allows."""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _ancestors(mount: Path, relative: str) -> list[Path]:
    """List a cgroup's folder and its parents up to the mount: each of them may have a limit.

    Inside a container the path of /proc/self/cgroup may be outside the mount; then the mount itself
    is the container's own group.
    """
    folder = mount / relative.lstrip("/")
    if not folder.is_dir():
        return [mount]
    chain = [folder]
    while chain[-1] != mount:
        chain.append(chain[-1].parent)
    return chain


def cgroup_folders(root: Path, controller: str) -> tuple[int, list[Path]]:
    """Return the cgroup version (1, 2; 0 for none) and the folders that limit this process.

    controller: the version-1 name, "cpu" or "memory".
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0, []
    unified = None
    for line in lines:
        _, names, relative = line.split(":", 2)
        if controller in names.split(","):
            for hierarchy in (names, controller):
                folder = root / "sys/fs/cgroup" / hierarchy
                if folder.is_dir():
                    return 1, _ancestors(folder, relative)
        if not names:
            unified = relative
    mount = root / "sys/fs/cgroup"
    if unified is not None and (mount / "cgroup.controllers").exists():
        return 2, _ancestors(mount, unified)
    return 0, []


def read_quota(root: Path = Path("/")) -> float | None:
    """Return the tightest CPU quota in cores, or None."""
    version, folders = cgroup_folders(root, "cpu")
    quotas = []
    for folder in folders:
        if version == 2:
            try:
                quota, period = (folder / "cpu.max").read_text().split()
            except (OSError, ValueError):
                continue
            if quota != "max":
                quotas.append(int(quota) / int(period))
        else:
            limit, length = (
                _number(folder / "cpu.cfs_quota_us"),
                _number(folder / "cpu.cfs_period_us"),
            )
            if limit is not None and limit > 0 and length:
                quotas.append(limit / length)
    return min(quotas, default=None)


def read_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory this process may use: physical, or the cgroup's limit."""
    total = 0
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    version, folders = cgroup_folders(root, "memory")
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    limits = [_number(folder / name) for folder in folders]
    return min([total, *(limit for limit in limits if limit is not None)])


def _of_status(root: Path, field: str) -> str | None:
    """Return a field of /proc/self/status, or None if it is missing."""
    try:
        lines = (root / "proc/self/status").read_text().splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2] for line in lines if line.startswith(f"{field}:"))
    return next(values, None)


def read_allowed_nodes(root: Path = Path("/")) -> tuple[int, ...]:
    """Return the nodes whose memory this process may use: its cpuset's, else all online ones."""
    listed = _of_status(root, "Mems_allowed_list")
    if listed is not None:
        return parse_cpu_list(listed)
    try:
        return parse_cpu_list((root / "sys/devices/system/node/online").read_text())
    except OSError:  # a kernel without NUMA support: the one node there is
        return (0,)


def read_allowed_cpus(root: Path = Path("/")) -> tuple[int, ...]:
    """Return the affinity mask: the calling thread's, or that of a described machine's process."""
    listed = _of_status(root, "Cpus_allowed_list") if root != Path("/") else None
    return parse_cpu_list(listed) if listed else tuple(sorted(os.sched_getaffinity(0)))


def read_limits(root: Path = Path("/"), allowed: tuple[int, ...] | None = None) -> Limits:
    """Read the limits of this process; `allowed` replaces its affinity mask (for fixture trees)."""
    cpus = read_allowed_cpus(root) if allowed is None else allowed
    return Limits(cpus, read_quota(root), read_memory(root), read_allowed_nodes(root))
