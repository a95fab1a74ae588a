"""What scenarios share: requests one after another, warm and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tuner.host.interference import Watch
from tuner.record.launch import Slice, latency, packed
from tuner.record.protocol import Measured
from tuner.worker.company import Company, sleep_until

Call: TypeAlias = Callable[[], Any]

_MIN_CALLS = 3
_MIN_SECONDS = 0.5
_WINDOW_SECONDS = 0.25
_TOLERANCE = 0.05
_MAX_SECONDS = 6.0
_MOST_LATE = 0.02
"""Share of a slice's seconds. An instance that begins later left the others alone for too long."""


class WarmUp(msgspec.Struct, frozen=True):
    """What it took to become steady."""

    seconds: float
    call_s: float
    """Median seconds of the last calls."""
    is_steady: bool


def until_steady(call: Call, clock: Callable[[], float]) -> WarmUp:
    """Call until two windows of a quarter second (one call at least) agree within 5 %.

    At least 3 calls and 0.5 s, at most 6 s; a model whose calls take seconds gets its 3 calls.
    """
    start = clock()
    times: list[float] = []
    while True:
        before = clock()
        call()
        now = clock()
        times.append(now - before)
        elapsed = now - start
        if len(times) < _MIN_CALLS or elapsed < _MIN_SECONDS:
            continue
        window = min(len(times) // 2, max(1, round(_WINDOW_SECONDS / times[-1])))
        recent = statistics.median(times[-window:])
        earlier = statistics.median(times[-2 * window : -window])
        is_steady = abs(recent - earlier) <= _TOLERANCE * recent
        if is_steady or elapsed >= _MAX_SECONDS:
            return WarmUp(elapsed, recent, is_steady)


class Requests(NamedTuple):
    """What is timed, request by request, in whole rounds."""

    calls: Sequence[Call]
    """A call for each request of a round."""
    batches: int
    """Batches of the model in a request. One of several is none that a user's program makes, so
    that its seconds are not kept."""


class BackToBack:
    """A scenario in which a request is sent as soon as the one before is answered."""

    def __init__(self, requests: Callable[[Sequence[Call]], Requests]) -> None:
        """requests: makes requests of the model's calls."""
        self._requests = requests

    def warm_up(self, calls: Sequence[Call], clock: Callable[[], float]) -> WarmUp:
        """Make rounds of requests until they are steady."""
        return until_steady(in_turn(self._requests(calls).calls), clock)

    def measure(
        self,
        calls: Sequence[Call],
        clock: Callable[[], float],
        watch: Watch,
        *,
        index: int,
        batch: int,
        seconds: float,
        company: Company | None = None,
    ) -> Measured:
        """Time each request of whole rounds, for at least `seconds`.

        company: the other instances of a team, with which this one begins and ends its work.
        """
        requests = self._requests(calls)
        moment = company.agree() if company else 0.0
        before = watch.read()
        if company:
            sleep_until(moment)
            late_s = time.monotonic() - moment
        took_s: list[float] = []
        start = last = clock()
        while last - start < seconds:
            for request in requests.calls:
                request()
                now = clock()
                took_s.append(now - last)
                last = now
        after = watch.read()
        interference = watch.between(before, after)
        if company:
            company.keep_up(in_turn(requests.calls))
            if late_s > _MOST_LATE * seconds:
                late = f"an instance began {1000 * late_s:.0f} ms after the others"
                dirty = (*interference.dirty, late)
                interference = msgspec.structs.replace(interference, dirty=dirty)
        is_usual = requests.batches == 1
        return Measured(
            Slice(
                index=index,
                batch=batch,
                calls=len(took_s) * requests.batches,
                seconds=last - start,
                at=(before.at + after.at) / 2,
                interference=interference,
                latency=latency(took_s) if is_usual else None,
                energy_j=watch.energy_j(before, after),
                packed_calls=packed(took_s) if is_usual else b"",
            )
        )


def in_turn(calls: Sequence[Call]) -> Call:
    """Return a call that makes each of these calls once."""
    if len(calls) == 1:
        return calls[0]

    def round_of_calls() -> Any:
        result = None
        for call in calls:
            result = call()
        return result

    return round_of_calls
