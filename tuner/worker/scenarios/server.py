"""Server: requests arrive by themselves, wait in a queue, and are answered in batches.

Without requests, a slice times every batch that the model was prepared for, in turn: the server's
queue is simulated from these (measurement/queueing.py). With requests, they arrive at random
(Poisson), and each latency counts from the request's due time: a server that is slow to take it
does not stop the clock.
"""

from __future__ import annotations

import time

from tuner.host.interference import Watch
from tuner.record.launch import Slice
from tuner.record.load import Batching, Load, Offer
from tuner.record.protocol import Measure
from tuner.record.serving import Served
from tuner.worker.frameworks import Work
from tuner.worker.instance_barrier import InstanceBarrier
from tuner.worker.scenarios.request_queue import RequestQueue, Taken, arrivals
from tuner.worker.scenarios.timing import (
    Begun,
    Calls,
    WarmUp,
    in_turn,
    slice_of,
    timed,
    until_steady,
)

_IDLE_S = 0.001
_ROUNDING_S = 1e-8
"""A clock that is as far as a request is due may be less by the last digits of the difference."""


class Server:
    """One instance: it takes requests whenever it is free."""

    def __init__(self, load: Load, batching: Batching, calls: Calls, work: Work) -> None:
        self._load = load
        self._batching = batching
        self._calls = calls
        self._work = work
        self._each = [call for size in batching.sizes for call in calls[size]]
        self._n_shapes = len(calls[batching.largest])

    def warm_up(self) -> WarmUp:
        """Make calls of every size until they are steady."""
        return until_steady(in_turn(self._each), self._work.clock)

    def measure(
        self, order: Measure, watch: Watch, company: InstanceBarrier | None
    ) -> Slice | None:
        """Answer the requests, or call every batch size in turn for the requested time."""
        for _ in range(order.discard):
            in_turn(self._each)()
        if order.offer is None:
            return self._sizes_in_turn(order, watch, company)
        return self._answered(order, order.offer, watch, company)

    def _sizes_in_turn(
        self, order: Measure, watch: Watch, company: InstanceBarrier | None
    ) -> Slice:
        begun = Begun(company, watch)
        took_s, seconds = timed(self._each, self._work.clock, order.seconds)
        ended = begun.ended(order.seconds)
        if company:
            company.keep_up(in_turn(self._each))
        n_rounds = len(took_s) // len(self._each)
        n_requests = n_rounds * self._n_shapes * sum(self._batching.sizes)
        served = Served(self._batching, n_requests, self._n_shapes)
        return slice_of(order, self._load.batch, took_s, seconds, ended, served)

    def _answered(
        self, order: Measure, offer: Offer, watch: Watch, company: InstanceBarrier | None
    ) -> Slice | None:
        """Answer requests until the line ends; None if the others took all of them."""
        due = arrivals(offer, self._n_shapes)
        least = None if offer.moments else offer.n_requests
        line = RequestQueue(due, self._batching, order.line, least)
        begun, clock = Begun(company, watch), self._work.clock
        # an instance that begins late has been no server until then, but the requests were due
        start = clock() - begun.late_s
        cpu_before = time.thread_time()
        in_calls_s, end, waited_s = 0.0, start, list[float]()
        while (next_ := line.take(clock() - start + _ROUNDING_S)) is not None:
            if not isinstance(next_, Taken):
                self._work.wait_until(start + next_)
                continue
            call = self._calls[self._batching.padded(len(next_.due))][next_.shape]
            before = time.thread_time()
            call()
            in_calls_s += time.thread_time() - before
            end = clock()
            waited_s += [end - start - due for due in next_.due]
        outside_s = time.thread_time() - cpu_before - in_calls_s
        ended = begun.ended(end - start)
        line.close()
        if company:
            company.keep_up(lambda: time.sleep(_IDLE_S))
        if not waited_s:
            return None
        served = Served(
            self._batching,
            len(waited_s),
            self._n_shapes,
            offered=offer.rate,
            seed=None if offer.moments else offer.seed,
            generator=min(1.0, outside_s / (end - start)),
        )
        return slice_of(order, self._load.batch, waited_s, end - start, ended, served)


def serve(load: Load, calls: Calls, work: Work) -> Server:
    """Return the scenario."""
    assert load.batching is not None
    return Server(load, load.batching, calls, work)
