"""What a launch is to do next, played against a server whose latency is known."""

import math
from pathlib import Path

import msgspec
import pytest

from tuner.measurement.arrival_plan import ArrivalPlan, n_requests
from tuner.measurement.queueing import with_sustained
from tuner.measurement.server_trials import is_conclusive, launch_log_rate, launched
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
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
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
    n_late = round(offer.n_requests * min(1.0, SLO.allowed * (offer.rate / EDGE) ** 7))
    calls = packed([0.2] * n_late + [0.05] * (offer.n_requests - n_late))
    served = Served(ONE, offer.n_requests, offered=offer.rate)
    seconds = offer.n_requests / offer.rate
    return Slice(2, 1, offer.n_requests, seconds, 1.0, packed_calls=calls, served=served)


def launch(purpose: Purpose, number: int = 3) -> LaunchRecord:
    return LaunchRecord(LaunchRequest(1, Configuration(), 1, purpose, round=number, slo=SLO))


def plan(objective: Objective = SERVED, *launches: LaunchRecord, seed: int = 0) -> ArrivalPlan:
    return ArrivalPlan(lambda: launches, objective, seed)


@pytest.mark.parametrize("expected", [20.0, 45.0, 80.0, 0.05])
def test_requests_are_sent_around_the_edge_until_it_is_known(expected: float) -> None:
    record, planned = launch(Purpose.CONFIRM), plan()
    assert planned.next_offer(record) is None  # first the batches are timed
    assert not planned.is_settled(record)
    record.slices.append(timed(expected))
    offers = []
    while (offer := planned.next_offer(record)) is not None:
        assert not planned.is_settled(record)
        offers.append(offer)
        record.slices.append(answered(offer))
    assert planned.is_settled(record)
    assert 3 <= len(offers) <= 8
    assert len({offer.seed for offer in offers}) == len(offers)  # each is another draw
    log_rate = launch_log_rate(record, SLO)
    assert log_rate is not None and math.exp(log_rate) == pytest.approx(EDGE, rel=0.06)


def test_what_other_launches_showed_is_known_to_the_next() -> None:
    earlier = launch(Purpose.CONFIRM)
    earlier.slices.append(timed(20.0))
    while (offer := plan().next_offer(earlier)) is not None:
        earlier.slices.append(answered(offer))
    earlier.ending = Ending(Outcome.MEASURED)
    record = LaunchRecord(msgspec.structs.replace(earlier.request, id=2, round=4))
    record.slices.append(timed(20.0))
    offer = plan(SERVED, earlier, record).next_offer(record)
    assert offer is not None and 0.6 * EDGE < offer.rate < EDGE
    interrupted = LaunchRecord(earlier.request, slices=earlier.slices)
    alone = plan(SERVED, interrupted, record).next_offer(record)
    assert alone is not None and alone.rate < 0.5 * EDGE


def test_the_arms_of_a_round_get_the_same_arrivals_and_others_do_not() -> None:
    seeds = []
    for number, seed in ((3, 0), (3, 0), (4, 0), (3, 7)):
        record = launch(Purpose.CONFIRM, number)
        record.slices.append(timed(45.0))
        offer = plan(seed=seed).next_offer(record)
        assert offer is not None
        seeds.append(offer.seed)
    assert seeds[0] == seeds[1] and len(set(seeds)) == 3


def test_the_search_sends_nobody_any_requests() -> None:
    record = launch(Purpose.SEARCH)
    record.slices.append(timed(45.0))
    assert plan().next_offer(record) is None
    assert plan().is_settled(record)


def test_other_objectives_need_as_many_calls_as_their_percentile() -> None:
    record = launch(Purpose.CONFIRM)
    latency = Objective.of("latency_p99")
    for _ in range(3):
        assert not plan(latency).is_settled(record)
        record.slices.append(Slice(1, 1, 40, 0.3, 0.5, packed_calls=packed([0.01] * 40)))
    assert plan(latency).is_settled(record)
    assert plan(latency).next_offer(record) is None


def test_a_trial_holds_some_late_requests_and_seconds_of_them() -> None:
    assert n_requests(10.0, SLO) == 300  # three late ones at the rate in question
    assert n_requests(300.0, SLO) == 3000
    assert n_requests(500.0, Slo(0.99, 2.0, "")) == 4000  # ten times the bound, or a line ...
    assert n_requests(80.0, Slo(0.99, 2.0, "")) == 1600  # ... has no time to grow
    assert n_requests(20.0, Slo(0.9, 0.1, "")) == 200
    assert n_requests(2.0, SLO) == 120  # a minute of them
    assert n_requests(1.0, SLO) == 100  # but no fewer than say anything


def test_disturbed_trials_count() -> None:
    record = launch(Purpose.CONFIRM)
    record.slices.append(timed(45.0))
    offer = plan().next_offer(record)
    assert offer is not None
    taken = answered(Offer(1.2 * offer.rate, offer.n_requests, 1))
    record.slices.append(msgspec.structs.replace(taken, interference=Interference(dirty=("x",))))
    trials = launched(record, SLO).trials
    assert [(t.rate, t.n_late > 0) for t in trials] == [(1.2 * offer.rate, True)]


def test_a_launch_that_was_cut_short_does_not_tell_that_the_bound_is_missed() -> None:
    late = Slo(0.99, 0.01, "")
    served = msgspec.structs.replace(SERVED, slo=late)
    record = launch(Purpose.CONFIRM)
    record.slices.append(timed(0.01))
    told = []
    while (offer := plan(served).next_offer(record)) is not None:
        record.slices.append(answered(offer))  # longer than 10 ms, all of them
        told.append(is_conclusive(record, served))
        assert launch_log_rate(record, late) is None
    assert len(told) > 2
    assert told == [False] * (len(told) - 1) + [True]
    assert is_conclusive(record, SERVED), "what keeps a bound tells so at once"


def of_own(rates: tuple[float, ...]) -> Slice:
    """Time a server of the user's own, whose callers wait longer the more they are."""
    levels = tuple(Level(2**i, rate, packed([0.02 * 2**i] * 30)) for i, rate in enumerate(rates))
    served = Served(ONE, 30 * len(rates), levels=levels)
    return Slice(1, 1, 30, 1.0, 0.5, packed_calls=packed([0.02] * 30), served=served)


def test_a_server_of_ones_own_is_not_held_to_what_callers_have_shown() -> None:
    """Its batches may be fuller when more requests wait."""
    record = launch(Purpose.CONFIRM)
    taken = with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), SLO, round_number=1)
    assert taken.served is not None and 30.0 < taken.served.sustained <= 31.0
    assert taken.served.long_run == 0.0  # how it combines requests is its own
    record.slices.append(taken)
    while (offer := plan().next_offer(record)) is not None:
        record.slices.append(answered(offer))
    log_rate = launch_log_rate(record, SLO)
    assert log_rate is not None and math.exp(log_rate) == pytest.approx(EDGE, rel=0.06)


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
    offer = plan(traced).next_offer(record)
    assert offer is not None
    assert offer.longest_s >= 10 * slo.seconds or offer.n_requests == 1000
    record.slices.append(answered(offer))
    faster = launch(Purpose.CONFIRM)
    faster.slices.append(timed(200.0))
    other = plan(traced, record).next_offer(faster)
    assert other is not None and other.rate > 2 * offer.rate
    assert other.moments == offer.moments, "of more requests, the rush is not as close together"
    expected = with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), slo)
    at_random = with_sustained(of_own((20.0, 30.0, 31.0, 31.0)), Slo(0.9, 0.5, ""))
    assert expected.served is not None and at_random.served is not None
    assert expected.served.sustained < at_random.served.sustained
