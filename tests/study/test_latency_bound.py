"""The bound of a server where none is asked for, by launches that are made up."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.recorded_bench import recorded_bench
from tests.space.spaces import workload
from tuner.errors import NothingMeasured
from tuner.launchers.made_up import MadeUp
from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration
from tuner.record.journal import SloFixed
from tuner.record.launch import Purpose
from tuner.record.load import Trace
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.costs import Budget
from tuner.study.latency_bound import fix_bound

STAND_IN = Configuration.of({"fake.layout": "packed"})
CALL_S = 0.02


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def bench(store: Store, fails: bool = False) -> Bench:
    """Return a bench on which a request takes 20 ms, and with the stand-in half of that."""
    card = workload("fake").card

    def log_rate(configuration: Configuration) -> float:
        is_faster = configuration == STAND_IN
        return math.log(card.reference_batch / CALL_S * (2 if is_faster else 1))

    def fault(_: Configuration) -> Ending | None:
        return Ending(Outcome.CRASHED, "it crashed") if fails else None

    source = MadeUp(log_rate, n_calls=5, fault=fault)
    return recorded_bench(source, store, card, Budget(100.0, clock=source.clock), 0)


def test_it_is_five_times_what_the_default_takes_for_one_request(store: Store) -> None:
    found = fix_bound(store, bench(store), None)
    assert (found.quantile, found.trace) == (0.99, None)
    assert found.seconds == pytest.approx(5 * CALL_S)
    assert found.asked == "5 times the default's 20 ms for one request at a time"
    assert store.all(SloFixed) == [SloFixed(found)]
    (record,) = store.launches.values()
    assert (record.request.purpose, record.request.configuration) == (
        Purpose.BOUND, Configuration(),
    )  # fmt: skip
    assert len(record.slices) == 4
    assert len({s.index for s in record.slices}) == 4
    assert record.ending == Ending(Outcome.MEASURED)


def test_where_the_default_does_not_answer_it_is_of_what_stands_in(store: Store) -> None:
    trace = Trace("arrivals", "", 2, 1.0)
    found = fix_bound(store, bench(store), trace, STAND_IN)
    assert found.seconds == pytest.approx(5 * CALL_S / 2)
    assert found.trace == trace
    assert found.asked == f"5 times {STAND_IN.label()}'s 10 ms for one request at a time"


def test_a_default_that_cannot_be_measured_has_none(store: Store) -> None:
    with pytest.raises(NothingMeasured, match="one request at a time: crashed: it crashed"):
        fix_bound(store, bench(store, fails=True), None)
    assert store.all(SloFixed) == []
