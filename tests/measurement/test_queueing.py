"""A simulated queue, beside what queueing theory says of simple ones."""

import math
import statistics
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tuner.measurement.queueing import long_run, sustained, waited, with_sustained
from tuner.record.arrivals import at_random
from tuner.record.launch import Slice, packed, percentile
from tuner.record.load import Batching, Slo
from tuner.record.service_times import capacity
from tuner.record.serving import Served
from tuner.record.trace import read_trace, tuned_by

ONE = Batching((1,))
UP_TO_4 = Batching((1, 2, 4))
P99 = Slo(0.99, 0.1, "--slo p99=100ms")


def poisson(rate: float, n: int = 10_000, seed: int = 3) -> npt.NDArray[np.float64]:
    return at_random(seed, n) / rate


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_server_of_constant_time_waits_as_theory_says(load: float) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) of a service time (Pollaczek-Khinchine)."""
    found = waited(ONE, {1: [0.01]}, poisson(load / 0.01))
    in_line = statistics.fmean(found) - 0.01
    assert in_line == pytest.approx(0.01 * load / (2 * (1 - load)), rel=0.12)


def test_several_servers_take_from_one_line() -> None:
    """M/D/2 at the same load waits for less than half as long as M/D/1 with twice the time."""
    two = Batching((1,), n_servers=2)
    alone = statistics.fmean(waited(ONE, {1: [0.01]}, poisson(80))) - 0.01
    shared = statistics.fmean(waited(two, {1: [0.02]}, poisson(80))) - 0.02
    assert shared < alone
    assert capacity(two, {1: [0.02]}) == capacity(ONE, {1: [0.01]})


def test_those_that_have_come_are_answered_together_and_padded() -> None:
    due = np.array([0.0, 0.01, 0.02, 0.03])  # three come while the first is answered
    found = waited(UP_TO_4, {1: [0.1], 2: [0.15], 4: [0.2]}, due)
    assert found == pytest.approx([0.1, 0.1 + 0.2 - 0.01, 0.1 + 0.2 - 0.02, 0.1 + 0.2 - 0.03])


def test_the_oldest_waits_for_others_but_no_longer_than_it_may() -> None:
    patient = Batching((1, 2, 4), wait_s=0.05)
    times = {1: [0.1], 2: [0.1], 4: [0.1]}
    assert waited(patient, times, np.array([0.0, 0.04, 1.0])) == pytest.approx([0.15, 0.11, 0.15])
    full = waited(patient, times, np.array([0.0, 0.01, 0.02, 0.03, 0.9]))
    assert full[0] == pytest.approx(0.03 + 0.1)  # the batch was full before its time was up


def test_the_sustained_rate_is_where_the_latency_crosses_the_bound() -> None:
    times = {1: [0.010], 2: [0.015], 4: [0.020]}
    rate = sustained(UP_TO_4, times, P99)
    below, above = (
        percentile(waited(UP_TO_4, times, poisson(rate * by)), P99.quantile) for by in (0.9, 1.1)
    )
    assert below < P99.seconds < above
    assert rate < capacity(UP_TO_4, times) == 200.0


def test_the_formula_of_one_server_is_what_the_queue_does() -> None:
    times = {1: [0.005, 0.010, 0.030]}
    quick = waited(ONE, times, poisson(70), seed=8)
    # a wait of no time at all: no formula is used
    step_by_step = waited(Batching((1, 2)), {1: times[1], 2: times[1]}, poisson(0.01), seed=8)
    assert statistics.fmean(quick) > statistics.fmean(step_by_step)
    two = Batching((1,), n_servers=2)
    beside = waited(two, times, poisson(1e-4, 2000), seed=8)
    assert waited(ONE, times, poisson(1e-4, 2000), seed=8) == pytest.approx(beside, abs=1e-6)


@pytest.mark.parametrize("times", [{1: [0.06]}, {1: [0.022], 2: [0.041], 4: [0.08]}])
def test_in_the_long_run_the_allowed_share_is_late(times: dict[int, list[float]]) -> None:
    batching, slo = Batching(tuple(times)), Slo(0.99, 0.3, "")
    found = long_run(batching, times, slo, sustained(batching, times, slo))
    assert found is not None

    def late(rate: float) -> float:
        moments = poisson(rate, 300_000, 17)
        return statistics.fmean(each > slo.seconds for each in waited(batching, times, moments))

    assert late(0.97 * found.rate) < slo.allowed < late(1.03 * found.rate)
    slope = math.log(late(1.03 * found.rate) / late(0.97 * found.rate)) / math.log(1.03 / 0.97)
    assert found.slope == pytest.approx(slope, rel=0.3)


def test_what_is_late_too_often_when_idle_has_no_long_run() -> None:
    """One call in fifty beyond the bound, whatever the rate."""
    times = {1: [0.003] * 49 + [0.018]}
    assert long_run(ONE, times, Slo(0.99, 0.015, ""), 100.0) is None


def test_a_bound_that_is_far_off_leaves_the_capacity() -> None:
    assert sustained(ONE, {1: [0.01]}, Slo(0.5, 500.0, "")) == pytest.approx(100.0, rel=0.02)


def test_a_server_that_misses_when_idle_is_worth_less_than_any_other_and_the_further_the_less() -> (
    None
):
    slow, slower = (sustained(ONE, {1: [s]}, P99) for s in (0.15, 0.3))
    assert slower < slow < 0.01
    assert sustained(ONE, {1: [0.099]}, P99) > slow  # meets it, if hardly anybody comes


def test_a_slice_is_given_the_rate_that_its_calls_let_expect() -> None:
    calls = [0.010, 0.015, 0.020] * 5
    served = Served(UP_TO_4, n_requests=35)
    taken = Slice(1, 4, 15, sum(calls), 0.5, packed_calls=packed(calls), served=served)
    found = with_sustained(taken, P99)
    assert found.served is not None
    expected = sustained(UP_TO_4, {1: [0.010], 2: [0.015], 4: [0.020]}, P99)
    assert found.served.sustained == pytest.approx(expected, rel=0.01)
    assert with_sustained(taken, None) == taken
    assert taken.rate == pytest.approx(35 / sum(calls))
    assert math.isclose(sum(found.call_s), sum(calls), rel_tol=1e-6)


@pytest.mark.parametrize("service_s", [0.030, 0.051, 0.1])
def test_the_bound_is_kept_where_latency_jumps(tmp_path: Path, service_s: float) -> None:
    """Evenly spaced arrivals and one service time: many a batch begins just as a request comes."""
    path = tmp_path / "even.csv"
    path.write_text("\n".join(map(str, range(1200))))
    trace, times = read_trace(path), {size: [service_s] for size in (1, 2, 4)}
    moments = tuned_by(trace)
    for bound in range(11, 30):
        slo = Slo(0.99, service_s * bound / 10, "", trace)
        rate = sustained(UP_TO_4, times, slo)
        assert 0.2 / service_s < rate <= 4 / service_s
        found = waited(UP_TO_4, times, np.array(moments) / rate)
        assert percentile(found, slo.quantile) <= slo.seconds * (1 + 1e-9)
