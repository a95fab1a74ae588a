"""What a configuration costs where it runs: memory, and the time of a call."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tuner.measurement.estimates import clean_slices
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Prepared, Slice

_SPARED = 10
"""Up to this part of a card's memory nothing is the dearer for taking more: kernels that are chosen
by trial take gigabytes of workspace once, of the 80 that a card has."""
MEMORY, CALL = "memory", "the time of a call"
"""What a price is of."""


class Price(msgspec.Struct, frozen=True):
    """The price of a configuration, as logarithms; None where its launches do not tell."""

    memory: float | None
    """Logarithm of the most bytes that were resident."""
    call: float | None
    """Logarithm of the seconds of a call at the configuration's own batch, in each instance."""

    def rises(self, other: Price) -> dict[str, float]:
        """Return by how much (log) this costs more than another price, by what is known of both."""
        pairs = {
            MEMORY: (self.memory, other.memory),
            CALL: (self.call, other.call),
        }
        return {
            name: mine - theirs
            for name, (mine, theirs) in pairs.items()
            if mine is not None and theirs is not None
        }


def prices_of(launches: Iterable[LaunchRecord]) -> dict[Configuration, Price]:
    """Return the price of every configuration among the launches: the median over its own."""
    found: dict[Configuration, list[LaunchRecord]] = defaultdict(list)
    for record in launches:
        if record.prepared is not None:
            found[record.request.configuration].append(record)
    return {configuration: _price(records) for configuration, records in found.items()}


def _price(records: list[LaunchRecord]) -> Price:
    memory = [_memory_bytes(r.prepared) for r in records if r.prepared is not None]
    calls = [
        statistics.median(map(_call_s, clean_slices(r)))
        for r in records
        if r.slices and r.slices[0].served is None  # what a server's calls may take is bounded
    ]
    return Price(_log_median(memory), _log_median(calls))


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
    """Return the seconds of a call; their mean where the calls were not timed one by one."""
    if s.latency is not None:
        return s.latency.p50_s
    return s.call_mean_s
