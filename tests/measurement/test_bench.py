"""Launches of the fake framework on the real bench: every outcome with its reason."""

import math
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.launchers.benches import Maker, launcher_of, limit_memory, pids_of
from tests.wants import needs
from tuner.errors import StorageFailed
from tuner.launchers.instance_group import InstanceGroup
from tuner.measurement.bench import Bench
from tuner.measurement.replication import CONFIRM, SEARCH, Scatter
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Event, LaunchDone
from tuner.record.journal import Started
from tuner.record.launch import Interference, LaunchRecord, LaunchRequest, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Command, Measure
from tuner.record.store import LaunchFile, Store

NOISE = Scatter(0.02, 0.01)


def measured(bench: Bench, **settings: Value) -> LaunchRecord:
    chosen = Configuration.of({k.replace("__", "."): v for k, v in settings.items()})
    return bench.measure(chosen, Purpose.SEARCH, noise=NOISE)


def test_a_launch_has_its_slices_between_those_of_the_pacer(bench_of: Maker) -> None:
    bench = bench_of()
    record = measured(bench, fake__layout="packed")
    assert record.ending is not None
    assert record.ending.outcome is Outcome.MEASURED
    assert len(record.slices) >= SEARCH.least
    assert all(s.seconds >= 0.2 and s.calls >= 1 for s in record.slices)
    pacer = bench.store.launches[record.request.pacer_block]
    assert pacer.request.purpose is Purpose.PACER
    order = sorted([(s.at, "arm") for s in record.slices] + [(s.at, "pacer") for s in pacer.slices])
    names = [name for _, name in order]
    assert names == ["pacer", *["arm", "pacer"] * len(record.slices)]


def test_a_launch_that_outlasts_the_budget_takes_one_slice_and_no_pacers(bench_of: Maker) -> None:
    """It is measured once it has begun; what more slices would tell is not worth the excess."""
    record = measured(bench_of(seconds_left=0.0), fake__layout="packed")
    assert record.ending is not None
    assert record.ending.outcome is Outcome.MEASURED
    assert len(record.slices) == 1


def test_outputs_are_checked_once_and_after_the_last_slice(bench_of: Maker) -> None:
    bench = bench_of()
    first = measured(bench, fake__precision="bf16")
    again = measured(bench, fake__precision="bf16")
    assert first.check is not None
    assert first.check.n_inputs == 128
    assert 1e-4 < first.check.drift < 5e-2
    assert first.check.top1_agreement == 1.0
    assert again.check is None
    lines = bench.store.log_of(first.request.id).with_suffix(".jsonl").read_text()
    assert lines.index('"checked"') > lines.rindex('"slice"')


def test_outputs_that_an_earlier_session_checked_are_not_checked_again(bench_of: Maker) -> None:
    bench = bench_of()
    first = measured(bench, fake__precision="bf16")
    bench.close()
    bench.store.close()
    resumed = bench_of(folder=bench.store.folder)
    again = measured(resumed, fake__precision="bf16")
    other = measured(resumed, fake__layout="packed")
    assert [r.check is not None for r in (first, again, other)] == [True, False, True]


FAULTS = {
    "crash": (Outcome.CRASHED, "SIGSEGV"),
    "exit": (Outcome.CRASHED, "exit code 3"),
    "exception": (Outcome.CRASHED, "told to fail"),
    "memory": (Outcome.OUT_OF_MEMORY, "MemoryError"),
    "wrong_output": (Outcome.WRONG_OUTPUT, "drift"),
    "nan": (Outcome.WRONG_OUTPUT, "outputs are not finite, or of another number or shape"),
    "misshapen": (Outcome.WRONG_OUTPUT, "outputs are not finite, or of another number or shape"),
    "ignored": (Outcome.NOT_APPLICABLE, "fake.layout=packed is not in force: plain"),
    "garbage": (Outcome.MEASURED, ""),
    "daemon": (Outcome.MEASURED, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_outcome_with_its_reason(bench_of: Maker, fault: str) -> None:
    bench = bench_of(faults=f"fake.layout=packed:{fault}")
    record = measured(bench, fake__layout="packed")
    outcome, reason = FAULTS[fault]
    assert record.ending is not None
    assert record.ending.outcome is outcome
    assert reason in record.ending.reason
    after = measured(bench, fake__layout="blocked")
    assert after.ending is not None
    assert after.ending.outcome is Outcome.MEASURED


@pytest.mark.parametrize("fault", ["hang", "hang_in_call"])
def test_a_hang_is_timed_out(bench_of: Maker, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.launchers import processes as module
    from tuner.launchers.process_launch import Timeouts

    bench = bench_of(faults=f"env.FAKE_THREADS=8:{fault}")
    bench.pacer.block()
    monkeypatch.setattr(module, "Timeouts", lambda *_: Timeouts(1.0, 1.0, 1.0))
    record = measured(bench, env__FAKE_THREADS=8)
    assert record.ending is not None
    assert record.ending.outcome is Outcome.TIMED_OUT


def test_every_launch_begins_its_stack_elsewhere(bench_of: Maker, started: None) -> None:
    bench = bench_of()
    bench.pacer.block()
    (pacer,) = launcher_of(bench).running
    pid = pids_of(pacer)[0]
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    padding = next(v for v in variables if v.startswith(b"TUNE_FRAMEWORK_PADDING="))
    assert len(padding.partition(b"=")[2]) == pacer.record.request.padding_bytes
    lengths = [measured(bench, fake__streams=2).request.padding_bytes for _ in range(3)]
    assert len({*lengths, pacer.record.request.padding_bytes}) == 4


def test_slices_go_on_where_they_scatter_more_than_launches_do(bench_of: Maker) -> None:
    bench = bench_of(noise=0.3)
    arm = Configuration.of({"fake.streams": 2})
    few = bench.measure(arm, Purpose.SEARCH, noise=Scatter(100.0, 0.01))
    many = bench.measure(arm, Purpose.SEARCH, noise=Scatter(1e-6, 0.01))
    assert len(few.slices) < len(many.slices)
    assert len(many.slices) >= SEARCH.most


def test_a_hopeless_proposal_is_pruned_after_one_slice(bench_of: Maker) -> None:
    bench = bench_of()
    record = bench.measure(Configuration.of({"fake.streams": 2}), Purpose.SEARCH, noise=NOISE,
                           hopeless_below=math.log(1e9))  # fmt: skip
    assert record.ending is not None
    assert record.ending.outcome is Outcome.PRUNED
    assert len(record.slices) == 1
    assert record.check is None


@needs("jemalloc")
def test_a_real_preload_is_in_force_and_a_missing_one_is_not_applicable(bench_of: Maker) -> None:
    bench = bench_of()
    record = measured(bench, launch__allocator="jemalloc")
    assert record.prepared is not None
    seen = {item.knob: item for item in record.prepared.read_back}
    assert seen["launch.allocator"].observed == "jemalloc"
    assert seen["launch.allocator"].evidence == "effective"
    launcher_of(bench).host.libraries["jemalloc"] = "/nowhere/libjemalloc.so.2"
    gone = measured(bench, launch__allocator="jemalloc")
    assert gone.ending is not None
    assert gone.ending.outcome is Outcome.NOT_APPLICABLE
    assert "glibc" in gone.ending.reason


def test_in_a_round_all_are_resident_and_each_pass_visits_every_arm(bench_of: Maker) -> None:
    bench = bench_of()
    arms = [Configuration(), Configuration.of({"fake.layout": "packed"}),
            Configuration.of({"fake.streams": 2})]  # fmt: skip
    for arm in arms:
        bench.measure(arm, Purpose.SEARCH, noise=NOISE)
    bench.pacer.retire()
    records = bench.measure_round(arms, 1, Purpose.CONFIRM, noise=NOISE)
    assert [r.request.configuration for r in records] == arms
    n = len(records[0].slices)
    assert n >= CONFIRM.least
    order = sorted((s.at, i) for i, r in enumerate(records) for s in r.slices)
    for k in range(n):
        assert {i for _, i in order[3 * k : 3 * k + 3]} == {0, 1, 2}


def test_arms_that_do_not_fit_in_memory_take_turns(
    bench_of: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.launchers import memory as module

    bench = bench_of()
    arms = [Configuration(), Configuration.of({"fake.streams": 2})]
    for arm in arms:
        bench.measure(arm, Purpose.SEARCH, noise=NOISE)
    bench.pacer.retire()
    monkeypatch.setattr(module, "RESIDENT_SHARE", 0.0)
    records = bench.measure_round(arms, 1, Purpose.CONFIRM, noise=NOISE)
    spans = sorted((r.slices[0].at, r.slices[-1].at) for r in records)
    assert spans[0][1] < spans[1][0]


def test_a_process_too_large_for_the_memory_is_not_started(bench_of: Maker) -> None:
    bench = bench_of()
    for batch in (4, 16):
        at_batch = Configuration.of({"workload.batch": batch})
        assert bench.measure(at_batch, Purpose.SEARCH, noise=NOISE).prepared is not None
    limit_memory(bench, 0.0)
    again = bench.measure(at_batch, Purpose.SEARCH, noise=NOISE)
    assert again.ending is not None
    assert again.ending.outcome is Outcome.MEASURED  # it ran before: whatever the limit says
    larger = Configuration.of({"workload.batch": 64})
    monster = bench.store.launches[again.request.id]  # as a model whose activations are large
    assert monster.prepared is not None
    monster.prepared = msgspec.structs.replace(monster.prepared, memory_peak_bytes=1 << 32)
    refused = bench.measure(larger, Purpose.SEARCH, noise=NOISE)
    assert refused.ending is not None
    assert refused.ending.outcome is Outcome.NOT_APPLICABLE
    assert re.match("not started: a process of at least 1[0-9]", refused.ending.reason)
    assert refused.built is None
    other = Configuration.of({"workload.batch": 64, "fake.layout": "blocked"})
    free = bench.measure(other, Purpose.SEARCH, noise=NOISE)
    assert free.ending is not None
    assert free.ending.outcome is Outcome.MEASURED  # nothing is known of these settings


def test_what_ran_out_of_memory_is_not_started_with_a_larger_batch(bench_of: Maker) -> None:
    bench = bench_of(faults="fake.layout=packed:memory")
    bench.measure(Configuration(), Purpose.SEARCH, noise=NOISE)
    for batch, started in ((16, True), (4, True), (16, False), (64, False)):
        settings = Configuration.of({"fake.layout": "packed", "workload.batch": batch})
        record = bench.measure(settings, Purpose.SEARCH, noise=NOISE)
        assert record.ending is not None
        outcome = Outcome.OUT_OF_MEMORY if started else Outcome.NOT_APPLICABLE
        assert record.ending.outcome is outcome, record.ending
    refused = record.ending
    assert refused is not None
    assert "ran out of memory at batch 4 already, and this is batch 64" in refused.reason


def test_a_round_may_end_beside_a_neighbour(bench_of: Maker) -> None:
    bench = bench_of(faults="fake.layout=packed:crash")
    arms = [Configuration(), Configuration.of({"fake.streams": 2}),
            Configuration.of({"fake.layout": "packed"})]  # fmt: skip
    bench.measure(arms[0], Purpose.SEARCH, noise=NOISE)
    bench.pacer.retire()
    records = bench.measure_round(arms, 1, Purpose.CONFIRM, noise=NOISE, beside_neighbour=True)
    for record in records[:2]:
        assert record.ending == Ending(Outcome.MEASURED)
        assert len(record.slices) >= CONFIRM.least
        (beside,) = record.contended
        assert beside.at > record.slices[-1].at
        assert record.n_neighbours == max(1, len(launcher_of(bench).host.cpus) // 2)
    assert records[2].contended == []
    indices = [s.index for r in bench.store.launches.values() for s in (*r.slices, *r.contended)]
    assert len(set(indices)) == len(indices)
    bench.store.close()
    with Store(bench.store.folder) as again:
        assert again.launches[records[0].request.id].contended == records[0].contended


def test_a_round_may_end_with_profiles(bench_of: Maker) -> None:
    bench = bench_of(faults="fake.layout=packed:shy")
    arms = [Configuration(), Configuration.of({"fake.streams": 2}),
            Configuration.of({"fake.layout": "packed"})]  # fmt: skip
    wanted = [arms[0], arms[2]]
    records = bench.measure_round(arms, 1, Purpose.EXPLAIN, noise=NOISE, profiled=wanted)
    assert [r.profile is not None for r in records] == [True, False, False]
    for record in records:  # also of one that did not bear it: what was measured stands
        assert len(record.slices) >= CONFIRM.least
        assert record.ending is not None
        assert record.ending.outcome is Outcome.MEASURED
    assert [bench.may_profile(arm) for arm in arms] == [False, True, False]
    profile, shy = records[0].profile, records[2].ending
    assert profile is not None
    assert [o.name for o in profile.operators] == ["matmul", "add"]
    assert sum(o.seconds for o in profile.operators) == pytest.approx(profile.call_s)
    assert profile.operators[0].calls == 3
    assert shy is not None  # it is no fault of the configuration
    assert shy.reason == "ended under the profiler: killed by SIGKILL"
    bench.store.close()
    with Store(bench.store.folder) as stored:
        assert stored.launches[records[0].request.id].profile == profile


def test_what_does_not_bear_a_neighbour_was_measured_all_the_same(bench_of: Maker) -> None:
    bench = bench_of(faults="fake.streams=2:lonely")
    arms = [Configuration(), Configuration.of({"fake.streams": 2})]
    bench.measure(arms[0], Purpose.SEARCH, noise=NOISE)
    records = bench.measure_round(arms, 1, Purpose.CONFIRM, noise=NOISE, beside_neighbour=True)
    assert [len(r.contended) for r in records] == [1, 0]
    ending = records[1].ending
    assert ending is not None
    assert ending.outcome is Outcome.MEASURED
    assert "next to a busy neighbour: killed by SIGKILL" in ending.reason
    assert len(records[1].slices) >= CONFIRM.least


def test_a_single_launch_may_end_beside_a_neighbour(bench_of: Maker) -> None:
    bench = bench_of()
    record = bench.measure(
        Configuration.of({"fake.streams": 2}), Purpose.RACE, noise=NOISE, beside_neighbour=True
    )
    assert len(record.contended) == 1
    assert record.check is not None


def test_an_arm_that_fails_in_a_round_does_not_stop_the_others(bench_of: Maker) -> None:
    bench = bench_of(faults="fake.layout=packed:crash")
    arms = [Configuration(), Configuration.of({"fake.layout": "packed"}),
            Configuration.of({"fake.streams": 2})]  # fmt: skip
    bench.measure(arms[0], Purpose.SEARCH, noise=NOISE)
    records = bench.measure_round(arms, 1, Purpose.CONFIRM, noise=NOISE)
    outcomes = [r.ending.outcome for r in records if r.ending]
    assert outcomes == [Outcome.MEASURED, Outcome.CRASHED, Outcome.MEASURED]


def test_a_dead_pacer_is_replaced(bench_of: Maker) -> None:
    bench = bench_of()
    first = bench.pacer.block()
    pid = pids_of(next(iter(launcher_of(bench).running)))[0]
    os.kill(pid, 9)
    measured(bench, fake__streams=2)
    assert not bench.pacer.is_running
    assert bench.pacer.block() > first


def test_what_a_launch_took_is_counted_without_the_others(bench_of: Maker) -> None:
    seen: list[Event] = []
    bench = bench_of(listen=seen.append)
    record = measured(bench, fake__streams=2)
    assert 0 < record.slicing_s < record.total_s
    done = [e for e in seen if isinstance(e, LaunchDone)]
    assert [e.launch for e in done] == [record.request.id]


def test_the_rate_that_is_told_of_a_launch_is_that_of_its_undisturbed_slices(
    bench_of: Maker,
) -> None:
    seen: list[Event] = []
    bench = bench_of(listen=seen.append)
    quiet, disturbed = Interference(), Interference(foreign=0.9, dirty=("others used 90 %",))

    def told(*slices: tuple[float, Interference]) -> tuple[float | None, int, int]:
        request = LaunchRequest(1, Configuration(), 4, Purpose.SEARCH)
        taken = [Slice(i, 4, 1, 4 / rate, 0.0, how) for i, (rate, how) in enumerate(slices)]
        launcher_of(bench).ended(
            LaunchRecord(request, slices=taken, ending=Ending(Outcome.MEASURED))
        )
        event = seen[-1]
        assert isinstance(event, LaunchDone)
        return event.rate and round(event.rate, 6), event.n_slices, event.n_disturbed

    assert told((100.0, quiet), (10.0, disturbed), (20.0, disturbed)) == (100.0, 3, 2)
    assert told((10.0, disturbed), (20.0, disturbed), (30.0, disturbed)) == (20.0, 3, 3)


def test_a_disk_that_is_full_when_a_worker_has_just_started_leaves_none_behind(
    bench_of: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of()
    add = LaunchFile.add

    def full(file: LaunchFile, note: object) -> None:
        if isinstance(note, Started):
            raise StorageFailed("no space left on device")
        add(file, note)  # type: ignore[arg-type]

    monkeypatch.setattr(LaunchFile, "add", full)
    with pytest.raises(StorageFailed):
        measured(bench)  # that no process is left, the fixture sees


@pytest.mark.parametrize(("seconds", "discarded"), [(0.3, 1), (0.001, 0)])
def test_a_call_as_long_as_a_slice_is_not_preceded_by_another(
    bench_of: Maker, monkeypatch: pytest.MonkeyPatch, seconds: float, discarded: int
) -> None:
    """Of long calls the first after a pause is as fast as any, and costs as much as the slice."""
    orders: list[Measure] = []
    ask = InstanceGroup.asking

    def asking(team: InstanceGroup, command: Command, *more: Any) -> Any:
        orders.extend([command] if isinstance(command, Measure) else [])
        return ask(team, command, *more)

    monkeypatch.setattr(InstanceGroup, "asking", asking)
    launch = bench_of().launcher.start(Configuration(), Purpose.CONFIRM)
    prepared = launch.record.prepared
    assert prepared is not None
    assert 0.001 < prepared.steady_call_s < 0.3
    for index in range(2):
        launch.take_slice(index, seconds)
        launch.pause()
    assert [order.discard for order in orders] == [0, discarded]  # it had not paused before
    launch.finish()
