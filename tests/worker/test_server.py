"""A server's line and its answers, on a clock that stands still unless it works."""

import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from tests.worker.clock import Clock
from tuner.host.interference import Watch
from tuner.measurement.queueing import waited
from tuner.record.arrivals import due_of
from tuner.record.load import Batching, Load, Offer
from tuner.record.protocol import LINE_BYTES, Measure
from tuner.record.service_times import service_times
from tuner.worker.frameworks import Work
from tuner.worker.scenarios import SCENARIOS, Scenario
from tuner.worker.scenarios.request_queue import RequestQueue, Taken, arrivals

TIMES = {1: 0.010, 2: 0.014, 4: 0.020}


def server(batching: Batching, times: Mapping[int, float] = TIMES, n_shapes: int = 1) -> Scenario:
    clock = Clock()
    clock.now = 100.0  # no request is due at the clock's zero
    calls = {
        size: [lambda s=times[size]: clock.work(s) for _ in range(n_shapes)]
        for size in batching.sizes
    }
    load = Load("server", batching.largest, batching=batching)
    return SCENARIOS["server"](load, calls, cast(Work, clock))


@pytest.mark.parametrize("wait_s", [0.0, 0.005])
def test_requests_take_as_long_as_the_simulated_queue_says(wait_s: float) -> None:
    """The loop that answers and the simulation that ranks are of one mind about the line."""
    batching = Batching((1, 2, 4), wait_s=wait_s)
    offer = Offer(rate=90.0, n_requests=400, seed=5)
    taken = server(batching).measure(Measure(3, 0.3, 0, offer=offer), Watch(), None)
    assert taken is not None and taken.served is not None
    due = due_of(offer)
    expected = waited(batching, {size: [s] for size, s in TIMES.items()}, due)
    n = taken.calls
    assert taken.call_s == pytest.approx(expected[:n], abs=1e-4)
    assert taken.served.n_requests == n
    assert (taken.served.offered, taken.served.seed) == (90.0, 5)


def test_requests_go_on_until_the_server_is_idle() -> None:
    """Else those that come last have nobody behind them, and a queue no time to go."""
    offer = Offer(rate=90.0, n_requests=400, seed=5)
    taken = server(Batching((1,))).measure(Measure(3, 0.3, 0, offer=offer), Watch(), None)
    assert taken is not None
    due, n = due_of(offer), taken.calls
    ends = due[:n] + taken.call_s
    assert n > 400 and max(ends) <= due[n] + 1e-6
    assert all(max(ends[:k]) > due[k] + 1e-6 for k in range(400, n)), "it ends the first time"
    busy = Offer(rate=300.0, n_requests=400, seed=5)
    taken = server(Batching((1,))).measure(Measure(3, 0.3, 0, offer=busy), Watch(), None)
    assert taken is not None and taken.calls == 2 * 400
    moments = tuple(float(moment) for moment in range(1, 51))
    traced = Offer(rate=30.0, n_requests=50, seed=5, moments=moments)
    taken = server(Batching((1,))).measure(Measure(3, 0.3, 0, offer=traced), Watch(), None)
    assert taken is not None and taken.served is not None
    assert (taken.calls, taken.served.seed) == (50, None)


def test_a_line_does_not_end_while_another_instance_is_at_work(tmp_path: Path) -> None:
    path = tmp_path / "launch.line"
    path.write_bytes(bytes(LINE_BYTES))
    due = [[0.0, 0.1, 0.2, 5.0]]
    first, second = (RequestQueue(due, Batching((1,)), str(path), least=2) for _ in range(2))
    assert first.take(0.0) == Taken(0, [0.0])
    assert second.take(0.1) == Taken(0, [0.1])
    assert second.take(0.15) == 0.2, "the first works on its request"
    assert second.take(0.2) == Taken(0, [0.2])
    assert first.take(0.3) == 5.0
    assert second.take(0.4) is None
    assert first.take(5.0) is None
    first.close()
    second.close()


def test_without_requests_every_size_is_timed_in_turn() -> None:
    taken = server(Batching((1, 2, 4))).measure(Measure(0, 0.3, 1), Watch(), None)
    assert taken is not None and taken.served is not None
    found = service_times(taken)
    assert {size: set(map(float, found[size])) for size in found}.keys() == TIMES.keys()
    for size, seconds in found.items():
        assert seconds == pytest.approx([TIMES[size]] * len(seconds))
    n_rounds = taken.calls // 3
    assert taken.rate == pytest.approx(7 * n_rounds / taken.seconds)


def test_a_batch_holds_one_shape_and_the_oldest_decides_which() -> None:
    due = [[0.0, 0.2], [0.1, 0.11]]
    line = RequestQueue(due, Batching((1, 2)), "")
    assert line.take(0.15) == Taken(0, [0.0])
    assert line.take(0.15) == Taken(1, [0.1, 0.11])
    assert line.take(0.15) == 0.2  # comes then
    assert line.take(0.2) == Taken(0, [0.2])
    assert line.take(0.2) is None


def test_shapes_arrive_mixed() -> None:
    offer = Offer(10.0, 1000, 1)
    taken = server(Batching((1, 2, 4)), n_shapes=3).measure(
        Measure(0, 0.3, 0, offer=offer), Watch(), None
    )
    assert taken is not None and taken.served is not None
    assert taken.calls >= 1000 and taken.served.n_shapes == 3
    counts = [len(due) for due in arrivals(offer, 3)]
    assert sum(counts) == offer.most_requests and min(counts) > 560


def test_the_same_seed_is_the_same_arrivals_closer_together() -> None:
    (slow,), (fast,) = (arrivals(Offer(rate, 50, 7), 1) for rate in (10.0, 20.0))
    assert fast == pytest.approx([due / 2 for due in slow])


def take_all(path: str, found: "multiprocessing.Queue[list[float]]") -> None:
    line = RequestQueue([[k / 1000 for k in range(500)]], Batching((1, 2, 4)), path)
    mine: list[float] = []
    while (next_ := line.take(10.0)) is not None:
        assert isinstance(next_, Taken)
        mine += next_.due
    found.put(mine)


def test_instances_take_each_request_once(tmp_path: Path) -> None:
    path = tmp_path / "launch.line"
    path.write_bytes(bytes(LINE_BYTES))
    context = multiprocessing.get_context("spawn")
    found: multiprocessing.Queue[list[float]] = context.Queue()
    processes = [context.Process(target=take_all, args=(str(path), found)) for _ in range(3)]
    for process in processes:
        process.start()
    taken = [due for _ in processes for due in found.get(timeout=60)]
    for process in processes:
        process.join(60)
    assert sorted(taken) == [k / 1000 for k in range(500)]
