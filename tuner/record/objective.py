"""The objective: the metric of a study, the bounds that its winner keeps, and the goal.

Two scales are used. A *value* is what a person reads, in the metric's unit: 39 items/s, 25.6 ms. A
*score* is what the search and the claims compute with: a logarithm, with the sign that makes more
better. The difference of two scores is the logarithm of a ratio, above 1 if the first is better:
both 39 against 26 items/s and 26 against 39 ms are 1.5x.

A metric is an entry in METRICS, a goal one in GOALS: no other module knows what they mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tuner.record.interval import Interval
from tuner.record.launch import LaunchRecord, Slice, percentile
from tuner.record.load import Slo
from tuner.record.service_times import most_answered

Direction = Literal["maximize", "minimize"]
Cost = Literal["memory", "latency"]
"""Resources that configurations differ in: bytes, and the seconds of a call."""


class Metric(msgspec.Struct, frozen=True):
    """A metric, and how it is computed from measurements."""

    words: str
    unit: str
    direction: Direction
    of_slice: Callable[[Slice], float]
    """The value of a slice: what the search and the pacer use."""
    of_launch: Callable[[Sequence[Slice]], float] | None = None
    """The value of a confirming launch, by all of its slices, at least one. No function: it is that
    of the middle slice."""
    least_calls: int = 0
    """The number of calls that a confirming launch makes at least."""
    searched_by: str = ""
    """What the search uses instead of the metric, in words; empty if it is the same."""
    search_unit: str = ""
    """The unit of that; empty if it is the same."""
    of_busy_slice: Callable[[Slice], float] | None = None
    """The value of a slice next to a busy neighbour, if it is another one: a rate has no meaning
    within a bound that cannot be met there."""
    is_rate: bool = False
    """Whether it is items, or requests, per second."""
    is_of_trials: bool = False
    """Whether the value of confirming launches is estimated from the requests that arrived at all
    of them (measurement/server_rate.py)."""


def _mean_call_ms(taken: Slice) -> float:
    return 1000 * taken.call_mean_s


def quantile_ms(quantile: float) -> Callable[[Sequence[Slice]], float]:
    """Return a function of a launch: a quantile over all of its calls."""

    def of_launch(slices: Sequence[Slice]) -> float:
        return 1000 * percentile([seconds for s in slices for seconds in s.call_s], quantile)

    return of_launch


def _sustained(taken: Slice) -> float:
    return taken.served.sustained or taken.rate if taken.served else taken.rate


def timed_of(slices: Sequence[Slice]) -> list[Slice]:
    """Return a server's slices without requests, in which every batch was timed in turn."""
    return [s for s in slices if s.served is not None and not s.served.offered]


def offered_of(slices: Sequence[Slice]) -> list[Slice]:
    """Return a server's slices in which requests arrived."""
    return [s for s in slices if s.served is not None and s.served.offered]


def capacity_of(timed: Sequence[Slice]) -> float:
    """Return the requests per second that servers answer by slices in which batches were timed."""
    return statistics.fmean(most_answered(taken) for taken in timed)


_MEAN_TIME, _MEAN_UNIT = "the mean time of a call", "ms a call, on average"
METRICS = {
    "throughput": Metric("items per second", "items/s", "maximize", lambda s: s.rate, is_rate=True),
    # a slice of 0.3 s holds four calls of resnet50: no quantile, but a mean. The 90th
    # percentile of 30 calls is the third from the top
    "latency_p90": Metric(
        "90th percentile of the latency",
        "ms",
        "minimize",
        _mean_call_ms,
        quantile_ms(0.9),
        least_calls=30,
        searched_by=_MEAN_TIME,
        search_unit=_MEAN_UNIT,
    ),
    # of 100 calls the longest one: of fewer, none lies beyond as many as that
    "latency_p99": Metric(
        "99th percentile of the latency",
        "ms",
        "minimize",
        _mean_call_ms,
        quantile_ms(0.99),
        least_calls=100,
        searched_by=_MEAN_TIME,
        search_unit=_MEAN_UNIT,
    ),
    "rate_within": Metric(
        "highest rate within the latency bound",
        "requests/s",
        "maximize",
        _sustained,
        is_of_trials=True,
        searched_by="rates that are expected before requests arrive at random",
        search_unit="requests/s, expected",
        of_busy_slice=most_answered,
        is_rate=True,
    ),
}


class Bound(msgspec.Struct, frozen=True):
    """A limit that a winner must not exceed."""

    figure: Literal["memory"]
    most: float
    """memory: peak resident bytes, over all instances."""
    asked: str
    """The option it comes from: --max-memory 4G."""

    def of(self, record: LaunchRecord) -> float | None:
        """Return the figure of a launch; None if the launch does not show it."""
        return None if record.prepared is None else float(record.prepared.memory_peak_bytes)

    def in_words(self, figure: float) -> str:
        """Write a figure that is bounded."""
        return f"a memory of {figure / 2**30:.2f} GiB"


class Goal(msgspec.Struct, frozen=True):
    """What a user wants: a metric, and further demands on a winner."""

    summary: str
    metric: str = ""
    """Empty: that of the scenario."""
    bears_neighbours: bool = False
    """Whether a configuration that degrades under contention cannot win."""


GOALS = {
    "fastest": Goal("the fastest"),
    "robust": Goal("the fastest that does not degrade under other load", bears_neighbours=True),
}


class Objective(msgspec.Struct, frozen=True):
    """What is maximised or minimised, and within which bounds."""

    metric: str
    unit: str
    direction: Direction
    bounds: list[Bound] = []
    bears_neighbours: bool = False
    slo: Slo | None = None
    """The latency bound of a server; None if it is not known yet, or if there is no server."""
    accepted_costs: tuple[Cost, ...] = ()
    """Costs that a winner may raise although nothing proves that they are needed."""

    @classmethod
    def of(
        cls,
        metric: str,
        bounds: Sequence[Bound] = (),
        goal: str = "fastest",
        accepted_costs: tuple[Cost, ...] = (),
    ) -> Objective:
        """Return the objective of a scenario's metric, unless the goal has one of its own."""
        wanted = GOALS[goal]
        name = wanted.metric or metric
        known = METRICS[name]
        return cls(
            name,
            known.unit,
            known.direction,
            list(bounds),
            wanted.bears_neighbours,
            accepted_costs=accepted_costs,
        )

    def identity(self) -> list[object]:
        """Return what tells two objectives apart, however a bound was written."""
        bounds = [(bound.figure, bound.most) for bound in self.bounds]
        own: list[object] = [self.metric, bounds, self.bears_neighbours]
        if self.slo is not None:
            own += [self.slo.quantile, self.slo.seconds]
        return [*own, *self.accepted_costs]

    @property
    def least_calls(self) -> int:
        """The number of calls that a confirming launch makes at least."""
        return METRICS[self.metric].least_calls

    @property
    def is_of_calls(self) -> bool:
        """Whether every call of a confirming launch counts, disturbed ones as well."""
        return self.least_calls > 0

    @property
    def is_rate(self) -> bool:
        """Whether a value is items, or requests, per second."""
        return METRICS[self.metric].is_rate

    @property
    def search_unit(self) -> str:
        """The unit of what the search uses."""
        return METRICS[self.metric].search_unit or self.unit

    @property
    def is_of_launch(self) -> bool:
        """Whether the score of a confirming launch is computed from all of its slices together."""
        return METRICS[self.metric].of_launch is not None

    @property
    def is_of_trials(self) -> bool:
        """Whether requests arrive at confirming launches, whose value is estimated together."""
        return METRICS[self.metric].is_of_trials

    @property
    def searched_by(self) -> str:
        """What the search uses instead of the metric, in words; empty if it is the same."""
        return METRICS[self.metric].searched_by

    def of_slice(self, taken: Slice) -> float:
        """Return the score of a slice."""
        return self._log_score(METRICS[self.metric].of_slice(taken))

    def under_contention(self, slices: Sequence[Slice]) -> float:
        """Return the score of slices next to a busy neighbour, at least one."""
        metric = METRICS[self.metric]
        value_of = metric.of_busy_slice or metric.of_slice
        return statistics.median(self._log_score(value_of(taken)) for taken in slices)

    def of_launch(self, slices: Sequence[Slice]) -> float:
        """Return the score of a launch from all of its slices, at least one."""
        of_launch = METRICS[self.metric].of_launch
        assert of_launch is not None
        return self._log_score(of_launch(slices))

    def _log_score(self, value: float) -> float:
        return math.log(value) if self.direction == "maximize" else -math.log(value)

    def value(self, log_score: float) -> float:
        """Return the value of a score, in the metric's unit."""
        return math.exp(log_score if self.direction == "maximize" else -log_score)

    def in_unit(self, log_scores: Interval) -> Interval:
        """Turn an interval of exp(score) into one in the metric's unit."""
        if self.direction == "maximize":
            return log_scores
        return Interval(
            1 / log_scores.point, 1 / log_scores.high, 1 / log_scores.low, log_scores.confidence
        )


THROUGHPUT = Objective.of("throughput")
