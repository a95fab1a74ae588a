"""What the tool says of real machines: topologies/ has each one and the right answers beside it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.host.machine import described, expand, raise_tree
from tuner.host.identity import HOST_FACTS, probe
from tuner.host.topology import parse_cpu_list

Tree = Callable[[str], Path]
MACHINES = described()
# Every description answers these; the others are not about topology.
ANSWERED = {
    "sockets", "physical_cores", "performance_cores", "usable_cores", "logical_cpus", "smt",
    "numa_nodes", "nodes", "memory_nodes", "llc_groups", "cores_per_socket", "cores_per_node",
    "cores_per_llc", "core_list", "node_core_list",
}  # fmt: skip


def facts_of(root: Path, allowed: tuple[int, ...]) -> dict[str, Any]:
    facts = probe(root, allowed=allowed).facts()
    return {name.removeprefix("host."): value for name, value in facts.items()}


@pytest.mark.parametrize("name", MACHINES)
def test_a_real_machine_is_read_as_it_is(name: str, tree: Tree) -> None:
    machine = MACHINES[name]
    facts = facts_of(tree(name), machine.allowed)
    wanted = dict(machine.golden)
    for cores in ("core_list", "node_core_list"):
        assert parse_cpu_list(facts.pop(cores)) == expand(wanted.pop(cores)), cores
    found = {key: facts[key] for key in wanted}
    assert found == {k: tuple(v) if isinstance(v, list) else v for k, v in wanted.items()}


@pytest.mark.parametrize("name", MACHINES)
def test_a_real_machines_cpus_are_all_somewhere_and_no_cpu_is_invented(
    name: str, tree: Tree
) -> None:
    machine = MACHINES[name]
    host = probe(tree(name), allowed=machine.allowed)
    ids = {cpu.id for cpu in host.cpus}
    assert ids == set(machine.allowed)
    assert {cpu.core for cpu in host.topology.cpus} <= set(machine.online)
    assert {cpu.node for cpu in host.cpus} <= {node.id for node in host.topology.nodes}
    facts = host.facts()
    for cores in ("host.core_list", "host.node_core_list"):
        assert set(parse_cpu_list(facts[cores])) <= ids


def test_every_description_answers_the_same_questions() -> None:
    assert {f"host.{name}" for name in ANSWERED} <= set(HOST_FACTS)
    for name, machine in MACHINES.items():
        assert machine.golden.keys() == ANSWERED, name
        assert machine.source, name


def test_a_mask_that_leaves_more_of_one_node_than_of_the_next_counts_the_smaller(
    tree: Tree,
) -> None:
    """Four cores of node 0 and two of node 1: what both can hold is two, not their average."""
    facts = facts_of(tree("xeon-8180m-2s"), (0, 1, 2, 3, 28, 29, 56, 84))
    assert (facts["cores_per_socket"], facts["cores_per_node"], facts["cores_per_llc"]) == (2, 2, 2)
    assert (facts["physical_cores"], facts["logical_cpus"]) == (6, 8)
    assert facts["node_core_list"] == "0-3"


def test_a_mask_of_efficient_cores_alone_leaves_them_to_work_with(tree: Tree) -> None:
    facts = facts_of(tree("core-i7-1370p"), tuple(range(12, 20)))
    assert (facts["physical_cores"], facts["performance_cores"], facts["smt"]) == (8, 8, False)


def test_a_cpuset_without_memory_beside_its_cpus_still_has_a_node_to_name(tmp_path: Path) -> None:
    """CPUs of node 1, memory of node 0: nothing can be bound, and formulas must not fail."""
    remote = msgspec.structs.replace(MACHINES["xeon-8180m-2s"], mems_allowed="0")
    facts = facts_of(raise_tree(tmp_path, remote), (28, 29, 30, 31))
    assert (facts["nodes"], facts["memory_nodes"], facts["numa_nodes"]) == ((1,), (0,), 1)
    assert facts["node_core_list"] == "28-31"


def test_cpus_of_a_node_without_memory_still_have_a_node_to_name(tree: Tree) -> None:
    facts = facts_of(tree("epyc-7601-2s-two-nodes-populated"), tuple(range(8, 16)))
    assert (facts["nodes"], facts["memory_nodes"]) == ((1,), (0, 4))


def test_high_bandwidth_memory_outside_the_cpuset_is_no_memory_node(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(MACHINES["xeon-max-9470c-2s-flat"], mems_allowed="0-1")
    facts = facts_of(raise_tree(tmp_path, machine), machine.allowed)
    assert facts["memory_nodes"] == (0, 1)


def test_384_cpus_are_read_with_each_file_opened_once(tree: Tree) -> None:
    """What is slow about /sys is opening its files: no more of them than the CPUs have."""
    script = (
        "import sys\n"
        "from collections import Counter\n"
        "from pathlib import Path\n"
        "from tuner.host.topology import read_topology\n"
        "root, opened = sys.argv[1], Counter()\n"
        "sys.addaudithook(lambda event, args: opened.update([str(args[0])])\n"
        "                 if event == 'open' and str(args[0]).startswith(root) else None)\n"
        "n = len(read_topology(Path(root)).cpus)\n"
        "print(n, max(opened.values()), len(opened))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(tree("epyc-9654-2s"))],
        capture_output=True,
        text=True,
        check=True,
    )
    n_cpus, times, n_files = map(int, done.stdout.split())
    assert (n_cpus, times) == (384, 1)
    assert n_files <= 12 * n_cpus
