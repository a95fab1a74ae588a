"""What an instance has to know about the others: when a slice begins, and when it is over.

Instances compete for memory bandwidth, caches and power, so that a slice counts only while all of
them work. They begin at the same moment. An instance that has timed its slice continues to work,
untimed, until the last one has.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from tuner.errors import WorkerFailed
from tuner.record.protocol import READY, TIMED, Command, Go, Halt


class Orders:
    """The commands of the tool, in their order.

    The pipe must be unbuffered: `are_waiting` asks the kernel.
    """

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._decoder = msgspec.json.Decoder(Command)

    def __iter__(self) -> Iterator[Command]:
        for line in self._pipe:
            yield self._decoder.decode(line)

    def next(self) -> Command | None:
        """Return the next command; None when the tool has gone."""
        return next(iter(self), None)

    def are_waiting(self) -> bool:
        """Tell whether a command can be read at once (or the tool has gone)."""
        return bool(select.select([self._pipe], [], [], 0)[0])


class InstanceBarrier:
    """The other instances, seen through the tool."""

    def __init__(self, orders: Orders, tell: Callable[[str], None]) -> None:
        self._orders = orders
        self._tell = tell

    def agree(self) -> float:
        """Tell that this instance is ready; return the moment at which all begin (monotonic)."""
        self._tell(READY)
        order = self._orders.next()
        if not isinstance(order, Go):
            raise WorkerFailed(f"the slice was not begun: {order!r}")
        return order.at

    def keep_up(self, call: Callable[[], Any]) -> None:
        """Work on until every instance has timed its slice."""
        self._tell(TIMED)
        while not self._orders.are_waiting():
            call()
        order = self._orders.next()
        if not isinstance(order, Halt):
            raise WorkerFailed(f"the slice was not ended: {order!r}")


def sleep_until(moment: float) -> None:
    """Return at a moment of CLOCK_MONOTONIC, or at once if it is over."""
    time.sleep(max(0.0, moment - time.monotonic()))
