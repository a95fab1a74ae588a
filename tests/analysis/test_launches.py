"""What launches tell of a configuration, from slices that are written by hand."""

import numpy as np
import pytest

from tuner.analysis.launches import call_times, loading
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Purpose,
    Slice,
    latency,
    packed,
)
from tuner.record.objective import THROUGHPUT, Objective


def launch(slices: list[Slice]) -> LaunchRecord:
    return LaunchRecord(LaunchRequest(1, Configuration(), 4, Purpose.CONFIRM), slices=slices)


@pytest.mark.parametrize("n_calls", [1, 3, 40, 600])
def test_the_99th_percentile_of_calls_is_found_however_few_a_slice_holds(n_calls: int) -> None:
    drawn = np.random.default_rng(1).gamma(4.0, 0.01, (60_000 // n_calls, n_calls))
    seen = [Slice(i, 4, n_calls, float(c.sum()), 0.0, latency=latency(list(c)))
            for i, c in enumerate(drawn)]  # fmt: skip
    found = call_times([launch(seen)], THROUGHPUT)
    assert found is not None
    assert found.n_calls == drawn.size
    assert found.p99_s == pytest.approx(np.quantile(drawn, 0.99), rel=0.03)


def test_disturbed_slices_tell_what_a_call_takes_only_where_there_are_no_others() -> None:
    busy = Slice(1, 4, 1, 9.0, 0.0, Interference(dirty=("foreign",)), latency=latency([9.0]))
    quiet = Slice(2, 4, 1, 1.0, 0.0, latency=latency([1.0]))
    both, alone = (call_times([launch(slices)], THROUGHPUT) for slices in ([busy, quiet], [busy]))
    assert both is not None
    assert alone is not None
    assert (both.p99_s, alone.p50_s) == (1.0, 9.0)
    assert call_times([], THROUGHPUT) is None


def test_percentiles_beside_a_latency_are_of_the_calls_that_it_rests_on() -> None:
    """Else a report could say that 99 % take less than the 90th percentile."""
    objective = Objective.of("latency_p90")
    busy = Interference(dirty=("foreign",))
    calls = [0.01] * 11 + [0.05] * 9
    rounds = [
        launch([Slice(k, 1, 20, sum(calls), 0.0, busy, packed_calls=packed(calls))])
        for k in range(3)
    ]
    searched = LaunchRecord(LaunchRequest(9, Configuration(), 1, Purpose.SEARCH))
    searched.slices = [Slice(9, 1, 2, 0.02, 0.0, packed_calls=packed([0.01, 0.01]))]
    found = call_times([searched, *rounds], objective)
    assert found is not None
    log_score = objective.of_launch(rounds[0].slices)
    assert log_score is not None
    value_s = objective.value(log_score) / 1000
    assert found.p50_s <= value_s <= found.p99_s * (1 + 1e-6)
    assert found.n_calls == 60
    assert found.p99_s == pytest.approx(0.05)
    assert call_times([searched], objective) is None


def test_loading_is_what_steps_take_beyond_one_whose_batch_is_there() -> None:
    def fed(there_s: float, step_s: float) -> LaunchRecord:
        found = launch([Slice(1, 4, 10, 10 * step_s, 0.0)])
        found.prepared = Prepared(0.0, 0.0, 0.0, True, 0, 0, (), call_there_s=there_s)
        return found

    ratio = loading([fed(0.1, 0.2), fed(0.1, 0.2), fed(0.2, 0.4)])
    assert ratio is not None
    assert (ratio.low, ratio.point, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert loading([fed(0.0, 0.2), fed(0.0, 0.2)]) is None
    assert loading([fed(0.1, 0.2)]) is None
