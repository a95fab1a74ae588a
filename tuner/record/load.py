"""How work arrives at a model: the scenarios of studies, most of them MLPerf's.

A scenario is an entry in SCENARIOS, which holds what the tool must know, and a file in
tuner/worker/scenarios/, which makes its calls in the measured process.
"""

from __future__ import annotations

import bisect

import msgspec


class Trace(msgspec.Struct, frozen=True):
    """Recorded arrivals, in a file (record/trace.py)."""

    path: str
    sha256: str
    """Of the file."""
    n_requests: int
    rate: float
    """Requests per second as they were recorded, on average."""


USUAL_QUANTILE = 0.99
"""Of a bound that the user does not name."""


class Slo(msgspec.Struct, frozen=True):
    """A service-level objective: so large a share of the requests is answered in this time."""

    quantile: float
    """0.99: 99 % of them."""
    seconds: float
    asked: str
    """The option it comes from (--slo p99=15ms), or how it was chosen."""
    trace: Trace | None = None
    """How the requests arrive; None: at random (Poisson)."""

    @property
    def name(self) -> str:
        """The quantile as people write it: p99."""
        return f"p{100 * self.quantile:g}"

    @property
    def allowed(self) -> float:
        """The share of requests that may be late."""
        return 1 - self.quantile

    @property
    def least_requests(self) -> int:
        """The number of requests of which one is expected beyond the quantile."""
        return round(1 / (1 - self.quantile))


class Batching(msgspec.Struct, frozen=True):
    """How servers make batches of the requests that wait."""

    sizes: tuple[int, ...]
    """The batches that the model was prepared for, ascending: others are padded to the next."""
    wait_s: float = 0.0
    """The longest time that the oldest request waits for others if the batch is not full."""
    n_servers: int = 1
    """Instances that take from one line."""

    @property
    def largest(self) -> int:
        """The most requests that are answered together."""
        return self.sizes[-1]

    def padded(self, n_requests: int) -> int:
        """Return the size of the batch that answers n requests; the largest for more."""
        return self.sizes[min(bisect.bisect_left(self.sizes, n_requests), len(self.sizes) - 1)]


INFERENCE, TRAINING = "inference", "training"
"""The modes of a workload: a model answers, or it learns."""


class Scenario(msgspec.Struct, frozen=True):
    """A scenario's meaning for the search and for the verdict."""

    summary: str
    metric: str
    """By which configurations are compared (tuner/record/objective.py), unless the goal has one of
    its own."""
    batch: int | None = None
    """Samples in a request; None: as many as serve best, so that the batch is a knob."""
    is_served: bool = False
    """Whether requests arrive by themselves, and wait in line: a bound on their latency is then
    part of the question (Slo)."""
    one_process: bool = False
    """Whether all requests go to one process: a second instance would idle."""
    callers: int = 1
    """How many call at the same time, unless --callers says otherwise; 1: never more."""
    bears_programs: bool = False
    """Whether a program that times itself (--command) can be measured under it."""
    mode: str = INFERENCE
    """In training a call is a step: forward, loss, backward, and the optimizer's update. Its batch
    is fixed, because another one trains otherwise."""


OFFLINE, SERVER = "offline", "server"
SCENARIOS = {
    OFFLINE: Scenario(
        "all samples are there: batch after batch, by items per second",
        "throughput",
        bears_programs=True,
    ),
    "single-stream": Scenario(
        "one caller, one sample at a time, by the 90th percentile of the latency",
        "latency_p90",
        batch=1,
        one_process=True,
    ),
    "multi-stream": Scenario(
        "one caller, eight samples at a time, by the 99th percentile of the latency",
        "latency_p99",
        batch=8,
        one_process=True,
    ),
    "concurrent": Scenario(
        "several callers, threads of one process, one sample each at a time, by items per second",
        "throughput",
        batch=1,
        one_process=True,
        # "40 requests/s for one user, 3 for six": discuss.pytorch.org/t/224189
        callers=6,
    ),
    SERVER: Scenario(
        "requests arrive at random: the highest rate within the latency of --slo",
        "rate_within",
        is_served=True,
    ),
    TRAINING: Scenario(
        "step after step of training at a fixed batch, the data in memory, by items per second",
        "throughput",
        one_process=True,
        bears_programs=True,
        mode=TRAINING,
    ),
}


def mode_of(scenario: str) -> str:
    """Return a scenario's mode; of one that this version does not know, inference."""
    return SCENARIOS[scenario].mode if scenario in SCENARIOS else INFERENCE


_MOST_SERVED = 256
"""Samples in a server's batch: of more, the first would wait too long for the last."""


def served_batches(largest: int) -> tuple[int, ...]:
    """Return the possible largest batches of a server for a model called with `largest`."""
    most = min(max(1, largest), _MOST_SERVED)
    return tuple(4**k for k in range(most.bit_length()) if 4**k <= most)


def served_sizes(largest: int) -> tuple[int, ...]:
    """Return the batches that a server prepares a model for: those between are padded."""
    powers = [2**k for k in range(largest.bit_length()) if 2**k < largest]
    return (*powers, largest)


MOST_CALLERS = 256
"""Threads in one process; more are no way to serve a model."""


def in_words(scenario: str, callers: int) -> str:
    """Name a scenario as reports do."""
    return scenario if callers == 1 else f"{scenario}, {callers} callers"


class Load(msgspec.Struct, frozen=True):
    """The work that is offered to a launch."""

    scenario: str
    batch: int
    """Samples in a call."""
    callers: int = 1
    """Threads of one process that call at the same time."""
    batching: Batching | None = None
    """None if no server is measured."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batches that the model is prepared for."""
        return (self.batch,) if self.batching is None else self.batching.sizes


_MOST_TIMES = 2
"""Times as many requests as asked for are sent to a server that is not idle before."""


class Offer(msgspec.Struct, frozen=True):
    """Requests that are sent to a server, whatever becomes of those before.

    Those at random go on until the server is idle: a trial that begins and ends so has, on average,
    the share of late requests that the server has for good.
    """

    rate: float
    """Per second, on average."""
    n_requests: int
    """The least; all of a trace's."""
    seed: int
    """The same seed is the same arrivals at any rate, only closer together."""
    moments: tuple[float, ...] = ()
    """At which they would arrive at one per second on average; empty: at random (Poisson)."""

    @property
    def most_requests(self) -> int:
        """The most, of a server that is never idle."""
        return len(self.moments) or _MOST_TIMES * self.n_requests

    @property
    def longest_s(self) -> float:
        """Seconds until the last arrives, about, if the server is never idle."""
        return (self.moments[-1] if self.moments else self.most_requests) / self.rate
