"""What is better, whatever the metric: ratios above 1, intervals the right way round."""

import math

import msgspec
import pytest

from tuner.record.interval import Interval
from tuner.record.launch import Share, Slice, packed, percentile
from tuner.record.load import Batching, Slo
from tuner.record.objective import GOALS, METRICS, THROUGHPUT, Bound, Objective
from tuner.record.serving import Served

FAST = Slice(1, 4, 10, 1.0, 0.5, packed_calls=packed([0.1] * 10))
SLOW = Slice(2, 4, 5, 1.0, 1.5, packed_calls=packed([0.1, 0.1, 0.1, 0.1, 0.6]))


@pytest.mark.parametrize("name", METRICS)
def test_twice_as_fast_is_a_ratio_of_two_in_every_metric(name: str) -> None:
    objective = Objective.of(name)
    assert math.exp(objective.of_slice(FAST) - objective.of_slice(SLOW)) == pytest.approx(2.0)


@pytest.mark.parametrize("name", METRICS)
def test_a_value_is_what_its_worth_says(name: str) -> None:
    objective = Objective.of(name)
    assert objective.value(objective.of_slice(FAST)) == pytest.approx(METRICS[name].of_slice(FAST))


def test_latencies_are_milliseconds_of_a_call() -> None:
    objective = Objective.of("latency_p90")
    assert objective.value(objective.of_slice(SLOW)) == pytest.approx(200.0)
    calls = packed(k / 1000 for k in range(1, 41))
    told = objective.of_launch([Slice(3, 4, 40, 1.0, 2.5, packed_calls=calls)])
    assert told is not None
    assert objective.value(told) == pytest.approx(37.0)


def test_an_interval_in_a_unit_of_which_less_is_better_is_turned_round() -> None:
    log_scores = Interval(1 / 20, 1 / 25, 1 / 16, 0.95)
    found = Objective.of("latency_p90").in_unit(log_scores)
    assert (found.point, found.low, found.high) == pytest.approx((20, 16, 25))
    assert Objective.of("throughput").in_unit(log_scores) == log_scores


def test_a_goal_adds_to_the_metric_of_the_scenario_or_replaces_it() -> None:
    assert Objective.of("latency_p90", goal="robust").bears_neighbours
    assert Objective.of("latency_p90", goal="robust").metric == "latency_p90"
    assert not any(goal.metric for goal in GOALS.values())


def test_calls_of_a_team_take_as_long_as_one_instance_needs() -> None:
    team = Slice(1, 1, 20, 1.0, 0.5, shares=(Share(10, 1.0), Share(10, 1.0)))
    assert team.call_mean_s == pytest.approx(0.1)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([5.0], 0.99) == 5.0
    assert percentile(list(range(1, 31)), 0.9) == 28


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_slice_of_calls_that_no_clock_timed_is_damaged(bad: float) -> None:
    with pytest.raises(ValueError, match="no time"):
        Slice(1, 1, 1, 1.0, 0.5, packed_calls=packed([0.1, bad]))


def test_a_bound_says_a_figure_as_it_was_asked_for() -> None:
    assert Bound("memory", 2**32, "--max-memory 4G").in_words(1.5 * 2**30) == "a memory of 1.50 GiB"


def test_beside_a_neighbour_a_server_is_worth_what_it_answers_when_never_idle() -> None:
    """A bound that is out of reach there leaves no rate."""
    slo = Slo(0.99, 0.25, "")
    objective = msgspec.structs.replace(Objective.of("rate_within"), slo=slo)
    served = Served(Batching((1, 2)), 6, sustained=0.001)
    busy = Slice(1, 2, 4, 4.0, 0.5, packed_calls=packed([0.5, 0.8, 0.5, 0.8]), served=served)
    assert math.exp(objective.of_slice(busy)) == pytest.approx(0.001)
    assert math.exp(objective.under_contention([busy])) == pytest.approx(2 / 0.8)
    assert math.exp(THROUGHPUT.under_contention([busy])) == pytest.approx(6 / 4.0)
