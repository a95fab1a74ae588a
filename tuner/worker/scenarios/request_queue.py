"""The queue in which requests wait for a server: one for all of its instances.

The due time of each request is known beforehand to all instances, so that nothing has to send it.
The instances share how many of each shape were taken, and how many of them are at work, in a file
that is locked while one takes some.
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

from tuner.record.arrivals import due_of
from tuner.record.load import Batching, Offer
from tuner.record.protocol import LINE_BYTES


class Taken(NamedTuple):
    """Requests that are answered together."""

    shape: int
    due: Sequence[float]
    """When each was due, in seconds from the beginning."""


def arrivals(offer: Offer, n_shapes: int) -> list[list[float]]:
    """Return when requests are due, in seconds from the beginning, for each shape of inputs."""
    due = due_of(offer)
    # of a generator of their own: arrivals are the same, however many of them there are
    shapes = np.random.default_rng((offer.seed, 1)).integers(n_shapes, size=len(due))
    return [[float(moment) for moment in due[shapes == shape]] for shape in range(n_shapes)]


class RequestQueue:
    """Requests by their due time, from which one or several servers take.

    A free server takes waiting requests of the shape of the oldest, at most a batch.
    """

    def __init__(
        self,
        due: Sequence[Sequence[float]],
        batching: Batching,
        shared: str,
        least: int | None = None,
    ) -> None:
        """Put a line together.

        due: ascending, of each shape. shared: the team's file; empty for a line of one's own.
        least: requests after which the line ends when no request waits and no server is at work;
        None: it ends when all are taken.
        """
        self._due = due
        self._batching = batching
        self._least = sum(map(len, due)) if least is None else least
        self._is_at_work = False
        self._file = -1
        if shared:
            self._file = os.open(shared, os.O_RDWR)
            self._state: bytearray | mmap.mmap = mmap.mmap(self._file, LINE_BYTES)
        else:
            self._state = bytearray(LINE_BYTES)
        whole = np.frombuffer(self._state, np.int64)
        self._n_taken = whole[: len(due)]
        self._ended, self._n_at_work = whole[len(due) :][:1], whole[len(due) :][1:2]

    def close(self) -> None:
        """Let go of the file."""
        del self._n_taken, self._ended, self._n_at_work
        if isinstance(self._state, mmap.mmap):
            self._state.close()
            os.close(self._file)

    def take(self, now: float) -> Taken | float | None:
        """Take the next batch; or return when to try again; None at the end of the line.

        now: seconds from the beginning. Requests taken before are answered.
        """
        with self._held():
            self._n_at_work[0] -= self._is_at_work
            self._is_at_work = False
            if self._ended[0]:
                return None
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
                self._ended[0] = sum(taken) >= self._least and not self._n_at_work[0]
                return None if self._ended[0] else oldest
            own, first = self._due[shape], taken[shape]
            largest = self._batching.largest
            here = bisect.bisect_right(own, now, first, min(len(own), first + largest))
            if self._batching.wait_s and here - first < largest:
                full = own[first + largest - 1] if first + largest <= len(own) else math.inf
                until = min(full, oldest + self._batching.wait_s)
                if until > now:
                    return until
            self._n_taken[shape] = here
            self._n_at_work[0] += 1
            self._is_at_work = True
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
