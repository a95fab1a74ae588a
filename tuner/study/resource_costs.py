"""The memory and latency of configurations, and which increases are costly."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from tuner.measurement.estimates import clean_slices
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Prepared, Slice
from tuner.record.objective import Cost, Objective

COST_THRESHOLD = math.log(1.1)
"""Logarithm: an increase by less than 10 % is not costly."""
_MEMORY_FLOOR = 0.01
"""Share of the memory that there is: an increase by less is not costly. A compiler takes 120 MiB
whatever the model is: 28 % of a small process, and 0.6 % of 20 GiB."""
_LATENCY_FLOOR_S = 0.001
"""Seconds: a call that takes longer by less is not costly."""
_SPARED = 10
"""Up to this part of a card's memory nothing costs more for taking more: kernels that are chosen
by trial take gigabytes of workspace once, of the 80 that a card has."""
_GIB = 2**30
"""Bytes."""


class ResourceCost(msgspec.Struct, frozen=True):
    """The costs of a configuration as logarithms; None if its launches do not show them."""

    memory: float | None
    """Logarithm of the most bytes that were resident."""
    call: float | None
    """Logarithm of the seconds of a call at the configuration's own batch, in each instance."""
    card_bytes: int | None = None
    """The total memory of the card if `memory` is the card's; None if it is the host's."""

    def of(self, cost: Cost) -> float | None:
        """Return the logarithm of one cost."""
        return self.memory if cost == "memory" else self.call

    def increases_over(self, other: ResourceCost) -> dict[Cost, float]:
        """Return by how much (log) this costs more than another, for each cost known of both."""
        costs: tuple[Cost, ...] = ("memory", "latency")
        pairs = {cost: (self.of(cost), other.of(cost)) for cost in costs}
        return {
            cost: mine - theirs
            for cost, (mine, theirs) in pairs.items()
            if mine is not None and theirs is not None
        }


class Increase(msgspec.Struct, frozen=True):
    """By how much a setting raises a cost of a configuration."""

    cost: Cost
    figure: float
    """With the setting: bytes, or the seconds of a call."""
    log_ratio: float
    """Logarithm of the figure with the setting over that without it."""
    is_estimated: bool = False
    """Whether the configuration without it was never launched."""

    def in_words(self) -> str:
        """Write it: memory from 423 MiB to 543 MiB (+28 %)."""
        about = "about " if self.is_estimated else ""
        before, after = (self._written(f) for f in (self._figure_without, self.figure))
        return f"{self.cost} from {about}{before} to {after} (+{math.expm1(self.log_ratio):.0%})"

    @property
    def _figure_without(self) -> float:
        return self.figure * math.exp(-self.log_ratio)

    @property
    def difference(self) -> float:
        """The figure with the setting less that without it."""
        return self.figure - self._figure_without

    def _written(self, figure: float) -> str:
        if self.cost == "latency":
            return f"{1000 * figure:.3g} ms" if figure < 1 else f"{figure:.3g} s"
        if figure < 10 * _GIB:
            return f"{figure / 2**20:.0f} MiB"
        return f"{figure / _GIB:.1f} GiB"


class CostRule(msgspec.Struct, frozen=True):
    """Which increases are costly on a host, for an objective.

    An increase is costly above 10 % and above a floor: 1 % of the memory, 1 ms per call. Costs that
    the user accepts are not costly, nor is memory if the user bounds it.
    """

    objective: Objective
    memory_bytes: float
    """The memory that processes may use on the host, or in its container."""

    def costly(
        self,
        resource_cost: ResourceCost,
        log_increases: Mapping[Cost, float],
        *,
        is_estimated: bool = False,
    ) -> list[Increase]:
        """Return the costly ones of the increases (log) that a setting brings about.

        resource_cost: that of the configuration with the setting.
        """
        return [
            increase
            for cost, rise in log_increases.items()
            if (figure := resource_cost.of(cost)) is not None
            and not self._is_accepted(cost, resource_cost)
            if rise > COST_THRESHOLD
            for increase in [Increase(cost, math.exp(figure), rise, is_estimated)]
            if increase.difference > self._floor(cost, resource_cost)
        ]

    def _is_accepted(self, cost: Cost, resource_cost: ResourceCost) -> bool:
        # a bound is of the host's memory, not of a card's
        is_bounded = (
            cost == "memory" and resource_cost.card_bytes is None and self.objective.bounds != []
        )
        return is_bounded or cost in self.objective.accepted_costs

    def _floor(self, cost: Cost, resource_cost: ResourceCost) -> float:
        if cost == "latency":
            return _LATENCY_FLOOR_S
        return _MEMORY_FLOOR * (resource_cost.card_bytes or self.memory_bytes)


def resource_costs_of(launches: Iterable[LaunchRecord]) -> dict[Configuration, ResourceCost]:
    """Return the costs of every configuration among the launches: medians over its own."""
    found: dict[Configuration, list[LaunchRecord]] = defaultdict(list)
    for record in launches:
        if record.prepared is not None:
            found[record.request.configuration].append(record)
    return {configuration: _price(records) for configuration, records in found.items()}


def _price(records: list[LaunchRecord]) -> ResourceCost:
    prepared = [r.prepared for r in records if r.prepared is not None]
    calls = [
        statistics.median(map(_call_s, clean_slices(r)))
        for r in records
        if r.slices and r.slices[0].served is None  # what a server's calls may take is bounded
    ]
    on_card = [p.device_memory.card_bytes for p in prepared if p.device_memory is not None]
    return ResourceCost(
        _log_median(map(_memory_bytes, prepared)),
        _log_median(calls),
        on_card[-1] if on_card else None,
    )


def _memory_bytes(prepared: Prepared) -> int:
    """Return the bytes that count: on a card its own, and no fewer than it has to spare."""
    on_card = prepared.device_memory
    if on_card is None:
        return prepared.memory_peak_bytes
    return max(on_card.reserved_peak_bytes, on_card.card_bytes // _SPARED)


def _log_median(values: Iterable[float]) -> float | None:
    known = [value for value in values if value > 0]
    return math.log(statistics.median(known)) if known else None


def _call_s(s: Slice) -> float:
    """Return the seconds of a call: the median, or the mean if calls were not timed singly."""
    if s.latency is not None:
        return s.latency.p50_s
    return s.call_mean_s
