import shutil
from pathlib import Path

import msgspec
import pytest

from tests.host.machine import build, described, raise_tree, write
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


@pytest.mark.parametrize(
    "missing",
    [
        "topology/core_cpus_list",
        "topology/core_id",
        "topology/physical_package_id",
        "cache",
        "topology",
        "",
    ],
)
def test_files_that_a_kernel_does_not_show_cost_nothing_else(tmp_path: Path, missing: str) -> None:
    root = build(tmp_path, cores=4)
    for cpu in range(4):
        path = root / f"sys/devices/system/cpu/cpu{cpu}" / missing
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    facts = probe(root, allowed=(0, 1, 2, 3)).facts()
    assert (facts["host.physical_cores"], facts["host.sockets"], facts["host.llc_groups"]) == (
        4,
        1,
        1,
    )
    assert facts["host.cores_per_llc"] == 4


def test_older_kernels_name_siblings_otherwise(tmp_path: Path) -> None:
    root = build(tmp_path, cores=2, threads=2)
    for cpu in range(2):  # 2 and 3 are their siblings, and show the same files
        (root / f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list").unlink()
    assert probe(root, allowed=(0, 1, 2, 3)).physical_cores == 2


def test_firmware_that_does_not_tell_the_package_is_one_socket(tmp_path: Path) -> None:
    root = build(tmp_path, cores=2)
    for cpu in range(2):
        write(root, f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "-1")
    assert probe(root, allowed=(0, 1)).facts()["host.sockets"] == 1


def test_a_sandbox_without_sys_is_read_from_proc(tmp_path: Path) -> None:
    root = raise_tree(tmp_path, described()["core-i9-12900k"])
    shutil.rmtree(root / "sys")
    facts = probe(root, allowed=(2, 3)).facts()
    assert facts["host.cpu_list"] == "2-3"
    assert (facts["host.nodes"], facts["host.memory_nodes"]) == ((0,), (0,))
    assert facts["host.cores_per_node"] == 2


def test_a_container_that_counts_its_cpus_from_0_has_those_of_its_mask(tmp_path: Path) -> None:
    """Lxcfs shows two CPUs as 0 and 1, whichever two the cpuset allows."""
    root = build(tmp_path, cores=2)
    host = probe(root, allowed=(8, 9))
    assert host.facts()["host.cpu_list"] == "8-9"
    assert host.physical_cores == 2


def test_all_memory_of_a_kernel_without_numa_is_on_its_one_node(tmp_path: Path) -> None:
    root = build(tmp_path, memory_gib=8)
    shutil.rmtree(root / "sys/devices/system/node")
    assert read_topology(root).nodes[0].memory_bytes == 8 << 30
    assert probe(root, allowed=(0, 1)).facts()["host.memory_nodes"] == (0,)


def test_a_node_whose_memory_is_not_told_can_still_be_named(tmp_path: Path) -> None:
    root = build(tmp_path, sockets=2)
    for node in range(2):
        (root / f"sys/devices/system/node/node{node}/meminfo").unlink()
    facts = probe(root, allowed=(2, 3)).facts()
    assert (facts["host.nodes"], facts["host.memory_nodes"]) == ((1,), (1,))


def test_cores_of_one_kind_at_several_speeds_are_none_of_them_efficient(tmp_path: Path) -> None:
    one_kind = msgspec.structs.replace(
        described()["gb10"], capacities={"997": "0-9", "1017": "10-18", "1024": "19"}
    )
    assert not any(cpu.is_efficient for cpu in read_topology(raise_tree(tmp_path, one_kind)).cpus)


def test_e_cores_of_a_kind_of_their_own_are_efficient_too(tmp_path: Path) -> None:
    """Arrow Lake H has a third kind, cpu_lowpower, since Linux 6.13."""
    root = raise_tree(tmp_path, described()["core-ultra-9-185h"])
    write(root, "sys/devices/cpu_atom/cpus", "12-19")
    write(root, "sys/devices/cpu_lowpower/cpus", "20-21")
    efficient = [cpu.id for cpu in read_topology(root).cpus if cpu.is_efficient]
    assert efficient == list(range(12, 22))


def test_this_machine_can_be_read() -> None:
    host = probe()
    assert host.physical_cores >= 1
    assert set(host.limits.allowed_cpus) == {cpu.id for cpu in host.cpus}
    assert len(host.fingerprint()) == 64
