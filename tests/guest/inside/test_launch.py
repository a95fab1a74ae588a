"""Launches of the fake framework, by the worker's account and by the kernel's.

One process on one node, and a team of two, each on a node of its own.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.host.numa import policy_of
from tuner.launchers.describe import make_reference
from tuner.launchers.instance_group import InstanceGroup
from tuner.launchers.worker_process import WorkerProcess
from tuner.record.configuration import Configuration
from tuner.record.launch import Built, Compiled, Prepared, ReadBack
from tuner.record.load import OFFLINE, Load
from tuner.record.protocol import (
    Begin,
    Command,
    Measure,
    Measured,
    Prepare,
    Reply,
    Stage,
    WarmUp,
)
from tuner.record.workload import ModelRef
from tuner.space.launching import LaunchPlan, plan_launch

FAKE = ModelRef("fake", str(MODELS / "fake.py"))
ON_NODE_1 = Configuration.of({"launch.numa_node": 1})
A_TEAM = Configuration.of({"launch.instances": 2, "launch.memory_policy": "bind"})
TIMEOUT_S = 120.0  # under emulation an import takes seconds


def ask(worker: WorkerProcess, command: Command) -> Reply:
    worker.send(command)
    while isinstance(reply := worker.receive(TIMEOUT_S), Stage):
        pass
    return reply


@pytest.fixture(scope="module")
def plan() -> LaunchPlan:
    (only,) = plan_launch(ON_NODE_1, probe())
    return only


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("launch") / "fake.npz"
    make_reference(FAKE, "fake", 0, path, 4)
    return path


@pytest.fixture(scope="module")
def worker(plan: LaunchPlan, reference: Path) -> Iterator[WorkerProcess]:
    """One process, begun with the settings and not yet prepared."""
    started = WorkerProcess(plan, reference.with_name("worker.log"), {})
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
    compiled = ask(worker, Prepare(Load(OFFLINE, 4)))
    assert isinstance(compiled, Compiled), compiled
    prepared = ask(worker, WarmUp())
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


@pytest.fixture(scope="module")
def team(reference: Path) -> Iterator[InstanceGroup]:
    """Two instances, begun and not yet prepared."""
    started = InstanceGroup(plan_launch(A_TEAM, probe()), reference.with_name("team.log"), {})
    try:
        order = Begin(2, FAKE, "fake", 0, A_TEAM.as_dict(), "none", str(reference))
        begun = started.ask(order, TIMEOUT_S, lambda _: None)
        assert isinstance(begun, Built), begun
        yield started
    finally:
        started.close()


def test_the_instances_read_back_their_cpus_and_memory(team: InstanceGroup) -> None:
    compiled = team.ask(Prepare(Load(OFFLINE, 4)), TIMEOUT_S, lambda _: None)
    assert isinstance(compiled, Compiled), compiled
    prepared = team.ask(WarmUp(), TIMEOUT_S, lambda _: None)
    assert isinstance(prepared, Prepared), prepared
    read_back = {item.knob: item for item in prepared.read_back}
    for knob, value in A_TEAM.settings:
        assert (read_back[knob].observed, read_back[knob].evidence) == (value, "effective")
    assert prepared.cpus == tuple(range(8))


def test_the_instances_are_measured_together(team: InstanceGroup) -> None:
    measured = team.ask(Measure(0, 0.2, 1), TIMEOUT_S, lambda _: None)
    assert isinstance(measured, Measured), measured
    taken = measured.slice
    assert [share.calls > 0 for share in taken.shares] == [True, True]
    assert taken.rate == pytest.approx(sum(s.calls * 4 / s.seconds for s in taken.shares))
    assert taken.latency is not None
    assert taken.latency.n_calls == taken.calls


@pytest.mark.parametrize("rank", [0, 1])
def test_the_kernel_shows_each_instance_on_its_node(team: InstanceGroup, rank: int) -> None:
    pid = team.pids[rank]
    assert os.sched_getaffinity(pid) == set(range(4 * rank, 4 * rank + 4))
    assert policy_of(pid) == f"bind:{rank}"
    pages = anonymous_pages(pid)
    assert pages[rank] > 0.95 * sum(pages.values())
