"""Callers of one process: the same threads, at the same time, each in the context of its calls."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tuner.worker.scenarios.callers import Threads

N = 3


def test_all_work_at_the_same_time() -> None:
    together = threading.Barrier(N)  # breaks, unless all of them come
    callers = Threads(N, quiet)
    found = callers.at_once(lambda: together.wait(timeout=30))
    assert sorted(found) == list(range(N))


@contextmanager
def quiet() -> Iterator[None]:
    yield


def test_each_thread_enters_its_context_once_and_stays_in_it() -> None:
    entered = threading.local()
    n_entered = []

    @contextmanager
    def running() -> Iterator[None]:
        entered.depth = getattr(entered, "depth", 0) + 1
        n_entered.append(threading.get_ident())
        yield
        entered.depth -= 1

    callers = Threads(N, running)
    for _ in range(3):
        found = callers.at_once(lambda: (threading.get_ident(), entered.depth))
        assert {depth for _, depth in found} == {1}
        assert {ident for ident, _ in found} == set(n_entered)
    assert len(n_entered) == N


def test_whoever_is_through_goes_on_until_all_are() -> None:
    """None is timed while the others have stopped."""
    order = itertools.count()
    went_on: list[int] = []

    def work() -> int:
        me = threading.get_ident()
        if next(order) == 0:
            time.sleep(0.05)  # the slow one
            return -1
        return me

    def meanwhile() -> None:
        went_on.append(threading.get_ident())
        time.sleep(0.001)

    found = Threads(N, quiet).at_once(work, meanwhile)
    assert set(went_on) <= {me for me in found if me != -1}
    assert went_on


def test_what_one_of_them_fails_with_is_raised() -> None:
    def work() -> None:
        raise ZeroDivisionError("of one caller")

    callers = Threads(N, quiet)
    with pytest.raises(ZeroDivisionError, match="of one caller"):
        callers.at_once(work)
    assert callers.at_once(lambda: 1) == [1] * N  # the threads live on
