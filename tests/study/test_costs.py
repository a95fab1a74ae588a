"""Seconds that are granted, and what launches and rounds are estimated to take, to the second."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tuner.launchers.clock import VirtualClock
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.costs import SAFETY, Budget, Costs
from tuner.study.evaluation import Evaluation

DEFAULT = Configuration()
OTHER = Configuration.of({"fake.layout": "packed"})
COMPILED = Configuration.of({"fake.compile": "frozen"})
N_SLICES, SLICE_S, CHECK_S = 5, 0.5, 1.0
LEAST = 4
"""Slices of a confirming launch."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def add(
    store: Store,
    configuration: Configuration,
    fixed_s: float,
    *,
    compile_s: float = 0.0,
    purpose: Purpose = Purpose.SEARCH,
    outcome: Outcome = Outcome.MEASURED,
    n_companions: int = 0,
) -> LaunchRecord:
    """Write a launch with five slices of half a second, and a second for its check."""
    id = store.next_launch_id()
    request = LaunchRequest(id, configuration, 4, purpose)
    request = msgspec.structs.replace(request, n_companions=n_companions)
    record = LaunchRecord(request, ending=Ending(outcome))
    record.prepared = Prepared(0.1 + compile_s, 0.1, 0.5, True, 0, 0, ())
    record.slices = [Slice(id * 10 + k, 4, 10, 0.4, float(k)) for k in range(N_SLICES)]
    record.slicing_s, record.check_s = N_SLICES * SLICE_S, CHECK_S
    record.total_s = fixed_s + record.slicing_s + CHECK_S
    store.launches[id] = record
    return record


def costs_of(store: Store, objective: Objective = THROUGHPUT) -> Costs:
    return Costs(store, Evaluation(store, 4, (4,), objective))


def test_earlier_sessions_count() -> None:
    budget = Budget(100.0, used_before_s=60.0)
    assert 60.0 <= budget.used_s() < 61.0
    assert 39.0 < budget.left_s() <= 40.0
    assert Budget(10.0, used_before_s=60.0).left_s() < 0


def test_an_extent_shares_what_it_was_granted_and_the_report_keeps_its_seconds() -> None:
    clock = VirtualClock()
    clock.advance(1000.0)  # before anything was granted
    budget = Budget(100.0, 60.0, began_at_s=55.0, kept_s=3.0, clock=clock)
    assert (budget.used_s(), budget.left_s()) == (60.0, 37.0)
    assert (budget.total_s, budget.granted_s) == (100.0, 45.0)
    clock.advance(10.0)
    assert (budget.used_s(), budget.left_s()) == (70.0, 27.0)


def test_rendering_a_finished_study_again_uses_nothing() -> None:
    clock = VirtualClock()
    budget = Budget(100.0, 60.0, is_over=True, clock=clock)
    clock.advance(10.0)
    assert budget.used_s() == 60.0


def test_before_any_launch_one_takes_half_a_minute(store: Store) -> None:
    costs = costs_of(store)
    assert costs.own_s(OTHER) == costs.launch_s(OTHER) == costs.repeat_s(OTHER) == 30.0
    assert costs.unsliced_s(OTHER) == 30.0
    assert costs.slice_s(OTHER) == 1.0
    assert costs.compiling_s(OTHER) == 0.0


def test_a_launch_takes_what_those_before_it_did_and_what_lay_beside_them(store: Store) -> None:
    add(store, OTHER, 6.0)
    add(store, OTHER, 8.0)
    costs = costs_of(store)
    assert costs.own_s(OTHER) == costs.launch_s(OTHER) == pytest.approx(10.5)
    for seconds in (1.0, 2.0, 60.0):
        costs.note_overhead(seconds)
    assert costs.launch_s(OTHER) == pytest.approx(12.5)  # the median of what was beside
    assert costs.own_s(OTHER) == pytest.approx(10.5)


def test_a_confirming_launch_is_as_short_as_the_shortest_and_checks_nothing(store: Store) -> None:
    add(store, OTHER, 20.0)
    add(store, OTHER, 6.0)
    costs = costs_of(store)
    minimal_s = 6.0 + LEAST * SLICE_S
    assert costs.repeat_s(OTHER, minimal=True) == pytest.approx(minimal_s)
    assert costs.repeat_s(OTHER) >= minimal_s
    assert costs.repeat_s(OTHER, minimal=True, least=7) == pytest.approx(6.0 + 7 * SLICE_S)
    assert costs.unsliced_s(OTHER) == pytest.approx(13.0)  # the median
    assert costs.slice_s(OTHER) == pytest.approx(SLICE_S)


def test_a_round_is_estimated_with_a_reserve_and_a_minimal_one_without(store: Store) -> None:
    add(store, DEFAULT, 4.0)
    add(store, OTHER, 6.0)
    costs = costs_of(store)
    arms = [DEFAULT, OTHER]
    assert costs.round_s(arms) == pytest.approx(SAFETY * sum(map(costs.repeat_s, arms)))
    assert costs.minimal_round_s(arms) == pytest.approx(4.0 + 6.0 + 2 * LEAST * SLICE_S)
    assert costs.round_s([]) == 0.0


def test_in_a_round_all_arms_take_as_many_slices_as_one_needs_for_its_calls(store: Store) -> None:
    """Calls of the other take five times as long: two of them are a slice."""
    add(store, DEFAULT, 4.0)
    record = add(store, OTHER, 6.0)
    record.slices = [msgspec.structs.replace(s, calls=2) for s in record.slices]
    latency = Objective.of("latency_p90")
    needed = latency.least_calls // 2
    costs = costs_of(store, latency)
    assert costs.repeat_s(OTHER, minimal=True) == pytest.approx(6.0 + needed * SLICE_S)
    found = costs.minimal_round_s([DEFAULT, OTHER])
    assert found == pytest.approx(4.0 + 6.0 + 2 * needed * SLICE_S)


def test_what_compiled_in_its_only_launch_finds_its_cache_in_a_minimal_round(store: Store) -> None:
    add(store, COMPILED, 30.0, compile_s=25.0)
    costs = costs_of(store)
    assert costs.compiling_s(COMPILED) == pytest.approx(25.0)
    assert costs.minimal_round_s([COMPILED]) == pytest.approx(5.0 + LEAST * SLICE_S)
    add(store, COMPILED, 5.0)
    assert costs_of(store).compiling_s(COMPILED) == 0.0


def test_beside_others_compiling_is_a_share(store: Store) -> None:
    add(store, COMPILED, 30.0, compile_s=24.0, n_companions=2)
    assert costs_of(store).compiling_s(COMPILED) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("purpose", "outcome", "counts"),
    [
        (Purpose.SEARCH, Outcome.CRASHED, True),
        (Purpose.SEARCH, Outcome.INTERRUPTED, False),
        (Purpose.PACER, Outcome.MEASURED, False),
    ],
)
def test_what_was_interrupted_and_pacers_say_nothing_of_costs(
    store: Store, purpose: Purpose, outcome: Outcome, counts: bool
) -> None:
    add(store, OTHER, 6.0)
    add(store, OTHER, 60.0, purpose=purpose, outcome=outcome)
    assert costs_of(store).own_s(OTHER) == pytest.approx(36.5 if counts else 9.5)


def test_a_launch_that_did_not_get_so_far_says_nothing_of_costs(store: Store) -> None:
    add(store, OTHER, 6.0)
    add(store, OTHER, 60.0).prepared = None
    assert costs_of(store).own_s(OTHER) == pytest.approx(9.5)
