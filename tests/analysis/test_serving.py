"""What is said of a server's confirming launches, from launches that are written by hand."""

import math
from collections.abc import Sequence

import pytest

from tuner.analysis.serving import serving_of
from tuner.output.serving import edge_in_words
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose, Slice, packed
from tuner.record.load import Batching, Slo
from tuner.record.outcome import Ending, Outcome
from tuner.record.serving import Served

SLO = Slo(0.99, 0.1, "--slo p99=100ms")
RATES = (40.0, 47.5, 55.0)


def launched(
    late: Sequence[Sequence[int]], late_s: float = 0.15, rates: Sequence[float] = RATES
) -> LaunchRecord:
    """Return a launch whose trials of 1,000 requests each had these late ones."""
    record = LaunchRecord(LaunchRequest(1, Configuration(), 1, Purpose.CONFIRM, round=1, slo=SLO))
    timed = Served(Batching((1,)), 30, sustained=50.0)
    calls = packed([0.01] * 30)
    record.slices.append(Slice(1, 1, 30, 0.3, 0.5, packed_calls=calls, served=timed))
    for rate, numbers in zip(rates, late, strict=True):
        call_s = [0.02] * 1000
        for number in numbers:
            call_s[number] = late_s
        served = Served(Batching((1,)), 1000, offered=rate, seed=3)
        record.slices.append(
            Slice(2, 1, 1000, 1000 / rate, 1.0, packed_calls=packed(call_s), served=served)
        )
    record.ending = Ending(Outcome.MEASURED)
    return record


def test_the_rate_the_slope_and_the_late_requests_of_each_trial_are_told() -> None:
    record = launched([range(2), range(7), range(19)])
    found = serving_of([record, record, record], SLO)
    assert found is not None
    assert [tried.n_late for tried in found.rates] == [2, 7, 19] * 3
    assert found.rate == pytest.approx(50.0, rel=0.03) and found.slope is not None
    assert 5.0 < found.slope < 8.0
    assert (found.n_met, found.n_launches, found.is_open, found.pauses) == (3, 3, False, None)
    more = 1.1**found.slope
    assert f"with 10 % more load {more:.1f} times" in edge_in_words(found)


def test_where_the_load_does_not_matter_pauses_are_described() -> None:
    """Two pauses in each trial, of 250 ms, each of which made five requests late."""
    late = [*range(200, 205), *range(600, 605)]
    record = launched([late] * 3, late_s=0.27)
    found = serving_of([record] * 8, SLO)
    assert found is not None and found.pauses is not None
    seconds = sum(1000 / rate for rate in RATES)
    assert found.pauses.n == 48 and found.pauses.seconds == pytest.approx(0.25, rel=1e-3)
    assert found.pauses.every_s == pytest.approx(8 * seconds / 48)
    assert "pauses of about 250 ms, one in 11 s" in edge_in_words(found)


def test_where_no_rate_was_too_high_it_is_a_least() -> None:
    found = serving_of([launched([[], [], []])], SLO)
    assert found is not None and found.is_open and math.isfinite(found.rate or 0.0)
    assert "so that it is a least" in edge_in_words(found)


def test_launches_that_tried_only_what_was_too_much_count_by_what_others_showed() -> None:
    """As in the claim: the rate is one of all launches together."""
    above = launched([range(300), range(400), range(500)], rates=(75.0, 85.0, 95.0))
    alone = serving_of([above], SLO)
    assert alone is not None and (alone.n_met, alone.n_launches) == (0, 1)
    beside = launched([range(2), range(7), range(19)])
    together = serving_of([beside, beside, above], SLO)
    assert together is not None and (together.n_met, together.n_launches) == (3, 3)
