"""A launch of the fake framework on one node, by the worker's account and by the kernel's.

The launch of several instances, each on a node of its own, belongs here as well.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.host.numa import policy_of
from tuner.measurement.describe import make_reference
from tuner.measurement.process import WorkerProcess
from tuner.record.configuration import Configuration
from tuner.record.launch import Built, Prepared, ReadBack
from tuner.record.protocol import Begin, Command, Measure, Measured, Prepare, Reply, Stage
from tuner.record.workload import ModelRef
from tuner.space.launching import LaunchPlan, plan_launch

FAKE = ModelRef("fake", str(MODELS / "fake.py"))
ON_NODE_1 = Configuration.of({"launch.numa_node": 1})
TIMEOUT_S = 120.0  # under emulation an import takes seconds


def ask(worker: WorkerProcess, command: Command) -> Reply:
    worker.send(command)
    while isinstance(reply := worker.receive(TIMEOUT_S), Stage):
        pass
    return reply


@pytest.fixture(scope="module")
def plan() -> LaunchPlan:
    return plan_launch(ON_NODE_1, probe())


@pytest.fixture(scope="module")
def worker(plan: LaunchPlan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One instance, begun with the settings and not yet prepared."""
    folder = tmp_path_factory.mktemp("launch")
    reference = folder / "fake.npz"
    make_reference(FAKE, "fake", 0, reference, 4)
    started = WorkerProcess(plan, folder / "worker.log", {})
    try:
        order = Begin(1, FAKE, "fake", 0, ON_NODE_1.as_dict(), plan.memory_policy, str(reference))
        begun = ask(started, order)
        assert isinstance(begun, Built), begun
        yield started
    finally:
        started.close()


def anonymous_pages(pid: int) -> Counter[int]:
    """Count a process's own pages by node."""
    counts: Counter[int] = Counter()
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        words = line.split()
        if any(word.startswith("anon=") for word in words):
            for word in words:
                if word[0] == "N" and "=" in word:
                    node, pages = word[1:].split("=")
                    counts[int(node)] += int(pages)
    return counts


def test_the_plan_is_the_nodes_cpus_and_its_memory(plan: LaunchPlan) -> None:
    assert plan == LaunchPlan({}, (4, 5, 6, 7), "bind:1")


def test_the_worker_reads_back_its_node_from_the_kernel(worker: WorkerProcess) -> None:
    prepared = ask(worker, Prepare(4))
    assert isinstance(prepared, Prepared), prepared
    read_back = {item.knob: item for item in prepared.read_back}
    assert read_back["launch.numa_node"] == ReadBack(
        "launch.numa_node", 1, 1, "effective", "get_mempolicy(2)"
    )
    measured = ask(worker, Measure(0, 0.2, 1))
    assert isinstance(measured, Measured), measured
    assert measured.slice.calls > 0


def test_the_kernel_shows_the_worker_on_the_node(worker: WorkerProcess) -> None:
    assert os.sched_getaffinity(worker.pid) == {4, 5, 6, 7}
    assert policy_of(worker.pid) == "bind:1"
    pages = anonymous_pages(worker.pid)
    assert pages[1] > 0.95 * sum(pages.values())  # a few came from its parent's node by fork
