"""Where torch.backends.xeon.run_cpu (torch 2.13) misreads a machine, this tool must not.

One test for each of its defects that topology, mask, environment or libraries decide. Those of its
launching (exit status 0 of a failed script, no instance at all on two cores, a missing allocator, a
variable that is already set) are in tests/deploy/test_team.py and tests/space/test_baselines.py.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.machine import described, write
from tuner.host.environment import untuned
from tuner.host.identity import Host, probe
from tuner.host.libraries import find_libraries, library_folders
from tuner.host.topology import parse_cpu_list, read_topology

Tree = Callable[[str], Path]
Hosts = Callable[[str], Host]
MACHINES = described()


@pytest.fixture(scope="module")
def host_of(tree: Tree) -> Hosts:
    return lambda name: probe(tree(name), allowed=MACHINES[name].allowed)


def test_core_ids_are_not_taken_for_cpu_ids(host_of: Hosts) -> None:
    # run_cpu pins to lscpu's core ids: with adjacent siblings its "first four cores" are the CPUs
    # 0 to 3, which are two cores.
    host = host_of("xeon-vm-2s-adjacent")
    first_four = parse_cpu_list(host.facts()["host.core_list"])[:4]
    assert first_four == (0, 2, 4, 6)
    assert len({cpu.core for cpu in host.cpus if cpu.id in first_four}) == 4


@pytest.mark.parametrize("name", ["xeon-8180m-2s", "epyc-7451-2s", "core-i7-1370p"])
def test_core_ids_with_gaps_name_no_cpu_that_is_not_there(name: str, host_of: Hosts) -> None:
    # run_cpu meets core ids such as 8 and 9 on a machine without CPUs 8 and 9, and pins to those.
    host = host_of(name)
    cores = parse_cpu_list(host.facts()["host.core_list"])
    assert set(cores) <= set(MACHINES[name].online)
    assert len(cores) == host.physical_cores


def test_core_ids_that_repeat_in_each_socket_are_different_cores(host_of: Hosts) -> None:
    # The kernel's core_id starts anew in each package: taken alone it halves this machine.
    host = host_of("xeon-gold-6248-4s")
    assert host.physical_cores == 80


def test_the_mask_given_is_never_escaped(tree: Tree) -> None:
    # `taskset -c 1 run_cpu` starts its child on CPUs 0 and 1 with OMP_NUM_THREADS=2: it reads lscpu
    # and never its own mask.
    facts = probe(tree("xeon-8180m-2s"), allowed=(1,)).facts()
    assert [facts[f"host.{n}"] for n in ("cpu_list", "core_list", "node_core_list")] == ["1"] * 3
    assert (facts["host.physical_cores"], facts["host.logical_cpus"]) == (1, 1)


@pytest.mark.usefixtures("real_cpus")
def test_the_mask_of_this_very_process_is_never_escaped() -> None:
    one = max(os.sched_getaffinity(0))
    script = (
        f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        "from tuner.host.identity import probe\n"
        "print(probe().facts()['host.cpu_list'])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(one)


@pytest.mark.parametrize("name", ["opteron-4s-sparse-nodes", "xeon-max-9468-2s-snc4-flat"])
def test_node_ids_of_two_digits(name: str, tree: Tree) -> None:
    # run_cpu keeps one digit of a node's id: of twelve nodes it sees ten.
    machine = MACHINES[name]
    nodes = read_topology(tree(name)).nodes
    assert [node.id for node in nodes] == [node.id for node in machine.nodes]
    assert len(nodes[-1].distances) == len(nodes)


def test_an_empty_node_column_is_one_node(host_of: Hosts) -> None:
    # run_cpu ends with ValueError: int('') where lscpu leaves a CPU's NODE column empty.
    host = host_of("snapdragon-8-gen-2")  # a kernel without NUMA
    assert {cpu.node for cpu in host.cpus} == {0}
    assert host.facts()["host.nodes"] == (0,)


@pytest.mark.parametrize("name", ["xeon-x7550-4s", "xeon-2680v3-2s-offline-node"])
def test_cpus_that_no_node_lists_count_with_the_first_node(name: str, host_of: Hosts) -> None:
    # The same ValueError, where only some of the CPUs have no node.
    host = host_of(name)
    assert {cpu.node for cpu in host.cpus} == {MACHINES[name].nodes[0].id}


def test_a_container_on_node_1_is_not_asked_for_node_0(host_of: Hosts) -> None:
    # run_cpu tries numactl with CPU 0 and node 0; in a container on another node that fails, and it
    # binds no memory at all (pytorch/pytorch#131011).
    facts = host_of("container-cpuset-on-node-1").facts()
    assert (facts["host.nodes"], facts["host.memory_nodes"]) == ((1,), (1,))
    assert facts["host.node_core_list"] == "30-33"


def test_a_containers_share_is_not_the_whole_machine(host_of: Hosts) -> None:
    # run_cpu counts the host's CPUs inside a cgroup, whatever share of them is granted
    # (pytorch/pytorch#154503): 56 threads under a quota of 2.5 cores.
    host = host_of("container-cpuset-on-node-1")
    assert host.limits.quota_cores == 2.5
    assert (host.usable_cores, host.physical_cores, len(host.topology.cpus)) == (2, 4, 112)


def test_two_cores_with_half_a_core_of_quota_still_hold_one_thread(host_of: Hosts) -> None:
    # run_cpu --latency-mode divides by its fixed 4 cores: on two it computes no instance, starts
    # nothing and exits 0. What a configuration is built from here is never 0.
    host = host_of("pod-half-a-core-v1")
    assert host.usable_cores == 1
    counts = ("cores_per_socket", "cores_per_node", "cores_per_llc", "performance_cores")
    assert all(host.facts()[f"host.{name}"] == 2 for name in counts)


def test_an_offline_cpu_is_never_pinned_to(host_of: Hosts) -> None:
    # lscpu lists offline CPUs with empty columns, which end run_cpu like an empty node does.
    host = host_of("xeon-4s-offline-threads")
    assert not {2, 5, 13, 14} & set(parse_cpu_list(host.facts()["host.core_list"]))


def test_debians_folder_of_allocators_is_searched(tmp_path: Path) -> None:
    # run_cpu searches no multiarch folder: on Debian tcmalloc is installed, not found, and left out
    # with a warning, so that the arm measures the default allocator.
    folder = library_folders(tmp_path)[1]
    assert folder.parent == tmp_path / "usr/lib"
    write(tmp_path, f"{folder.relative_to(tmp_path)}/libtcmalloc_minimal.so.4", "")
    assert "tcmalloc" in find_libraries(library_folders(tmp_path))


def test_a_thread_count_left_in_the_shell_does_not_win() -> None:
    # run_cpu keeps an OMP_NUM_THREADS that is already set, and so measures another configuration.
    assert untuned({"OMP_NUM_THREADS": "7", "HOME": "/"}) == {"HOME": "/"}
