"""Which configurations may win at all: they work, keep to the bounds, and bear what they must."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.measurement.estimates import kept
from tuner.record.configuration import Configuration
from tuner.record.launch import UNPACED, LaunchRecord
from tuner.record.outcome import Outcome
from tuner.space.catalogue import is_default
from tuner.study.bounds import beyond

if TYPE_CHECKING:
    from tuner.study.ledger import Ledger

COLLAPSE = 0.5
"""Beside a busy neighbour: what keeps less than this of the share that the default keeps."""
_CLEARLY = 0.1
"""Logarithm: single slices beside a neighbour scatter by several percent."""
_NO_FAULT = (Outcome.MEASURED, Outcome.INTERRUPTED, Outcome.PRUNED)


class Eligibility:
    """What the launches so far say against configurations."""

    def __init__(self, ledger: Ledger, launches: Mapping[int, LaunchRecord]) -> None:
        self._ledger = ledger
        self._launches = launches
        self._failed = {
            record.request.configuration
            for record in launches.values()
            if record.ending is not None and record.ending.outcome not in _NO_FAULT
        }
        self._beyond = beyond(launches.values(), ledger.objective.bounds)

    def is_beyond(self, configuration: Configuration) -> bool:
        """Tell whether a configuration, be it the default, surely exceeds a bound."""
        return configuration in self._beyond

    def has_failed(self, configuration: Configuration) -> bool:
        """Tell whether any launch of the configuration failed by its own fault."""
        return configuration in self._failed

    def over_bound(self, configuration: Configuration) -> str:
        """Say which bound a configuration surely exceeds; empty if none.

        The default is what everything is compared with: it is out of the question at a batch only
        if it was measured within all bounds at another.
        """
        if is_default(configuration) and not self._is_default_within():
            return ""
        return self._beyond.get(configuration, "")

    def _is_default_within(self) -> bool:
        """Tell whether the default was measured within all bounds, at whatever batch."""
        ledger = self._ledger
        at_batches = (ledger.at_batch(Configuration(), batch) for batch in ledger.batches)
        return any(ledger.score(c) is not None and not self.is_beyond(c) for c in at_batches)

    def default_beyond(self) -> str:
        """Say which bound the default exceeds, at its best batch; empty if none."""
        default = self._ledger.leaders.default_at_best()
        return "" if default is None else self._beyond.get(default[0], "")

    def may_win(self, configuration: Configuration) -> bool:
        """Tell whether a configuration neither failed nor lies beyond a bound."""
        return not self.has_failed(configuration) and not self.over_bound(configuration)

    def refusal(self, configuration: Configuration) -> str:
        """Say why a configuration is no winner although it works; empty if nothing is known.

        It lies beyond a bound, or collapses beside a busy neighbour where winners must bear one.
        """
        if why := self.over_bound(configuration):
            return why
        if self._ledger.objective.bears_neighbours and self.collapses(configuration):
            return "it collapses beside a busy neighbour"
        return ""

    def kept(self, configuration: Configuration) -> float | None:
        """Return the log share of its worth that is left beside a busy neighbour; None if unknown.

        From launches of the search; those of the confirmation choose nothing.
        """
        found = [
            kept(record, self._ledger.objective)
            for record in self._launches.values()
            if record.request.configuration == configuration and record.beside and record.slices
            if record.request.purpose not in UNPACED
        ]
        return statistics.fmean(found) if found else None

    def default_kept(self) -> float | None:
        """Return what the default keeps beside a busy neighbour, at any batch; None if unknown."""
        found = [
            self.kept(self._ledger.at_batch(Configuration(), batch))
            for batch in self._ledger.batches
        ]
        known = [kept for kept in found if kept is not None]
        return statistics.fmean(known) if known else None

    def collapses(self, configuration: Configuration) -> bool:
        """Tell whether a configuration is known to collapse beside a busy neighbour.

        It then keeps less than half of what the default keeps, or is clearly slower there than the
        default. From a slice or two: a preference of the search, no claim.
        """
        default, score = self._ledger.leaders.default_at_best(), self._ledger.score(configuration)
        kept, default_kept = self.kept(configuration), self.default_kept()
        if default is None or score is None or kept is None or default_kept is None:
            return False
        lead = score + kept - default[1] - default_kept
        return kept < math.log(COLLAPSE) + default_kept or lead < -_CLEARLY
