"""What is better: the metric of a study, the bounds that its winner keeps, and the goal.

Two scales are used. A *value* is what a person reads, in the metric's unit: 39 items/s, 25.6 ms. A
*worth* is what the search and the claims compute with: a logarithm, turned so that more is better.
The difference of two worths is the logarithm of a ratio, above 1 where the first is better: both 39
against 26 items/s and 26 against 39 ms are 1.5x.

A metric is an entry in METRICS, a goal one in GOALS: nothing else knows what either of them means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tuner.record.interval import Interval
from tuner.record.launch import LaunchRecord, Slice, percentile

Direction = Literal["maximize", "minimize"]


class Metric(msgspec.Struct, frozen=True):
    """A figure of merit, and how it is read from what was measured."""

    words: str
    unit: str
    direction: Direction
    of_slice: Callable[[Slice], float]
    """The value of a slice: what the search and the pacer go by."""
    of_calls: Callable[[Sequence[float]], float] | None = None
    """The value of a confirming launch, by the seconds of all its calls. None: it is that of its
    slices."""
    least_calls: int = 0
    """So many calls a confirming launch makes at the least."""


def _mean_call_ms(taken: Slice) -> float:
    return 1000 * taken.call_mean_s


def _p90_ms(call_s: Sequence[float]) -> float:
    return 1000 * percentile(call_s, 0.9)


METRICS = {
    "throughput": Metric("items per second", "items/s", "maximize", lambda s: s.rate),
    # a slice of 0.3 s holds four calls of resnet50: no quantile, but a mean. The 90th
    # percentile of 30 calls is the third from the top
    "latency_p90": Metric(
        "90th percentile of the latency", "ms", "minimize", _mean_call_ms, _p90_ms, least_calls=30
    ),
}


class Bound(msgspec.Struct, frozen=True):
    """What a winner must not exceed."""

    figure: Literal["memory"]
    most: float
    """memory: bytes that are resident at the most, over all instances."""
    asked: str
    """How it was asked for: --max-memory 4G."""

    def of(self, record: LaunchRecord) -> float | None:
        """Return the figure of a launch; None where it does not tell."""
        return None if record.prepared is None else float(record.prepared.memory_peak_bytes)

    def in_words(self, figure: float) -> str:
        """Write a figure that is bounded."""
        return f"a memory of {figure / 2**30:.2f} GiB"


class Goal(msgspec.Struct, frozen=True):
    """What a user wants: a metric, and what else is asked of a winner."""

    summary: str
    metric: str = ""
    """Empty: that of the scenario."""
    bears_neighbours: bool = False
    """Whether what collapses beside a busy neighbour is no winner."""


GOALS = {
    "fastest": Goal("the fastest"),
    "robust": Goal("the fastest that does not collapse beside other load", bears_neighbours=True),
}


class Objective(msgspec.Struct, frozen=True):
    """What is maximised or minimised, and within which bounds."""

    metric: str
    unit: str
    direction: Direction
    bounds: list[Bound] = []
    bears_neighbours: bool = False

    @classmethod
    def of(cls, metric: str, bounds: Sequence[Bound] = (), goal: str = "fastest") -> Objective:
        """Return the objective of a scenario's metric, unless the goal has one of its own."""
        wanted = GOALS[goal]
        name = wanted.metric or metric
        known = METRICS[name]
        return cls(name, known.unit, known.direction, list(bounds), wanted.bears_neighbours)

    def identity(self) -> list[object]:
        """Return what tells two objectives apart, however a bound was written."""
        bounds = [(bound.figure, bound.most) for bound in self.bounds]
        return [self.metric, bounds, self.bears_neighbours]

    @property
    def least_calls(self) -> int:
        """So many calls a confirming launch makes at the least."""
        return METRICS[self.metric].least_calls

    @property
    def is_of_calls(self) -> bool:
        """Whether what a confirming launch is worth is said by all of its calls, not its slices."""
        return METRICS[self.metric].of_calls is not None

    def of_slice(self, taken: Slice) -> float:
        """Return the worth of a slice."""
        return self._worth(METRICS[self.metric].of_slice(taken))

    def of_calls(self, call_s: Sequence[float]) -> float:
        """Return the worth of some calls, at least one, of a metric that is of calls."""
        of_calls = METRICS[self.metric].of_calls
        assert of_calls is not None
        return self._worth(of_calls(call_s))

    def _worth(self, value: float) -> float:
        return math.log(value) if self.direction == "maximize" else -math.log(value)

    def value(self, worth: float) -> float:
        """Return the value in the metric's unit that is worth so much."""
        return math.exp(worth if self.direction == "maximize" else -worth)

    def in_unit(self, worths: Interval) -> Interval:
        """Turn an interval over exp(worth) into one in the metric's unit."""
        if self.direction == "maximize":
            return worths
        return Interval(1 / worths.point, 1 / worths.high, 1 / worths.low, worths.confidence)


THROUGHPUT = Objective.of("throughput")
