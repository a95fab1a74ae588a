"""A binding to a node is what the kernel says afterwards; what cannot be bound is an error."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guest.inside.child import in_child
from tests.guest.inside.groups import control_group, enter
from tuner.host.numa import NumaError, apply_memory_policy, bind_to_nodes, interleave, memory_policy

NODE_CPUS = {0: {0, 1, 2, 3}, 1: {4, 5, 6, 7}}
LAST_CPU = Path("/sys/devices/system/cpu/cpu7/online")

Placement = tuple[set[int], str]


def _placed(apply: Callable[[], None]) -> Placement:
    apply()
    return os.sched_getaffinity(0), memory_policy()


def _bound(node: int, cpus: set[int] | None = None, group: Path | None = None) -> Placement:
    if group:
        enter(group)
    if cpus:
        os.sched_setaffinity(0, cpus)
    return _placed(lambda: bind_to_nodes(node))


@pytest.mark.parametrize("node", [0, 1])
def test_a_process_is_bound_to_a_nodes_cpus_and_memory(node: int) -> None:
    assert in_child(_bound, node) == (NODE_CPUS[node], f"bind:{node}")


def test_a_mask_is_narrowed_to_the_node_and_never_widened() -> None:
    assert in_child(_bound, 1, cpus={3, 5, 6}) == ({5, 6}, "bind:1")


def test_a_node_with_an_offline_cpu_is_bound_to_the_others() -> None:
    LAST_CPU.write_text("0")
    try:
        assert in_child(_bound, 1) == ({4, 5, 6}, "bind:1")
    finally:
        LAST_CPU.write_text("1")


def test_a_node_with_none_of_the_allowed_cpus_is_an_error() -> None:
    with pytest.raises(NumaError, match="none of the allowed CPUs"):
        in_child(_bound, 1, cpus={0, 1})


@pytest.mark.parametrize("node", [-1, 2, 1000])
def test_a_node_that_is_not_there_is_an_error_and_not_a_crash(node: int) -> None:
    with pytest.raises(NumaError, match=r"no NUMA node .* only \[0, 1\]"):
        in_child(_bound, node)


@pytest.mark.parametrize("nodes", [[], [1], [0, 2], [-1, 0]])
def test_nodes_that_cannot_be_interleaved_are_an_error_and_not_a_crash(nodes: list[int]) -> None:
    with pytest.raises(NumaError, match="cannot interleave"):
        in_child(interleave, nodes)


def test_a_node_outside_the_cpuset_is_an_error_and_not_a_crash() -> None:
    with control_group("half", cpuset_cpus="4-7", cpuset_mems="1") as group:
        with pytest.raises(NumaError, match="outside this process's cpuset"):
            in_child(_bound, 0, group=group)
        assert in_child(_bound, 1, group=group) == (NODE_CPUS[1], "bind:1")


def test_all_cpus_stay_where_memory_is_interleaved() -> None:
    found = in_child(_placed, lambda: apply_memory_policy("interleave:0,1"))
    assert found == (set(range(8)), "interleave:0,1")
