"""The host as this tool sees it is the machine that qemu was told to be."""

from pathlib import Path
from typing import Any

import pytest

from tests.guest.inside.child import in_child
from tests.guest.inside.groups import control_group, enter
from tuner.host.identity import Host, probe
from tuner.host.topology import Cpu

LAST_CPU = Path("/sys/devices/system/cpu/cpu7/online")


@pytest.fixture(scope="module")
def host() -> Host:
    return probe()


def test_the_topology_is_that_of_the_machine(host: Host) -> None:
    assert host.topology.cpus == tuple(
        Cpu(id=i, core=i - i % 2, socket=i // 4, node=i // 4, llc=4 * (i // 4)) for i in range(8)
    )


def test_both_nodes_have_their_cpus_memory_and_distances(host: Host) -> None:
    first, second = host.topology.nodes
    assert (first.id, first.cpus, first.distances) == (0, (0, 1, 2, 3), (10, 21))
    assert (second.id, second.cpus, second.distances) == (1, (4, 5, 6, 7), (21, 10))
    for node in host.topology.nodes:  # 512 MiB less what the kernel keeps for itself
        assert 384 << 20 < node.memory_bytes <= 512 << 20


def test_the_facts_for_search_spaces_are_those_of_two_sockets(host: Host) -> None:
    facts = host.facts()
    expected = {
        "host.arch": "x86_64",
        "host.vendor": "intel",
        "host.logical_cpus": 8,
        "host.cpu_list": "0-7",
        "host.core_list": "0,2,4,6",
        "host.node_core_list": "0,2",
        "host.physical_cores": 4,
        "host.usable_cores": 4,
        "host.sockets": 2,
        "host.numa_nodes": 2,
        "host.nodes": (0, 1),
        "host.cores_per_socket": 2,
        "host.cores_per_node": 2,
        "host.smt": True,
        "host.llc_groups": 2,
        "host.libraries": ("libnuma",),
        "host.cxx": False,
        "host.gpus": 0,
    }
    assert {name: facts[name] for name in expected} == expected
    assert 0.8 < facts["host.memory_gib"] <= 1.0
    assert "avx2" in facts["host.isa"]


def _by_libnuma() -> dict[str, Any]:
    from numa import info

    nodes = range(info.get_max_node() + 1)
    return {
        "nodes": tuple(nodes),
        "cpus": tuple(tuple(info.node_to_cpus(n)) for n in nodes),
        "distances": tuple(tuple(info.numa_distance(n, m) for m in nodes) for n in nodes),
    }


def test_py_libnuma_agrees_about_nodes_cpus_and_distances(host: Host) -> None:
    nodes = host.topology.nodes
    assert in_child(_by_libnuma) == {
        "nodes": tuple(node.id for node in nodes),
        "cpus": tuple(node.cpus for node in nodes),
        "distances": tuple(node.distances for node in nodes),
    }


def _facts_inside(group: Path) -> dict[str, Any]:
    enter(group)
    return probe().facts()


def test_in_a_cpuset_of_one_node_the_other_node_is_not_offered() -> None:
    with control_group("half", cpuset_cpus="4-7", cpuset_mems="1") as group:
        facts = in_child(_facts_inside, group)
    assert facts["host.nodes"] == (1,)
    assert facts["host.cpu_list"] == "4-7"
    assert facts["host.physical_cores"] == 2
    assert facts["host.sockets"] == 1


def test_a_cpu_that_is_offline_is_not_there_and_its_core_is() -> None:
    LAST_CPU.write_text("0")
    try:
        host = probe()
    finally:
        LAST_CPU.write_text("1")
    assert [cpu.id for cpu in host.cpus] == [0, 1, 2, 3, 4, 5, 6]
    assert host.physical_cores == 4
    assert host.topology.nodes[1].cpus == (4, 5, 6)
    assert host.facts()["host.core_list"] == "0,2,4,6"
    assert len(probe().cpus) == 8
