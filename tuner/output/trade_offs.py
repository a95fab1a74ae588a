"""Speed, latency and memory against each other: what nothing measured surpasses in all three."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tuner.output.advice import named_as
from tuner.output.values import milliseconds, ratio
from tuner.record.configuration import Configuration, Value
from tuner.record.interval import Interval
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Outcome
from tuner.record.result import Result
from tuner.record.study_stats import TrialSection
from tuner.space.knobs_of.launch import BATCH

MOST = 5
"""Rows of the table, the default apart."""
_ALIKE = 1.05
"""Ratio: memory and calls that differ by less are alike; launches of one configuration do."""


class TradeOff(msgspec.Struct, frozen=True):
    """A configuration with what it gains and what it costs."""

    name: str
    """The classes and recommendations that it is; empty if only the search found it."""
    configuration: dict[str, Value]
    ratio: float
    """Over the default; above 1 is better."""
    confirmed: Interval | None
    """The same from the confirmation; None if only the search shows it."""
    call_s: float | None
    memory_bytes: int | None

    @property
    def gain(self) -> str:
        """Write the ratio with its interval, or that the search shows it alone."""
        if self.confirmed is not None:
            return ratio(self.confirmed)
        return f"{self.ratio:.2f}x in the search" if self.ratio != 1 else "1.00x"

    @property
    def call(self) -> str:
        """Write the seconds of a call in milliseconds: 1,435 ms."""
        return "-" if self.call_s is None else milliseconds(self.call_s)

    @property
    def memory(self) -> str:
        """Write the memory: 681 MiB."""
        return "-" if self.memory_bytes is None else f"{self.memory_bytes / 2**20:.0f} MiB"

    def costs_less(self, other: TradeOff) -> bool:
        """Tell whether it clearly takes less memory, or less time for a call, than another."""
        pairs = ((self.call_s, other.call_s), (self.memory_bytes, other.memory_bytes))
        return any(mine < theirs / _ALIKE for mine, theirs in pairs if mine and theirs)


def trade_offs(result: Result) -> list[TradeOff]:
    """Return the configurations that nothing measured surpasses in all respects, fastest first.

    The respects are speed, the time of a call (if the metric is the throughput) and memory. The
    default is the last row in any case. Empty if nothing beats it, or if trials hold no memory, as
    in results of earlier versions.
    """
    found = _measured(result)
    default = next((each for each in found if _is_default(each, result)), None)
    if default is None or default.memory_bytes is None:
        return []
    rest = [each for each in found if each.ratio > 1 and each is not default]
    kept = _front(sorted(rest, key=lambda each: -each.ratio))
    # its batch is the best by the rounds, of which the search's ratio knows nothing
    return [*kept[:MOST], msgspec.structs.replace(default, ratio=1.0)] if kept else []


def _is_default(each: TradeOff, result: Result) -> bool:
    """Tell whether a configuration is the default at its best batch."""
    batch = each.configuration.get(BATCH, result.reference_batch)
    return not each.configuration.keys() - {BATCH} and batch == result.default.batch


def _front(candidates: Iterable[TradeOff]) -> list[TradeOff]:
    """Return those that cost clearly less, in some respect, than all that are faster."""
    kept: list[TradeOff] = []
    for each in candidates:
        if all(each.costs_less(other) for other in kept):
            kept.append(each)
    return kept


def _measured(result: Result) -> list[TradeOff]:
    """Return what was measured and may be used."""
    has_calls = result.objective.metric == THROUGHPUT.metric
    found: dict[Configuration, TradeOff] = {}
    for trial in result.trials:
        if trial.outcome is not Outcome.MEASURED or trial.search_ratio is None:
            continue
        known = _confirmed(result, trial)
        found[Configuration.of(trial.configuration)] = TradeOff(
            name=named_as(result, trial.configuration),
            configuration=trial.configuration,
            ratio=trial.search_ratio if known is None else known.point,
            confirmed=known,
            call_s=trial.call_p50_s if has_calls else None,
            memory_bytes=trial.memory_bytes,
        )
    return list(found.values())


def _confirmed(result: Result, trial: TrialSection) -> Interval | None:
    """Return the speedup of a trial's configuration in the confirmation; None if it was not in."""
    for winner in result.winners.values():
        if winner.configuration == trial.configuration:
            return winner.speedup
    bare = {knob: value for knob, value in trial.configuration.items() if knob != BATCH}
    for baseline in result.baselines:  # their speedups are of the batch that is their best
        if baseline.configuration == bare and baseline.search_ratio == trial.search_ratio:
            return baseline.speedup
    return None
