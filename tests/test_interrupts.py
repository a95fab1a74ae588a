"""Signals: none is lost, none comes in the middle of what is held."""

import os
import signal
from collections.abc import Iterator

import pytest

from tuner import interrupts
from tuner.errors import Interrupted

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers_as_they_were() -> Iterator[None]:
    before = [signal.getsignal(number) for number in NUMBERS]
    yield
    for number, handler in zip(NUMBERS, before, strict=True):
        signal.signal(number, handler)


def ask(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_an_exception_that_nothing_catches_by_accident(number: signal.Signals) -> None:
    with pytest.raises(Interrupted, match=f"stopped by {number.name}"), interrupts.heeded():
        try:
            ask(number)
        except Exception:  # noqa: BLE001  # as a library has it
            pytest.fail("it was caught")


def test_a_signal_that_has_ended_a_block_is_not_asked_for_again() -> None:
    with pytest.raises(Interrupted), interrupts.heeded():
        ask()
    interrupts.raise_asked()


def test_a_signal_waits_until_the_outermost_block_has_ended() -> None:
    steps = []
    with pytest.raises(Interrupted), interrupts.heeded(), interrupts.held_back():
        with interrupts.held_back():
            ask()
            interrupts.raise_asked()
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]


def test_a_second_signal_does_not_wait() -> None:
    steps = []
    with pytest.raises(Interrupted), interrupts.heeded(), interrupts.held_back():
        ask()
        steps.append("first")
        ask()
        steps.append("second")
    assert steps == ["first"]


def test_a_block_that_fails_does_not_drop_the_signal() -> None:
    with pytest.raises(Interrupted), interrupts.heeded(), interrupts.held_back():
        ask()
        raise RuntimeError("the database is locked")


class _Finalised:
    def __del__(self) -> None:
        ask()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_dropped_is_raised_at_the_next_step() -> None:
    with interrupts.heeded():
        _Finalised()
        with pytest.raises(Interrupted):
            interrupts.raise_asked()


def test_what_a_library_makes_of_a_signal_is_the_signal() -> None:
    with pytest.raises(Interrupted), interrupts.heeded():
        try:
            ask()
        finally:
            raise OSError("the terminal has gone")


def test_other_exceptions_pass_and_a_signal_of_an_earlier_block_is_forgotten() -> None:
    with pytest.raises(Interrupted), interrupts.heeded():
        ask()
    with pytest.raises(RuntimeError), interrupts.heeded():
        interrupts.raise_asked()
        raise RuntimeError


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupts.heeded():
        ask(signal.SIGHUP)
        interrupts.raise_asked()
