"""Who calls the model: one, or several threads of the process at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol, TypeAlias, TypeVar

Running: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Makes the context in which calls are made: what PyTorch has in it holds for one thread."""
_T = TypeVar("_T")


class Callers(Protocol):
    """One or several, who do the same work at the same time."""

    def at_once(
        self, work: Callable[[], _T], meanwhile: Callable[[], object] | None = None
    ) -> list[_T]:
        """Let each caller do some work, begun at the same moment; return their results.

        A caller that is done continues with `meanwhile` until all are, so that none works
        undisturbed.
        """


class Alone:
    """The one caller, in the thread that has entered the context already."""

    def at_once(
        self, work: Callable[[], _T], meanwhile: Callable[[], object] | None = None
    ) -> list[_T]:
        """Do the work."""
        return [work()]


class Threads:
    """Several callers, the same threads from first to last: each keeps the pool of its own."""

    def __init__(self, n: int, running: Running) -> None:
        """running: entered once by each thread."""
        self._n = n
        self._begin = threading.Barrier(n)
        self._lock = threading.Lock()
        self._n_busy = 0
        self._pool = ThreadPoolExecutor(n, "caller", _enter, (running,))

    def at_once(
        self, work: Callable[[], _T], meanwhile: Callable[[], object] | None = None
    ) -> list[_T]:
        """Let each caller do some work, begun at the same moment; return their results."""
        self._n_busy = self._n

        def caller() -> _T:
            self._begin.wait()  # so that no thread takes two of these
            try:
                return work()
            finally:
                with self._lock:
                    self._n_busy -= 1
                while meanwhile and self._n_busy:
                    meanwhile()

        return [each.result() for each in [self._pool.submit(caller) for _ in range(self._n)]]


_entered = threading.local()


def _enter(running: Running) -> None:
    """Enter a context for as long as the thread lives."""
    _entered.stack = ExitStack()
    _entered.stack.enter_context(running())
