"""What a launch is to do next, played against a server whose latency is known."""

from pathlib import Path

import msgspec
import pytest

from tuner.measurement.arrival_plan import is_conclusive, is_settled, n_requests, next_offer
from tuner.measurement.queueing import with_sustained
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Purpose,
    Slice,
    packed,
)
from tuner.record.load import Batching, Offer, Slo
from tuner.record.objective import Objective, trials_of
from tuner.record.serving import Level, Served
from tuner.record.trace import read_trace

SLO = Slo(0.99, 0.1, "--slo p99=100ms")
SERVED = msgspec.structs.replace(Objective.of("rate_within"), slo=SLO)
ONE = Batching((1,))
EDGE = 50.0


def timed(sustained: float) -> Slice:
    calls = packed([0.01] * 30)
    return Slice(
        1, 1, 30, 0.3, 0.5, packed_calls=calls, served=Served(ONE, 30, sustained=sustained)
    )


def answered(offer: Offer) -> Slice:
    latency_s = 0.02 + 0.08 * (offer.rate / EDGE) ** 3
    calls = packed([latency_s] * offer.n_requests)
    served = Served(ONE, offer.n_requests, offered=offer.rate)
    seconds = offer.n_requests / offer.rate
    return Slice(2, 1, offer.n_requests, seconds, 1.0, packed_calls=calls, served=served)


def launch(purpose: Purpose, number: int = 3) -> LaunchRecord:
    return LaunchRecord(LaunchRequest(1, Configuration(), 1, purpose, round=number, slo=SLO))


@pytest.mark.parametrize("expected", [20.0, 45.0, 80.0, 0.05])
def test_requests_are_sent_around_the_edge_until_it_is_known(expected: float) -> None:
    record = launch(Purpose.CONFIRM)
    assert next_offer(record, SERVED) is None  # first the batches are timed
    assert not is_settled(record, SERVED)
    record.slices.append(timed(expected))
    offers = []
    while (offer := next_offer(record, SERVED)) is not None:
        assert not is_settled(record, SERVED)
        offers.append(offer)
        record.slices.append(answered(offer))
    assert is_settled(record, SERVED)
    assert len(trials_of(record.slices, SLO)) == len(offers) >= 5
    assert len({offer.seed for offer in offers}) == len(offers)  # each is another draw
    log_score = SERVED.of_launch(record.slices)
    assert log_score is not None
    assert SERVED.value(log_score) == pytest.approx(EDGE, rel=0.03)


def test_the_arms_of_a_round_get_the_same_arrivals_and_those_of_another_do_not() -> None:
    seeds = []
    for number in (3, 3, 4):
        record = launch(Purpose.CONFIRM, number)
        record.slices.append(timed(45.0))
        offer = next_offer(record, SERVED)
        assert offer is not None
        seeds.append(offer.seed)
    assert seeds[0] == seeds[1] != seeds[2]


def test_the_search_sends_nobody_any_requests() -> None:
    record = launch(Purpose.SEARCH)
    record.slices.append(timed(45.0))
    assert next_offer(record, SERVED) is None
    assert is_settled(record, SERVED)


def test_other_objectives_need_as_many_calls_as_their_percentile() -> None:
    record = launch(Purpose.CONFIRM)
    latency = Objective.of("latency_p99")
    for _ in range(3):
        assert not is_settled(record, latency)
        record.slices.append(Slice(1, 1, 40, 0.3, 0.5, packed_calls=packed([0.01] * 40)))
    assert is_settled(record, latency)
    assert next_offer(record, latency) is None


def test_a_trial_holds_two_requests_beyond_the_quantile_and_seconds_of_them() -> None:
    assert n_requests(5.0, SLO) == 200
    assert n_requests(500.0, SLO) == 1500
    assert n_requests(500.0, Slo(0.99, 1.0, "")) == 4000  # ten times the bound, or a line ...
    assert n_requests(200.0, Slo(0.99, 1.0, "")) == 2000  # ... has no time to grow
    assert n_requests(20.0, Slo(0.9, 0.1, "")) == 60
    assert n_requests(2.0, SLO) == 120  # a minute of them
    assert n_requests(1.0, SLO) == 100  # but no fewer than say anything


def test_a_server_is_worth_no_more_than_it_can_answer() -> None:
    """However short its trials were beside a bound of seconds."""
    far = msgspec.structs.replace(SERVED, slo=Slo(0.99, 10.0, ""))
    trials = [answered(Offer(rate, 4000, 1)) for rate in (150.0, 200.0)]
    log_score = far.of_launch([timed(90.0), *trials])
    assert log_score is not None
    assert far.value(log_score) == pytest.approx(100.0)  # calls take 10 ms


def test_a_server_that_is_never_in_time_has_no_worth() -> None:
    late = msgspec.structs.replace(SERVED, slo=Slo(0.99, 0.01, ""))
    assert late.of_launch([timed(0.1), answered(Offer(20.0, 200, 1))]) is None


def test_a_disturbed_trial_is_made_again_and_does_not_count() -> None:
    record = launch(Purpose.CONFIRM)
    record.slices.append(timed(45.0))
    offer = next_offer(record, SERVED)
    assert offer is not None
    late = answered(Offer(4 * offer.rate, offer.n_requests, 1)).packed_calls
    disturbed = msgspec.structs.replace(
        answered(offer), packed_calls=late, interference=Interference(dirty=("stolen",))
    )
    record.slices.append(disturbed)
    again = next_offer(record, SERVED)
    assert again is not None
    record.slices.append(answered(again))
    assert len(trials_of(record.slices, SLO)) == 1


def test_a_launch_that_was_cut_short_does_not_tell_that_the_bound_is_missed() -> None:
    late = msgspec.structs.replace(SERVED, slo=Slo(0.99, 0.01, ""))
    record = launch(Purpose.CONFIRM)
    record.slices.append(timed(0.01))
    told = []
    while (offer := next_offer(record, late)) is not None:
        record.slices.append(answered(offer))
        told.append(is_conclusive(record, late))
    assert late.of_launch(record.slices) is None
    assert len(told) > 2
    assert told == [False] * (len(told) - 1) + [True]
    assert is_conclusive(record, SERVED), "what keeps a bound tells so at once"


def of_own(rates: tuple[float, ...]) -> Slice:
    """Time a server of the user's own, whose callers wait longer the more they are."""
    levels = tuple(Level(2**i, rate, packed([0.02 * 2**i] * 30)) for i, rate in enumerate(rates))
    served = Served(ONE, 30 * len(rates), levels=levels)
    return Slice(1, 1, 30, 1.0, 0.5, packed_calls=packed([0.02] * 30), served=served)


def test_a_server_of_ones_own_is_not_held_to_what_callers_have_shown() -> None:
    """Its batches may be fuller when more requests wait; its trials last longer for that."""
    record = launch(Purpose.CONFIRM)
    taken = with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), SLO)
    assert taken.served is not None and 30.0 < taken.served.sustained <= 31.0
    record.slices.append(taken)
    offers = []
    while (offer := next_offer(record, SERVED)) is not None:
        offers.append(offer)
        record.slices.append(answered(offer))
    log_score = SERVED.of_launch(record.slices)
    assert log_score is not None and SERVED.value(log_score) == pytest.approx(EDGE, rel=0.03)
    bound = Slo(0.99, 1.0, "")
    longer = msgspec.structs.replace(SERVED, slo=bound)
    begun = launch(Purpose.CONFIRM)
    begun.slices.append(with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), bound))
    first = next_offer(begun, longer)
    assert first is not None and first.n_requests == pytest.approx(20.0 * first.rate, abs=1.0)


def test_the_rush_hour_of_a_trace_lasts_as_long_as_any_trial(tmp_path: Path) -> None:
    """Ten times as close together as all on average, it would be over in a tenth of the time."""
    moments = [i * 1.0 for i in range(2000)]
    for begin in (500, 1500):  # one in either half
        for i in range(400):
            moments[begin + i :] = [m - 0.9 for m in moments[begin + i :]]
    path = tmp_path / "trace.txt"
    path.write_text("\n".join(map(repr, moments)))
    slo = Slo(0.9, 0.5, "", read_trace(path))
    traced = msgspec.structs.replace(SERVED, slo=slo)
    record = launch(Purpose.CONFIRM)
    record.slices.append(timed(20.0))
    offer = next_offer(record, traced)
    assert offer is not None
    assert offer.lasts_s >= 10 * slo.seconds or offer.n_requests == 1000
    expected = with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), slo)
    at_random = with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), Slo(0.9, 0.5, ""))
    assert expected.served is not None and at_random.served is not None
    assert expected.served.sustained < at_random.served.sustained
