"""Binding happens in a process of its own: libnuma ends the process on a bad argument."""

import os
import subprocess
import sys

import pytest

from tests.wants import needs
from tuner.host.identity import probe

pytestmark = needs("libnuma")


def in_child(code: str, cpus: set[int] | None = None) -> subprocess.CompletedProcess[str]:
    narrow = f"import os; os.sched_setaffinity(0, {cpus}); " if cpus else ""
    return subprocess.run(
        [sys.executable, "-P", "-c", narrow + code], capture_output=True, text=True, check=False
    )


def test_the_kernel_confirms_a_binding() -> None:
    done = in_child(
        "from tuner.host.numa import bind_to_nodes, memory_policy; "
        "print(memory_policy()); bind_to_nodes(0); print(memory_policy()); "
        "import os; print(sorted(os.sched_getaffinity(0)))"
    )
    node_0 = probe().topology.nodes[0]
    expected = sorted(set(node_0.cpus) & os.sched_getaffinity(0))
    assert done.stdout.splitlines() == ["default", "bind:0", str(expected)], done.stderr


def test_binding_never_widens_the_mask() -> None:
    cpu = min(os.sched_getaffinity(0))
    done = in_child(
        "from tuner.host.numa import bind_to_nodes; bind_to_nodes(0); "
        "import os; print(sorted(os.sched_getaffinity(0)))",
        cpus={cpu},
    )
    assert done.stdout.strip() == f"[{cpu}]", done.stderr


@pytest.mark.parametrize("node", [-1, 7, 1000])
def test_a_node_that_is_not_there_is_an_error_and_not_a_crash(node: int) -> None:
    done = in_child(
        "from tuner.host.numa import NumaError, bind_to_nodes\n"
        "try:\n"
        f"    bind_to_nodes({node})\n"
        "except NumaError as error:\n"
        "    print(error)\n"
    )
    assert done.returncode == 0
    assert f"no NUMA node {node}" in done.stdout


@pytest.mark.parametrize("policy", ["interleave:0", "interleave:0,77", "bind:5"])
def test_a_policy_that_cannot_be_is_an_error_and_not_a_crash(policy: str) -> None:
    done = in_child(
        "from tuner.host.numa import NumaError, apply_memory_policy\n"
        "try:\n"
        f"    apply_memory_policy({policy!r})\n"
        "except NumaError as error:\n"
        "    print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "node" in done.stdout


def test_without_a_policy_nothing_changes() -> None:
    done = in_child(
        "from tuner.host.numa import apply_memory_policy, memory_policy; "
        "apply_memory_policy('none'); print(memory_policy())"
    )
    assert done.stdout.strip() == "default", done.stderr
