from pathlib import Path

import pytest

from tests.host.machine import build, write
from tuner.host.identity import probe
from tuner.host.topology import format_cpu_list, parse_cpu_list, read_topology


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", ()), ("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("0-1,4-5\n", (0, 1, 4, 5))],
)
def test_kernel_lists_are_read_and_written(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@pytest.mark.parametrize("siblings_adjacent", [True, False])
def test_smt_siblings_count_as_one_core_in_either_numbering(
    tmp_path: Path, siblings_adjacent: bool
) -> None:
    root = build(tmp_path, sockets=2, cores=4, threads=2, siblings_adjacent=siblings_adjacent)
    host = probe(root, allowed=tuple(range(16)))
    assert host.physical_cores == 8
    assert host.facts()["host.sockets"] == 2
    assert host.facts()["host.numa_nodes"] == 2
    assert host.facts()["host.smt"] is True


def test_only_allowed_cpus_count(tmp_path: Path) -> None:
    root = build(tmp_path, sockets=2, cores=4, threads=2)
    host = probe(root, allowed=(0, 1, 8))  # CPU 8 is the sibling of CPU 0
    assert host.physical_cores == 2
    assert host.facts()["host.logical_cpus"] == 3
    assert host.facts()["host.sockets"] == 1


def test_an_epyc_has_several_nodes_and_caches_per_socket(tmp_path: Path) -> None:
    root = build(tmp_path, sockets=1, cores=16, nodes_per_socket=4, cores_per_llc=2)
    facts = probe(root, allowed=tuple(range(16))).facts()
    assert facts["host.numa_nodes"] == 4
    assert facts["host.llc_groups"] == 8
    assert facts["host.cores_per_node"] == 4


def test_an_offline_cpu_is_no_cpu(tmp_path: Path) -> None:
    root = build(tmp_path, cores=4)
    write(root, "sys/devices/system/cpu/online", "0-2")
    host = probe(root, allowed=(0, 1, 2, 3))
    assert host.physical_cores == 3


def test_memory_only_nodes_are_kept(tmp_path: Path) -> None:
    root = build(tmp_path, cores=2)
    write(root, "sys/devices/system/node/online", "0-1")
    write(root, "sys/devices/system/node/node1/cpulist", "")
    write(root, "sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 1024 kB")
    nodes = read_topology(root).nodes
    assert [(n.id, n.cpus, n.memory_bytes) for n in nodes][1] == (1, (), 1024 * 1024)


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    root = build(tmp_path, cores=2)
    (root / "sys/devices/system/node/online").unlink()
    topology = read_topology(root)
    assert [n.id for n in topology.nodes] == [0]
    assert topology.nodes[0].cpus == (0, 1)


def test_this_machine_can_be_read() -> None:
    host = probe()
    assert host.physical_cores >= 1
    assert set(host.limits.allowed_cpus) == {cpu.id for cpu in host.cpus}
    assert len(host.fingerprint()) == 64
