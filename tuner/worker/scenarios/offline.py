"""Offline: batch after batch as fast as the model takes them; the metric is items per second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tuner.host.interference import Watch
from tuner.record.launch import Slice


class WarmUp(msgspec.Struct, frozen=True):
    """What it took to become steady."""

    seconds: float
    call_s: float
    """Median seconds of the last calls."""
    is_steady: bool


_MIN_CALLS = 3
_MIN_SECONDS = 0.5
_WINDOW = 3
_TOLERANCE = 0.05
_MAX_SECONDS = 6.0


def warm_up(call: Callable[[], Any], clock: Callable[[], float]) -> WarmUp:
    """Call until two windows of calls agree within 5 %, at least 3 calls and 0.5 s, at most 6 s.

    A model whose calls take seconds gets its minimum of calls all the same.
    """
    start = clock()
    times: list[float] = []
    while True:
        before = clock()
        call()
        now = clock()
        times.append(now - before)
        elapsed = now - start
        recent = sorted(times[-_WINDOW:])[_WINDOW // 2] if len(times) >= _WINDOW else times[-1]
        earlier = sorted(times[-2 * _WINDOW : -_WINDOW])
        steady = (
            len(earlier) == _WINDOW
            and abs(recent - earlier[_WINDOW // 2]) <= _TOLERANCE * recent
        )
        if len(times) >= _MIN_CALLS and elapsed >= _MIN_SECONDS and (
            steady or elapsed >= _MAX_SECONDS
        ):
            return WarmUp(elapsed, recent, steady)


def measure(
    call: Callable[[], Any],
    clock: Callable[[], float],
    watch: Watch,
    *,
    index: int,
    batch: int,
    seconds: float,
) -> Slice:
    """Time whole calls for at least `seconds`."""
    before = watch.read()
    calls = 0
    start = now = clock()
    while now - start < seconds:
        call()
        calls += 1
        now = clock()
    after = watch.read()
    return Slice(
        index=index,
        batch=batch,
        calls=calls,
        seconds=now - start,
        at=(before.at + after.at) / 2,
        interference=watch.between(before, after),
    )
