"""How a server answered: in a slice, in the confirmation, and in MLPerf's LoadGen.

No result of this tool is an MLPerf result: durations and counts are not those of its rules.
"""

from __future__ import annotations

import math
from array import array
from typing import Annotated, Literal, TypeAlias

import msgspec

from tuner.record.load import Batching

_Counted: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Word = Literal["valid", "too_short", "too_slow"]
CLUSTER = 7.0
"""Variance of the number of late requests over its mean, of servers near their highest rate: one
long queue makes several requests late (by simulation: 7.3 one at a time, 3.8 in batches)."""
_ONE_SIDED = 1.64
"""Standard errors of a one-sided 95 % bound."""


class Level(msgspec.Struct, frozen=True):
    """Callers that posted at the same time, each the next request when the last was answered."""

    callers: _Counted
    rate: float
    """Requests per second."""
    packed: bytes
    """Seconds of each request, as a slice stores those of its calls."""

    @property
    def took_s(self) -> list[float]:
        """Seconds of each request."""
        return array("f", self.packed).tolist()


class Served(msgspec.Struct, frozen=True):
    """How requests were answered in a slice of a server."""

    batching: Batching
    n_requests: _Counted
    n_shapes: int = 1
    """Of the inputs; batches of one hold one shape."""
    offered: float = 0.0
    """Requests per second that arrived; 0: none did, and every size was called in turn, or callers
    posted."""
    sustained: float = 0.0
    """By a simulation from these very calls, the rate at which the bound is kept
    (measurement/queueing.py); 0 where requests arrived, or there is no bound."""
    generator: float = 0.0
    """Share of one CPU's time that an instance took to sort requests, or to post them, not to
    answer them."""
    long_run: float = 0.0
    """By a longer simulation, the rate at which as many requests are late as the bound allows, and
    how steeply their share rises there (measurement/queueing.py); 0 outside of rounds."""
    slope: float = 0.0
    seed: int | None = None
    """Of the arrivals, where some were sent at random; None in studies of earlier versions."""
    levels: tuple[Level, ...] = ()
    """Of a user's own server to which no requests arrived: with more and more callers."""


class TriedRate(msgspec.Struct, frozen=True):
    """Requests that arrived at a confirming launch at a rate."""

    round: int
    rate: float
    """Per second, on average."""
    n_requests: int
    p50_s: float
    """Latency from the moment at which a request was due, so the next."""
    quantile_s: float
    """At the quantile of the bound."""
    n_late: int | None = None
    """Requests beyond the bound; None in studies of earlier versions."""


class Pauses(msgspec.Struct, frozen=True):
    """Times in which nothing was answered, whatever the load."""

    n: int
    """Runs of late requests."""
    seconds: float
    """The median over these of the longest latency, less the usual one."""
    every_s: float
    """Seconds of trials for each of them."""


class Serving(msgspec.Struct, frozen=True):
    """How a server's confirming launches answered the requests that arrived."""

    rates: list[TriedRate]
    """In the order in which they were tried."""
    n_met: int
    """Launches that kept within the bound at any rate that was tried."""
    n_launches: int
    is_open: bool
    """Whether no rate that was tried was too high: the rate is a lower bound."""
    queue_share: float | None
    """Share of the median latency at the highest rate within the bound that a single request would
    not take: time in the queue or in a larger batch. None if no launch met the bound."""
    generator: float
    """Share of one CPU's time that went into sorting requests, the most of any trial."""
    slope: float | None = None
    """Relative increase of the share of late requests by that of the rate, at the rate that is
    reported: 7 means that a tenth more load makes 2 times as many late. None in studies of earlier
    versions, so the next."""
    rate: float | None = None
    """Requests per second at which as many are late as the bound allows, by all trials."""
    pauses: Pauses | None = None
    """Where the share hardly depends on the load: what makes requests late."""

    def most_late(self, rate: float, n_requests: int, allowed: float) -> float | None:
        """Return the most late requests of a run at a rate that do not contradict the fitted rate.

        Late requests come in clusters, so that their number scatters by more than a Poisson
        distribution. None if the fit is not known.
        """
        if self.slope is None or self.rate is None:
            return None
        expected: float = n_requests * min(1.0, allowed * (rate / self.rate) ** self.slope)
        return expected + _ONE_SIDED * math.sqrt(CLUSTER * expected)


class LoadgenOrder(msgspec.Struct, frozen=True):
    """Requests that LoadGen sends to a server's instances."""

    rate: float
    """Requests per second."""
    quantile: float
    seconds: float
    """The latency at the quantile that must not be exceeded."""
    duration_s: float
    n_requests: int
    """The least, as the duration."""
    batching: Batching
    n_shapes: int


class LoadgenWord(msgspec.Struct, frozen=True):
    """What LoadGen said.

    valid: by its rule for early stopping, the latency is kept with a confidence of 99 %. too_slow:
    it is not kept in this very run. too_short: it is, in this run, which proves too little.
    """

    word: Word
    reason: str
    """LoadGen's reason; empty if it is valid."""
    rate: float
    """The requested value."""
    scheduled_rate: float
    """As the requests were sent."""
    duration_s: float
    n_requests: int
    n_over: int
    """Of them, slower than the bound."""
    latency_s: float | None
    """At the quantile; None of one that it does not report."""


class Validation(msgspec.Struct, frozen=True):
    """LoadGen's result for a configuration, or why there is none."""

    rate: float
    """The tested rate, in requests per second."""
    told: LoadgenWord | None
    fault: str = ""
    """Why it said nothing; empty if it did."""
    disturbed: tuple[str, ...] = ()
    """What disturbed it; empty if nothing did."""

    @property
    def is_too_slow(self) -> bool:
        """Whether the latency was not kept."""
        return self.told is not None and self.told.word == "too_slow"
