"""Warm-up and slices over a clock that the test winds."""

from collections.abc import Iterator
from typing import cast

import pytest

from tests.worker.clock import Clock
from tuner.host.interference import Watch
from tuner.record.load import Load
from tuner.record.protocol import Measure
from tuner.worker.frameworks import Work
from tuner.worker.scenarios import SCENARIOS, Scenario
from tuner.worker.scenarios.timing import fastest


class Calls(Clock):
    """A clock and the calls that wind it."""

    def __init__(self, durations: Iterator[float]) -> None:
        super().__init__()
        self.calls = 0
        self._durations = durations

    def call(self) -> None:
        self.calls += 1
        self.work(next(self._durations))


def offline(clock: Calls) -> Scenario:
    return SCENARIOS["offline"](Load("offline", 4), {4: [clock.call]}, cast(Work, clock))


def always(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def settling(factor: float, floor: float) -> Iterator[float]:
    duration = 1.0
    while True:
        duration = max(floor, duration * factor)
        yield duration


@pytest.mark.parametrize(("seconds", "calls"), [(0.01, 50), (0.2, 3), (2.0, 3)])
def test_a_steady_model_is_warm_soon(seconds: float, calls: int) -> None:
    clock = Calls(always(seconds))
    found = offline(clock).warm_up()
    assert found.is_steady
    assert found.call_s == pytest.approx(seconds)
    assert calls <= clock.calls <= calls + 2


@pytest.mark.parametrize(
    ("durations", "seconds"),
    [((3.99, 0.27, 0.27), 0.27), ((4.0, 3.0), 3.0), ((0.3, 0.2, 0.1), 0.1)],
)
def test_one_call_that_a_busy_host_slows_down_does_not_time_a_model(
    durations: tuple[float, ...], seconds: float
) -> None:
    clock = Calls(iter(durations))
    assert fastest(clock.call, clock.clock) == pytest.approx(seconds)
    assert clock.calls == len(durations)


def test_a_model_that_speeds_up_is_waited_for() -> None:
    clock = Calls(settling(0.7, 0.05))
    found = offline(clock).warm_up()
    assert found.is_steady
    assert found.call_s == pytest.approx(0.05, rel=0.1)


def test_a_model_that_never_settles_is_said_to_be_unsteady() -> None:
    def growing() -> Iterator[float]:
        duration = 0.05
        while True:
            duration *= 1.2
            yield duration

    clock = Calls(growing())
    found = offline(clock).warm_up()
    assert not found.is_steady
    assert 6.0 <= found.seconds < 15


@pytest.mark.parametrize(("call_s", "calls"), [(0.1, 3), (5.0, 1), (0.29, 2)])
def test_a_slice_is_whole_calls_for_at_least_its_seconds(call_s: float, calls: int) -> None:
    clock = Calls(always(call_s))
    found = offline(clock).measure(Measure(7, 0.3, 0), Watch(), None)
    assert found is not None
    assert (found.index, found.calls) == (7, calls)
    assert found.seconds == pytest.approx(calls * call_s)
    assert found.rate == pytest.approx(4 / call_s)
