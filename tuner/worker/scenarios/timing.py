"""What scenarios share: requests one after another, warm and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tuner.host.interference import Watch
from tuner.record.launch import Interference, Share, Slice, latency, packed
from tuner.record.load import Load
from tuner.record.protocol import Measure
from tuner.record.serving import Served
from tuner.worker.frameworks import Work
from tuner.worker.instance_barrier import InstanceBarrier, sleep_until
from tuner.worker.scenarios.callers import Alone, Callers

Call: TypeAlias = Callable[[], Any]
Calls: TypeAlias = Mapping[int, Sequence[Call]]
"""By batch, one call per shape of the inputs."""

_MIN_CALLS = 3
_MIN_SECONDS = 0.5
_WINDOW_SECONDS = 0.25
_TOLERANCE = 0.05
_MAX_SECONDS = 6.0
_FASTEST_WITHIN_S = 5.0
"""No third call is made after this."""
_MOST_LATE = 0.02
"""Share of a slice's seconds. An instance that begins later left the others alone for too long."""


class WarmUp(msgspec.Struct, frozen=True):
    """The calls that it took to become steady."""

    seconds: float
    call_s: float
    """Median seconds of the last calls."""
    is_steady: bool


def fastest(call: Call, clock: Callable[[], float]) -> float:
    """Return the seconds of the fastest of three calls; of two if they take seconds each.

    A busy host makes a single call many times as slow: 3.99 s of resnet50 instead of 0.27 s.
    """
    begun = clock()
    found: list[float] = []
    while len(found) < 2 or (len(found) < _MIN_CALLS and clock() - begun < _FASTEST_WITHIN_S):
        before = clock()
        call()
        found.append(clock() - before)
    return min(found)


def until_steady(call: Call, clock: Callable[[], float]) -> WarmUp:
    """Call until two windows of a quarter second (at least one call) agree within 5 %.

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


class Begun:
    """The beginning of a slice, which all instances of a team agree on."""

    def __init__(self, company: InstanceBarrier | None, watch: Watch) -> None:
        """Wait for the others."""
        self._watch = watch
        moment = company.agree() if company else 0.0
        self._before = watch.read()
        self.late_s = 0.0
        """By how much later than agreed this instance begins."""
        if company:
            sleep_until(moment)
            self.late_s = time.monotonic() - moment

    def ended(self, seconds: float) -> tuple[Interference, float, float | None]:
        """Return what disturbed the work, the middle of its time, and its energy.

        seconds: the requested time. An instance that is late by as much counts as disturbed.
        """
        after = self._watch.read()
        interference = self._watch.between(self._before, after)
        if self.late_s > _MOST_LATE * seconds:
            late = f"an instance began {1000 * self.late_s:.0f} ms after the others"
            dirty = (*interference.dirty, late)
            interference = msgspec.structs.replace(interference, dirty=dirty)
        energy_j = self._watch.energy_j(self._before, after)
        return interference, (self._before.at + after.at) / 2, energy_j


class Requests(NamedTuple):
    """The timed work, request by request, in whole rounds."""

    calls: Sequence[Call]
    """A call for each request of a round."""
    batches: int
    """Batches of the model in a request. A user's program makes no request of several, so that its
    seconds are not stored."""


class Timed(NamedTuple):
    """The work of one caller."""

    took_s: list[float]
    """Seconds of each request."""
    seconds: float


def timed(calls: Sequence[Call], clock: Callable[[], float], seconds: float) -> Timed:
    """Make calls in turn, in whole rounds, for at least `seconds`; time each of them."""
    took_s: list[float] = []
    start = last = clock()
    while last - start < seconds:
        for call in calls:
            call()
            now = clock()
            took_s.append(now - last)
            last = now
    return Timed(took_s, last - start)


class BackToBack:
    """A scenario in which a request is sent as soon as the one before is answered."""

    def __init__(
        self, requests: Requests, load: Load, work: Work, callers: Callers | None = None
    ) -> None:
        """callers: who sends them; one if None."""
        self._requests = requests
        self._round = in_turn(requests.calls)
        self._load = load
        self._work = work
        self._callers = callers or Alone()

    def warm_up(self) -> WarmUp:
        """Make rounds of requests until they are steady; of several callers, all at once."""
        return until_steady(lambda: self._callers.at_once(self._round), self._work.clock)

    def measure(self, order: Measure, watch: Watch, company: InstanceBarrier | None) -> Slice:
        """Time each request of whole rounds, for at least as long as ordered."""
        for _ in range(order.discard):
            self._callers.at_once(self._round)
        begun = Begun(company, watch)
        each = self._callers.at_once(
            lambda: timed(self._requests.calls, self._work.clock, order.seconds), self._round
        )
        interference, at, energy_j = begun.ended(order.seconds)
        if company:
            company.keep_up(self._round)
        batches = self._requests.batches
        took_s = [took for caller in each for took in caller.took_s]
        shares = [Share(len(c.took_s) * batches, c.seconds) for c in each]
        return Slice(
            index=order.index,
            batch=self._load.batch,
            calls=sum(share.calls for share in shares),
            seconds=max(share.seconds for share in shares),
            at=at,
            interference=interference,
            shares=tuple(shares) if len(shares) > 1 else (),
            latency=latency(took_s) if batches == 1 else None,
            energy_j=energy_j,
            packed_calls=packed(took_s) if batches == 1 else b"",
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


def slice_of(
    order: Measure,
    batch: int,
    took_s: Sequence[float],
    seconds: float,
    ended: tuple[Interference, float, float | None],
    served: Served | None,
) -> Slice:
    """Return a server's slice. took_s: of each call, or of each request; ended: by Begun."""
    interference, at, energy_j = ended
    return Slice(
        index=order.index,
        batch=batch,
        calls=len(took_s),
        seconds=seconds,
        at=at,
        interference=interference,
        latency=latency(took_s),
        energy_j=energy_j,
        packed_calls=packed(took_s),
        served=served,
    )
