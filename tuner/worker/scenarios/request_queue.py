"""The queue in which requests wait for a server: one for all of its instances.

The due time of each request is known beforehand to all instances, so that nothing has to send it.
The instances share how many of each shape were taken, in a file that is locked while one takes
some.
"""

from __future__ import annotations

import bisect
import fcntl
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tuner.record.load import Batching, Offer
from tuner.record.protocol import LINE_BYTES


class Taken(NamedTuple):
    """Requests that are answered together."""

    shape: int
    due: Sequence[float]
    """When each was due, in seconds from the beginning."""


def due_of(offer: Offer) -> np.ndarray:
    """Return when requests are due, in seconds from the beginning, ascending."""
    random = np.random.default_rng(offer.seed)
    moments = offer.moments or np.cumsum(random.exponential(size=offer.n_requests))
    return np.asarray(moments) / offer.rate


def arrivals(offer: Offer, n_shapes: int) -> list[list[float]]:
    """Return when requests are due, in seconds from the beginning, for each shape of inputs."""
    due = due_of(offer)
    # of a generator of their own: arrivals are the same, however many of them there are
    shapes = np.random.default_rng((offer.seed, 1)).integers(n_shapes, size=offer.n_requests)
    return [[float(moment) for moment in due[shapes == shape]] for shape in range(n_shapes)]


class RequestQueue:
    """Requests by their due time, from which one or several servers take.

    A free server takes waiting requests of the shape of the oldest, at most a batch.
    """

    def __init__(self, due: Sequence[Sequence[float]], batching: Batching, shared: str) -> None:
        """due: ascending, of each shape. shared: the team's file; empty for a line of one's own."""
        self._due = due
        self._batching = batching
        self._file = -1
        if shared:
            self._file = os.open(shared, os.O_RDWR)
            self._state: bytearray | mmap.mmap = mmap.mmap(self._file, LINE_BYTES)
        else:
            self._state = bytearray(LINE_BYTES)
        self._n_taken = np.frombuffer(self._state, np.int64)[: len(due)]

    def close(self) -> None:
        """Let go of the file."""
        del self._n_taken
        if isinstance(self._state, mmap.mmap):
            self._state.close()
            os.close(self._file)

    def take(self, now: float) -> Taken | float | None:
        """Take the next batch; or return when to try again; None when all are taken.

        now: seconds from the beginning.
        """
        with self._held():
            taken = [int(n) for n in self._n_taken]
            heads = [
                (due[n], shape)
                for shape, (due, n) in enumerate(zip(self._due, taken, strict=True))
                if n < len(due)
            ]
            if not heads:
                return None
            oldest, shape = min(heads)
            if oldest > now:
                return oldest
            own, first = self._due[shape], taken[shape]
            largest = self._batching.largest
            here = bisect.bisect_right(own, now, first, min(len(own), first + largest))
            if self._batching.wait_s and here - first < largest:
                full = own[first + largest - 1] if first + largest <= len(own) else math.inf
                until = min(full, oldest + self._batching.wait_s)
                if until > now:
                    return until
            self._n_taken[shape] = here
            return Taken(shape, own[first:here])

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Keep the other instances away; the kernel lets go for one that dies."""
        if self._file >= 0:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._file >= 0:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
