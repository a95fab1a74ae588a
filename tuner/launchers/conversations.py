"""Conversations with several workers at once: one select loop, no threads.

A conversation is a generator. It yields whenever it must wait, and receives whether the event has
come (True) or is overdue (False). Its return value is its result.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from tuner import interrupts

T = TypeVar("T")


class Awaited(msgspec.Struct, frozen=True):
    """What a conversation waits for: something to read, until a time of CLOCK_MONOTONIC."""

    fd: int
    until: float


Conversation: TypeAlias = Generator[Awaited, bool, T]
Passed = Callable[[Sequence[int]], None]


def _unheard(_: Sequence[int]) -> None:
    """Take no note of the time."""


def converse(conversations: Sequence[Conversation[T]], passed: Passed = _unheard) -> list[T]:
    """Run conversations in parallel until each has ended; return their results, in order.

    passed: called before one continues or ends, with those that have been running since the last
    call.

    Blocks without using the CPU. An error in a conversation ends them all.
    """
    waiting: dict[int, Awaited] = {}
    found: dict[int, T] = {}

    def tell_time() -> None:
        passed([i for i in range(len(conversations)) if i not in found])

    def go_on(i: int, has_come: bool | None) -> None:
        try:
            awaited = (
                next(conversations[i]) if has_come is None else conversations[i].send(has_come)
            )
        except StopIteration as end:
            tell_time()
            found[i] = end.value
            waiting.pop(i, None)
        else:
            waiting[i] = awaited

    try:
        interrupts.raise_asked()
        for i in range(len(conversations)):
            go_on(i, None)
        while waiting:
            interrupts.raise_asked()
            left_s = min(each.until for each in waiting.values()) - time.monotonic()
            ready, _, _ = select.select([w.fd for w in waiting.values()], [], [], max(0.0, left_s))
            tell_time()
            now = time.monotonic()
            for i, awaited in list(waiting.items()):
                if awaited.fd in ready:
                    go_on(i, True)
                elif awaited.until <= now:
                    go_on(i, False)
    finally:
        for each in conversations:
            each.close()
    return [found[i] for i in range(len(conversations))]


def alone(conversation: Conversation[T]) -> T:
    """Lead one conversation to its end."""
    return converse([conversation])[0]
