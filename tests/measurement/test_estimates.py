import math

import msgspec
import numpy as np
import pytest

from tuner.measurement.estimates import (
    PRIOR_LAUNCH_SD,
    Estimates,
    kept,
    lead_under_contention,
    round_log_scores,
)
from tuner.measurement.replication import scatter
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, LaunchRequest, Purpose, Slice, packed
from tuner.record.load import Batching, Slo
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.serving import Served

ONE = Batching((1,))
DEFAULT = Configuration()
FAST = Configuration.of({"fake.layout": "packed"})
SLOW = Configuration.of({"fake.layout": "plain"})


def launch(
    id: int,
    configuration: Configuration,
    log_rates: list[float],
    start: float = 0.0,
    *,
    purpose: Purpose = Purpose.SEARCH,
    block: int = 0,
    dirty: tuple[int, ...] = (),
    outcome: Outcome = Outcome.MEASURED,
) -> LaunchRecord:
    slices = [
        Slice(
            index=id * 100 + k,
            batch=1,
            calls=1,
            seconds=math.exp(-y),
            at=start + k,
            interference=Interference(dirty=("busy",) if k in dirty else ()),
        )
        for k, y in enumerate(log_rates)
    ]
    request = LaunchRequest(id, configuration, 1, purpose, pacer_block=block)
    return LaunchRecord(request, slices=slices, ending=Ending(outcome))


def calling(id: int, call_ms: list[list[float]], dirty: tuple[int, ...] = ()) -> LaunchRecord:
    """Return a launch with slices of these calls."""
    slices = [
        Slice(
            index=id * 100 + k,
            batch=1,
            calls=len(each),
            seconds=sum(each) / 1000,
            at=float(k),
            interference=Interference(dirty=("busy",) if k in dirty else ()),
            packed_calls=packed(ms / 1000 for ms in each),
        )
        for k, each in enumerate(call_ms)
    ]
    request = LaunchRequest(id, DEFAULT, 1, Purpose.CONFIRM)
    return LaunchRecord(request, slices=slices, ending=Ending(Outcome.MEASURED))


def test_where_calls_count_disturbed_ones_do_too() -> None:
    """Without the disturbed slice there would be no tail: 3 of its 10 calls take 50 ms."""
    latency = Objective.of("latency_p90")
    record = calling(1, [[10.0] * 10, [10.0] * 7 + [50.0] * 3], dirty=(1,))
    (everything,) = round_log_scores([record], latency)
    (undisturbed,) = round_log_scores([record], latency, only_clean=True)
    assert everything is not None and undisturbed is not None
    assert latency.value(everything) == pytest.approx(50.0)
    assert latency.value(undisturbed) == pytest.approx(10.0)


def test_the_search_goes_by_the_mean_call() -> None:
    latency = Objective.of("latency_p90")
    record = calling(1, [[10.0, 10.0, 10.0, 30.0]])
    assert latency.value(latency.of_slice(record.slices[0])) == pytest.approx(15.0)


def estimates(*records: LaunchRecord) -> Estimates:
    return Estimates({r.request.id: r for r in records}, THROUGHPUT)


def test_drift_that_the_pacer_shows_is_taken_out() -> None:
    """The machine slows by 20 % between two launches of equal speed."""
    pacer = launch(1, DEFAULT, [0.0, 0.0, 0.0, -0.2, -0.2, -0.2], purpose=Purpose.PACER)
    early = launch(2, DEFAULT, [1.0, 1.0], start=0.5, block=1)
    late = launch(3, FAST, [0.8, 0.8], start=3.5, block=1)
    found = estimates(pacer, early, late)
    assert found.score(DEFAULT) == pytest.approx(found.score(FAST), abs=1e-9)


def test_a_pacer_that_says_nothing_about_others_is_not_believed() -> None:
    pacer = launch(1, DEFAULT, [0.0, 0.0, -0.3, -0.3] * 3, purpose=Purpose.PACER)
    steady = [launch(10 + k, FAST, [1.0], start=2.0 * k + 0.5, block=1) for k in range(6)]
    assert estimates(pacer, *steady).beta < 0.1


def test_a_pacer_that_something_slows_down_alone_corrects_nothing() -> None:
    """Beside the default the pacer has a quarter of its rate; the default is as fast as ever."""
    pacer = launch(1, DEFAULT, [-1.4] * 3 + [0.0] * 9, purpose=Purpose.PACER)
    default = launch(2, DEFAULT, [0.0, 0.0], start=0.5, block=1)
    faster = launch(3, FAST, [0.5, 0.5], start=6.5, block=1)
    found = estimates(pacer, default, faster)
    assert found.beta == 0.0
    assert found.score(DEFAULT) == pytest.approx(0.0)
    assert found.score(FAST) == pytest.approx(0.5)


def test_a_noisy_launch_says_little_against_a_pacer() -> None:
    pacer = launch(1, DEFAULT, [-0.1] * 4 + [0.1] * 4, purpose=Purpose.PACER)
    noisy = launch(2, DEFAULT, [0.3, -0.3, 0.1, -0.1], start=0.2, block=1)
    assert estimates(pacer, noisy).beta > 0.8
    steady = launch(2, DEFAULT, [0.0] * 4, start=0.2, block=1)
    assert estimates(pacer, steady).beta < 0.5


def test_a_launch_beside_an_unusual_pacer_is_less_certain_and_counts_for_less() -> None:
    """The pacer dips by 10 % for a while, and FAST, launched then, does not."""
    pacer = launch(1, DEFAULT, [0.0] * 10 + [-0.1] * 4, purpose=Purpose.PACER)
    usual = launch(2, DEFAULT, [0.0, 0.0], start=3.5, block=1)
    in_dip = launch(3, FAST, [1.0], start=10.5, block=1)
    also_usual = launch(4, SLOW, [-1.0], start=7.5, block=1)
    also_in_dip = launch(5, SLOW, [-1.0], start=11.5, block=1)
    once = estimates(pacer, usual, in_dip, also_usual)
    alone = math.sqrt(2) * once.launch_sd
    assert once.standard_error(DEFAULT, SLOW) == pytest.approx(alone)
    assert once.standard_error(DEFAULT, FAST) > 1.2 * alone
    # what beta is off by is the same for two that were launched in the same dip
    both = estimates(pacer, in_dip, also_in_dip)
    assert both.standard_error(FAST, SLOW) == pytest.approx(math.sqrt(2) * both.launch_sd)
    twice = estimates(pacer, usual, in_dip, launch(6, FAST, [1.0], start=5.5, block=1))
    doubted, trusted = twice.launch_scores(FAST)
    score = twice.score(FAST)
    assert score is not None
    assert abs(score - trusted) < abs(score - doubted)


def test_a_new_pacer_is_tied_by_what_was_measured_in_both_blocks() -> None:
    first = launch(1, DEFAULT, [0.0, 0.0], purpose=Purpose.PACER)
    before = launch(2, FAST, [1.0], start=0.5, block=1)
    second = launch(3, DEFAULT, [-0.5, -0.5], start=100, purpose=Purpose.PACER)
    anchor = launch(4, FAST, [0.5], start=100.5, purpose=Purpose.ANCHOR, block=3)
    other = launch(5, DEFAULT, [0.4], start=100.6, block=3)
    found = estimates(first, before, second, anchor, other)
    assert found.launch_scores(FAST) == pytest.approx([1.0, 1.0])
    assert found.score(DEFAULT) == pytest.approx(0.9)


def test_dirty_slices_do_not_enter_a_score_unless_there_is_no_other() -> None:
    some = launch(1, FAST, [1.0, 0.1, 1.0], dirty=(1,))
    assert estimates(some).score(FAST) == pytest.approx(1.0)
    every = launch(1, FAST, [0.2, 0.2], dirty=(0, 1))
    assert estimates(every).score(FAST) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "outcome", [Outcome.CRASHED, Outcome.INTERRUPTED, Outcome.WRONG_OUTPUT, Outcome.PRUNED]
)
def test_only_measured_launches_score(outcome: Outcome) -> None:
    assert estimates(launch(1, FAST, [1.0], outcome=outcome)).score(FAST) is None


def test_confirmation_launches_never_enter_the_search() -> None:
    found = estimates(launch(1, FAST, [1.0], purpose=Purpose.CONFIRM))
    assert found.score(FAST) is None


def test_the_spread_of_launches_is_pooled_with_a_prior() -> None:
    quiet = estimates(*(launch(k, FAST, [1.0]) for k in range(1, 30)))
    noisy = estimates(*(launch(k, FAST, [1.0 + 0.1 * (-1) ** k]) for k in range(1, 30)))
    assert quiet.launch_sd < 0.01 < 0.08 < noisy.launch_sd < 0.11


def test_where_slices_scatter_launches_are_taken_to_do_so_until_they_are_repeated() -> None:
    scattered = [1.0, 1.2, 0.9, 1.1]
    within = scatter(scattered)
    once = estimates(launch(1, DEFAULT, scattered), launch(2, FAST, scattered))
    assert once.launch_sd == pytest.approx(within)
    alike = [launch(3 + k, SLOW, scattered) for k in range(20)]
    assert estimates(launch(1, DEFAULT, scattered), *alike).launch_sd < 0.3 * within
    quiet = estimates(launch(1, DEFAULT, [1.0, 1.001, 0.999]))
    assert quiet.launch_sd == pytest.approx(PRIOR_LAUNCH_SD)


def test_in_a_round_what_a_pass_has_in_common_cancels() -> None:
    """Both arms halve their speed in two of five passes: the ratio does not notice."""
    slow = np.array([0.0, -0.7, -0.7, 0.0, 0.0])
    a = launch(1, DEFAULT, list(0.0 + slow), purpose=Purpose.CONFIRM)
    b = launch(2, FAST, list(0.3 + slow), purpose=Purpose.CONFIRM)
    values = round_log_scores([a, b], THROUGHPUT)
    assert values[0] is not None
    assert values[1] is not None
    assert values[1] - values[0] == pytest.approx(0.3)


def test_a_pass_with_a_disturbed_slice_does_not_count() -> None:
    a = launch(1, DEFAULT, [0.0, 0.0, 0.0, 0.0], purpose=Purpose.CONFIRM)
    b = launch(2, FAST, [0.3, -5.0, -5.0, 0.3], purpose=Purpose.CONFIRM, dirty=(1, 2))
    values = round_log_scores([a, b], THROUGHPUT)
    assert (values[1] or 0) - (values[0] or 0) == pytest.approx(0.3)


def test_a_failed_launch_of_a_round_has_no_value() -> None:
    a = launch(1, DEFAULT, [0.0, 0.0], purpose=Purpose.CONFIRM)
    b = launch(2, FAST, [0.3], purpose=Purpose.CONFIRM, outcome=Outcome.CRASHED)
    assert round_log_scores([a, b], THROUGHPUT)[1] is None
    assert round_log_scores([b], THROUGHPUT) == [None]


def server(id: int, rate: float, call_s: float, busy_s: float, *, met: bool = True) -> LaunchRecord:
    """A confirming launch whose p99 crosses the bound of 100 ms at a rate, or at none."""

    def calls(index: int, seconds: float, offered: float, n_late: int = 0) -> Slice:
        made = packed([seconds] * (100 - n_late) + [0.2] * n_late)
        return Slice(
            index, 1, 100, 1.0, 0.5, packed_calls=made, served=Served(ONE, 100, offered=offered)
        )

    # as many late as the bound allows
    within = calls(2, 0.05, rate, n_late=1 if met else 100)
    return LaunchRecord(
        LaunchRequest(id, Configuration(), 1, Purpose.CONFIRM, round=1),
        slices=[calls(1, call_s, 0.0), within],
        contended=[calls(4, busy_s, 0.0)],
        ending=Ending(Outcome.MEASURED),
    )


def test_servers_beside_a_neighbour_are_compared_by_rates_and_by_what_they_keep() -> None:
    """One with the higher rate is not behind because it answers fewer when it is never idle."""
    served = msgspec.structs.replace(Objective.of("rate_within"), slo=Slo(0.99, 0.1, ""))
    own, other = server(1, 40.0, 0.020, 0.040), server(2, 30.0, 0.015, 0.060)
    assert kept(own, served) == pytest.approx(math.log(0.5))  # what arrived says nothing of it
    assert kept(other, served) == pytest.approx(math.log(0.25))
    lead = lead_under_contention(own, other, served)
    assert lead is not None and math.exp(lead) == pytest.approx(40 / 30 * 2)
    assert lead_under_contention(own, server(3, 30.0, 0.015, 0.060, met=False), served) is None
