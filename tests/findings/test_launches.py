"""What launches tell of a configuration, from slices that are written by hand."""

import numpy as np
import pytest

from tuner.findings.launches import call_times
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Purpose,
    Slice,
    latency,
)


def launch(slices: list[Slice]) -> LaunchRecord:
    return LaunchRecord(LaunchRequest(1, Configuration(), 4, Purpose.CONFIRM), slices=slices)


@pytest.mark.parametrize("n_calls", [1, 3, 40, 600])
def test_the_99th_percentile_of_calls_is_found_however_few_a_slice_holds(n_calls: int) -> None:
    drawn = np.random.default_rng(1).gamma(4.0, 0.01, (60_000 // n_calls, n_calls))
    seen = [Slice(i, 4, n_calls, float(c.sum()), 0.0, latency=latency(list(c)))
            for i, c in enumerate(drawn)]  # fmt: skip
    found = call_times([launch(seen)])
    assert found is not None
    assert found.n_calls == drawn.size
    assert found.p99_s == pytest.approx(np.quantile(drawn, 0.99), rel=0.03)


def test_disturbed_slices_tell_what_a_call_takes_only_where_there_are_no_others() -> None:
    busy = Slice(1, 4, 1, 9.0, 0.0, Interference(dirty=("foreign",)), latency=latency([9.0]))
    quiet = Slice(2, 4, 1, 1.0, 0.0, latency=latency([1.0]))
    both, alone = call_times([launch([busy, quiet])]), call_times([launch([busy])])
    assert both is not None
    assert alone is not None
    assert (both.p99_s, alone.p50_s) == (1.0, 9.0)
    assert call_times([]) is None
