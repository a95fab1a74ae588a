from pathlib import Path

import pytest

from tests.host.machine import build, write
from tuner.host.identity import probe
from tuner.host.limits import read_allowed_nodes, read_memory, read_quota


def test_a_version_2_quota_on_any_ancestor_counts(tmp_path: Path) -> None:
    build(tmp_path)
    write(tmp_path, "proc/self/cgroup", "0::/outer/inner")
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    write(tmp_path, "sys/fs/cgroup/outer/cpu.max", "150000 100000")
    write(tmp_path, "sys/fs/cgroup/outer/inner/cpu.max", "max 100000")
    assert read_quota(tmp_path) == 1.5


def test_no_quota_is_none(tmp_path: Path) -> None:
    build(tmp_path)
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000")
    assert read_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "cores"), [("50000", 0.5), ("-1", None)])
def test_a_version_1_quota_is_read(tmp_path: Path, quota: str, cores: float | None) -> None:
    build(tmp_path)
    write(tmp_path, "proc/self/cgroup", "4:cpu,cpuacct:/box\n0::/")
    folder = "sys/fs/cgroup/cpu,cpuacct/box"
    write(tmp_path, f"{folder}/cpu.cfs_quota_us", quota)
    write(tmp_path, f"{folder}/cpu.cfs_period_us", "100000")
    assert read_quota(tmp_path) == cores


def test_a_container_that_sees_its_group_as_the_root(tmp_path: Path) -> None:
    build(tmp_path)
    write(tmp_path, "proc/self/cgroup", "0::/kubepods/pod1/box")  # not mounted inside
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "200000 100000")
    write(tmp_path, "sys/fs/cgroup/memory.max", str(2**30))
    assert read_quota(tmp_path) == 2.0
    assert read_memory(tmp_path) == 2**30


def test_memory_without_a_limit_is_the_machines(tmp_path: Path) -> None:
    build(tmp_path, memory_gib=8)
    assert read_memory(tmp_path) == 8 * 2**30


@pytest.mark.parametrize(
    ("quota", "cores"), [("250000", 2), ("50000", 1), ("800000", 8), ("1600000", 8), ("max", 8)]
)
def test_usable_cores_follow_the_quota(tmp_path: Path, quota: str, cores: int) -> None:
    build(tmp_path, cores=8)
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    write(tmp_path, "sys/fs/cgroup/cpu.max", f"{quota} 100000")
    assert probe(tmp_path, allowed=tuple(range(8))).usable_cores == cores


def test_a_cpuset_names_the_nodes_whose_memory_it_allows(tmp_path: Path) -> None:
    build(tmp_path, sockets=2)
    write(tmp_path, "proc/self/status", "Name:\tx\nMems_allowed:\t00000002\nMems_allowed_list:\t1")
    assert read_allowed_nodes(tmp_path) == (1,)


def test_a_kernel_without_cpusets_allows_every_node(tmp_path: Path) -> None:
    build(tmp_path, sockets=2)
    write(tmp_path, "proc/self/status", "Name:\tx")
    assert read_allowed_nodes(tmp_path) == (0, 1)
    (tmp_path / "sys/devices/system/node/online").unlink()
    assert read_allowed_nodes(tmp_path) == (0,)
