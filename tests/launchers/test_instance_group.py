"""Several workers as one launch: together from the start to the end."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import MARKER, marked_processes, new_marker, wait_until_gone
from tests.launchers.benches import Fake, Maker, launcher_of, limit_memory
from tests.wants import needs
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.instance_group import InstanceGroup
from tuner.launchers.memory import at_batch
from tuner.launchers.worker_process import WorkerEnded
from tuner.measurement.bench import Bench
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import Built, Compiled, LaunchRecord, Prepared, Purpose
from tuner.record.load import OFFLINE, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import (
    READY,
    TIMED,
    Begin,
    Go,
    Halt,
    Measure,
    Measured,
    Prepare,
    Stage,
    WarmUp,
)
from tuner.record.workload import ModelRef
from tuner.space.launching import LaunchPlan, plan_launch

pytestmark = [needs("two cores"), pytest.mark.usefixtures("real_cpus", "forked")]
TWO: dict[str, Value] = {"launch.instances": 2}
FAKE = ModelRef("fake", str(MODELS / "fake.py"))


@pytest.fixture
def marker() -> Iterator[str]:
    made = new_marker()
    yield made
    assert wait_until_gone(made) == []


def measured(bench: Bench, **settings: Value) -> LaunchRecord:
    chosen = Configuration.of({**TWO, **{k.replace("__", "."): v for k, v in settings.items()}})
    return bench.measure(chosen, Purpose.SEARCH, noise=Scatter(0.02, 0.01))


def test_a_team_is_one_launch_with_a_summed_rate(bench_of: Maker) -> None:
    bench = bench_of(noise=0.001, drift=0, doubling=0.5)
    alone = bench.measure(Configuration(), Purpose.SEARCH, noise=Scatter(0.02, 0.01))
    team = measured(bench)
    assert team.ending is not None
    assert team.ending.outcome is Outcome.MEASURED
    one, both = alone.slices[0], team.slices[0]
    assert len(both.shares) == 2
    assert both.calls == sum(share.calls for share in both.shares)
    assert both.rate == pytest.approx(one.rate * 1.65, rel=0.02)  # exp(0.5)
    # each has half of the rate: a call of the same batch takes longer than alone
    assert one.latency is not None
    assert both.latency is not None
    assert both.latency.p50_s == pytest.approx(one.latency.p50_s * 2 / 1.65, rel=0.02)
    assert both.latency.n_calls == both.calls
    assert not one.shares


def test_where_the_instances_run_is_read_back_from_the_kernel(bench_of: Maker) -> None:
    record = measured(bench_of())
    assert record.prepared is not None
    (item,) = [i for i in record.prepared.read_back if i.knob == "launch.instances"]
    assert (item.requested, item.observed, item.evidence) == (2, 2, "effective")
    host = probe()
    planned = [plan.cpus for plan in plan_launch(Configuration.of(TWO), host)]
    assert record.prepared.cpus == tuple(sorted(cpu for cpus in planned for cpu in cpus or ()))


def test_instances_that_are_not_where_they_belong_are_not_credited(
    fake: Fake, tmp_path: Path, marker: str
) -> None:
    right = plan_launch(Configuration.of(TWO), probe())
    team = InstanceGroup(right, tmp_path / "log", {MARKER: marker})
    try:
        order = Begin(1, FAKE, "fake", 0, TWO, "none", str(fake.reference))
        # as if both had landed on the same CPUs
        team._plans = (right[0], LaunchPlan({}, right[0].cpus, "none", 1, 2))
        assert isinstance(team.ask(order, 30, lambda _: None), Built)
        compiled = team.ask(Prepare(Load(OFFLINE, 4)), 30, lambda _: None)
        assert isinstance(compiled, Compiled)
        prepared = team.ask(WarmUp(), 30, lambda _: None)
        assert isinstance(prepared, Prepared)
        (item,) = [i for i in prepared.read_back if i.knob == "launch.instances"]
        assert not item.in_force
        assert "instance 2 has the CPUs" in str(item.observed)
    finally:
        team.close()


FAULTS = {
    "crash": (Outcome.CRASHED, "instance 2 of 2: killed by SIGSEGV"),
    "exception": (Outcome.CRASHED, "instance 2 of 2: RuntimeError"),
    "memory": (Outcome.OUT_OF_MEMORY, "instance 2 of 2: MemoryError"),
    "exit": (Outcome.CRASHED, "instance 2 of 2: ended with exit code 3"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_fails_ends_all(bench_of: Maker, fault: str) -> None:
    bench = bench_of(faults=f"rank=1:{fault}")
    record = measured(bench)
    assert record.ending is not None
    outcome, reason = FAULTS[fault]
    assert record.ending.outcome is outcome
    assert reason in record.ending.reason
    # the bench goes on
    assert bench.measure(Configuration(), Purpose.SEARCH, noise=Scatter(0.02, 0.01)).slices


def test_one_that_dies_in_a_slice_ends_all(fake: Fake, tmp_path: Path, marker: str) -> None:
    team = InstanceGroup(
        plan_launch(Configuration.of(TWO), probe()), tmp_path / "log", {MARKER: marker}
    )
    try:
        team.ask(Begin(1, FAKE, "fake", 0, TWO, "none", str(fake.reference)), 30, lambda _: None)
        team.ask(Prepare(Load(OFFLINE, 4)), 30, lambda _: None)
        team.ask(WarmUp(), 30, lambda _: None)
        os.kill(team.pids[1], 9)
        with pytest.raises(WorkerEnded, match="instance 2 of 2: killed by SIGKILL"):
            team.ask(Measure(0, 0.2, 1), 30, lambda _: None)
    finally:
        team.close()
    assert marked_processes(marker) == []


def test_an_idle_team_runs_on_no_cpu(tmp_path: Path, marker: str) -> None:
    team = InstanceGroup(
        plan_launch(Configuration.of(TWO), probe()), tmp_path / "log", {MARKER: marker}
    )
    try:
        team.pause()
        for pid in team.pids:
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        team.resume()
    finally:
        team.close()


def test_an_instance_begins_when_told_and_works_until_all_have_ended(
    fake: Fake, tmp_path: Path, marker: str
) -> None:
    """The worker's side of a slice in company, the tool's part played by hand."""
    plan = plan_launch(Configuration.of(TWO), probe())[0]
    team = InstanceGroup([plan], tmp_path / "log", {MARKER: marker})
    worker = team._members[0]
    try:
        team.ask(Begin(1, FAKE, "fake", 0, {}, "none", str(fake.reference)), 30, lambda _: None)
        team.ask(Prepare(Load(OFFLINE, 4)), 30, lambda _: None)
        team.ask(WarmUp(), 30, lambda _: None)
        worker.send(Measure(3, 0.2, 1, in_team=True))
        assert worker.receive(10) == Stage(READY)
        begins = time.monotonic() + 0.3
        worker.send(Go(begins))
        assert worker.receive(10) == Stage(TIMED)
        assert time.monotonic() >= begins

        def used_s() -> float:
            fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
            return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

        before = used_s()
        deadline = time.monotonic() + 30
        while used_s() < before + 0.1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert used_s() >= before + 0.1  # it works on, untimed
        worker.send(Halt())
        answer = worker.receive(10)
        assert isinstance(answer, Measured)
        assert answer.slice.index == 3
        assert len(answer.slice.call_s) == answer.slice.calls
    finally:
        team.close()


def test_a_team_too_large_for_the_memory_is_not_started(bench_of: Maker) -> None:
    bench = bench_of()
    bench.measure(Configuration(), Purpose.SEARCH, noise=Scatter(0.02, 0.01))
    prepared = next(r.prepared for r in bench.store.launches.values() if r.prepared)
    limit_memory(bench, 1.5 * prepared.memory_peak_bytes)
    record = measured(bench)
    assert record.ending is not None
    assert record.ending.outcome is Outcome.NOT_APPLICABLE
    assert "not started: 2 instances of about 0.0" in record.ending.reason
    assert record.built is None


@pytest.mark.parametrize(
    ("batch", "bytes_of", "wanted"),
    [
        (64, {4: 100.0}, 100.0),  # one is all that is known
        (8, {4: 100.0, 16: 220.0}, 140.0),
        (16, {4: 100.0, 16: 220.0}, 220.0),
        (64, {4: 100.0, 16: 220.0}, 700.0),
        (1, {4: 100.0, 16: 220.0}, 100.0),  # the model itself is there in any case
        (12, {4: 100.0, 8: 100.0, 16: 200.0}, 150.0),
    ],
)
def test_what_an_instance_takes_follows_the_batches_looked_at(
    batch: int, bytes_of: dict[int, float], wanted: float
) -> None:
    assert at_batch(batch, bytes_of) == wanted


def test_a_teams_memory_is_reckoned_from_what_is_most_like_it(bench_of: Maker) -> None:
    bench = bench_of()
    noise = Scatter(0.02, 0.01)
    chosen: list[dict[str, Value]] = [{}, {"workload.batch": 16}, {**TWO, "fake.streams": 2}]
    _, large, team = (
        bench.measure(Configuration.of(settings), Purpose.SEARCH, noise=noise).prepared
        for settings in chosen
    )
    assert large and team
    alike = launcher_of(bench).memory.alike
    found = alike(Configuration())  # the pacer is a default as well
    assert found.keys() == {4, 16}
    assert found[16] == (1, large)
    streams = Configuration.of({"fake.streams": 2, "workload.batch": 16})
    assert alike(streams) == {4: (2, team), 16: (1, large)}
