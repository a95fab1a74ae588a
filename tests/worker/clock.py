"""A clock that stands still unless somebody works or waits."""

from contextlib import AbstractContextManager, nullcontext


class Clock:
    """As much of a framework's work as scenarios ask for."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def wait_until(self, moment: float) -> None:
        self.now = max(self.now, moment)

    def work(self, seconds: float) -> None:
        self.now += seconds
