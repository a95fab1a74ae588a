"""What complete rounds say of an arm in numbers, from rounds that are written by hand."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tuner.record.configuration import Configuration
from tuner.record.journal import EarlyRound, NeighbourRound, RoundDone, ValidationNoted
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Purpose,
    Slice,
    packed,
)
from tuner.record.load import Batching, Slo
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.serving import LoadgenWord, Served, Validation
from tuner.record.store import Store
from tuner.study.rounds import Rounds

DEFAULT = Configuration()
TUNED = Configuration.of({"fake.layout": "packed"})
LATENCY = Objective.of("latency_p90")
BUSY = Interference(dirty=("other processes used 50% of the CPU time",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def launched(
    store: Store, configuration: Configuration, call_s: float | None, disturbed_s: float = 0.0
) -> int:
    """Write a launch whose calls of four items take so long; None: it failed.

    disturbed_s: what the calls of a slice take that something else disturbed; 0: there is none.
    """
    id = store.next_launch_id()
    record = LaunchRecord(LaunchRequest(id, configuration, 4, Purpose.CONFIRM))
    record.ending = Ending(Outcome.CRASHED if call_s is None else Outcome.MEASURED)
    for k, (each_s, seen) in enumerate(((call_s, Interference()), (disturbed_s, BUSY))):
        if each_s:
            calls = packed([each_s] * 30)
            record.slices.append(
                Slice(10 * id + k, 4, 30, 30 * each_s, 0.5, seen, packed_calls=calls)
            )
    store.launches[id] = record
    return id


def add_round(store: Store, number: int, calls_s: dict[Configuration, float | None]) -> None:
    ids = tuple(launched(store, c, call_s) for c, call_s in calls_s.items())
    store.add(RoundDone(number, ids))


def test_a_value_is_in_the_objectives_unit_and_a_rate_is_items_per_second(store: Store) -> None:
    for number, call_s in enumerate((0.098, 0.1, 0.102), 1):
        add_round(store, number, {DEFAULT: 2 * call_s, TUNED: call_s})
    rate = Rounds(store, THROUGHPUT).value(TUNED)
    assert rate is not None and rate.point == pytest.approx(40.0, rel=0.001)
    rounds = Rounds(store, LATENCY)
    value = rounds.value(TUNED)
    assert value is not None and value.point == pytest.approx(100.0, rel=0.001)
    assert value.low < 98 < 102 < value.high
    assert rounds.rate(TUNED) == rate == Rounds(store, THROUGHPUT).rate(TUNED)
    default = rounds.value(DEFAULT)
    assert default is not None and default.point == pytest.approx(200.0, rel=0.001)


def test_one_round_is_no_interval_and_another_arms_rounds_are_none(store: Store) -> None:
    add_round(store, 1, {DEFAULT: 0.1, TUNED: 0.1})
    add_round(store, 2, {DEFAULT: 0.1})
    rounds = Rounds(store, THROUGHPUT)
    assert rounds.value(TUNED) is rounds.rate(TUNED) is None
    assert rounds.value(DEFAULT) is not None
    assert Rounds(store, THROUGHPUT, n_rounds=1).value(DEFAULT) is None
    assert rounds.n_met(TUNED) == (1, 1)
    assert rounds.n_met(DEFAULT) == (2, 2)


def test_where_all_calls_count_the_undisturbed_ones_are_told_beside(store: Store) -> None:
    for number in (1, 2):
        ids = tuple(launched(store, c, 0.1, disturbed_s=0.4) for c in (DEFAULT, TUNED))
        store.add(RoundDone(number, ids))
    rounds = Rounds(store, LATENCY)
    everything, quiet = rounds.value(TUNED), rounds.value_undisturbed(TUNED)
    assert everything is not None and everything.point == pytest.approx(400.0, rel=0.001)
    assert quiet is not None and quiet.point == pytest.approx(100.0, rel=0.001)
    assert Rounds(store, THROUGHPUT).value_undisturbed(TUNED) is None


def test_a_failure_counts_as_a_round_without_a_worth(store: Store) -> None:
    add_round(store, 1, {DEFAULT: 0.1, TUNED: None})
    add_round(store, 2, {DEFAULT: 0.1, TUNED: 0.1})
    rounds = Rounds(store, THROUGHPUT)
    assert (rounds.n_failures(TUNED), rounds.n_failures(DEFAULT)) == (1, 0)
    assert rounds.log_scores[0][TUNED] is None
    assert rounds.n_met(TUNED) == (1, 1)


def test_rounds_of_an_early_verdict_come_first_and_all_of_them_count(store: Store) -> None:
    early = tuple(launched(store, c, 0.1) for c in (DEFAULT, TUNED))
    add_round(store, 1, {DEFAULT: 0.2, TUNED: 0.1})
    store.add(EarlyRound(TUNED, early))
    for n_rounds, n in ((None, 2), (1, 2), (0, 1)):
        rounds = Rounds(store, THROUGHPUT, n_rounds)
        assert (rounds.n_early, len(rounds.log_scores)) == (1, n)
    first, second = Rounds(store, THROUGHPUT).launches
    assert first[DEFAULT].request.id == early[0]
    assert second[DEFAULT].request.id == 3


def test_rounds_beside_a_neighbour_are_kept_apart(store: Store) -> None:
    add_round(store, 1, {DEFAULT: 0.1, TUNED: 0.1})
    after = tuple(launched(store, c, 0.3) for c in (DEFAULT, TUNED))
    store.add(NeighbourRound(after))
    rounds = Rounds(store, THROUGHPUT)
    assert len(rounds.log_scores) == 1
    (beside,) = rounds.beside_neighbour
    assert [record.request.id for record in beside.values()] == [*after]


def test_what_loadgen_counted_joins_the_rate_of_a_server(store: Store) -> None:
    slo = Slo(0.99, 0.1, "--slo p99=100ms")
    served = msgspec.structs.replace(Objective.of("rate_within"), slo=slo)
    for number in range(1, 5):
        id = store.next_launch_id()
        record = LaunchRecord(LaunchRequest(id, TUNED, 1, Purpose.CONFIRM, round=number, slo=slo))
        timed = Served(Batching((1,)), 30, sustained=50.0)
        record.slices.append(
            Slice(id, 1, 30, 0.3, 0.5, packed_calls=packed([0.01] * 30), served=timed)
        )
        for rate, n_late in ((40.0, 2), (47.5, 5 + number), (55.0, 19)):
            calls = packed([0.05] * (1000 - n_late) + [0.2] * n_late)
            offered = Served(Batching((1,)), 1000, offered=rate)
            record.slices.append(Slice(id, 1, 1000, 20.0, 1.0, packed_calls=calls, served=offered))
        record.ending = Ending(Outcome.MEASURED)
        store.launches[id] = record
        store.add(RoundDone(number, (id,)))
    before = Rounds(store, served).value(TUNED)
    word = LoadgenWord("too_slow", "", 45.0, 45.0, 400.0, 18_000, 270, 0.2)
    store.add(ValidationNoted(TUNED, Validation(45.0, word)))
    after = Rounds(store, served)
    value = after.value(TUNED)
    assert before is not None and value is not None
    assert before.point == pytest.approx(50.0, rel=0.03)
    assert value.low < value.point < 0.95 * before.point
    assert len(after.series(TUNED).values) == 4, "ratios rest on the rounds alone"
