"""Speed, latency and memory against each other: what is worth choosing between, as a table."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tuner.output.advice import named_as
from tuner.output.phrases import settings
from tuner.output.values import milliseconds, ratio
from tuner.record.configuration import Configuration, Value
from tuner.record.interval import Interval
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Outcome
from tuner.record.result import Result
from tuner.record.study_stats import TrialSection
from tuner.record.workload import CPU
from tuner.space.catalogue import is_default
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
    """Median seconds of a call; None if the metric is a latency, or requests arrive."""
    memory_bytes: int

    def costs_less(self, other: TradeOff) -> bool:
        """Tell whether it clearly takes less memory, or less time for a call, than another."""
        pairs = ((self.call_s, other.call_s), (self.memory_bytes, other.memory_bytes))
        return any(mine < theirs / _ALIKE for mine, theirs in pairs if mine and theirs)


class TradeOffTable(msgspec.Struct, frozen=True):
    """The table in words. The last column holds settings."""

    text: str
    """Says what is listed."""
    heads: list[str]
    rows: list[list[str]]


def trade_off_table(result: Result) -> TradeOffTable | None:
    """Return the trade-offs in words; None if there are none."""
    listed = trade_offs(result)
    if not listed:
        return None
    has_calls = any(each.call_s is not None for each in listed)
    batches = {each.configuration.get(BATCH, result.reference_batch) for each in listed}
    costs = "memory or shorter calls" if has_calls else "memory"
    text = (
        "Of everything that was measured and gains more than noise: the fastest, and what takes "
        f"clearly less {costs} than the faster ones. Ratios of the search are hints; they replace "
        "nothing that is confirmed."
    )
    text += " The batch sizes differ." if len(batches) > 1 else ""
    memory = "memory" if result.device == CPU else "memory of the GPU"
    rows = [
        [
            each.name or "found by the search",
            _gain(each, is_last=each is listed[-1]),
            *([milliseconds(each.call_s) if each.call_s else "-"] if has_calls else []),
            f"{each.memory_bytes / 2**20:.0f} MiB",
            settings(each.configuration),
        ]
        for each in listed
    ]
    calls = ["median call"] if has_calls else []
    return TradeOffTable(text, ["", "over the default", *calls, memory, "settings"], rows)


def _gain(each: TradeOff, *, is_last: bool) -> str:
    if is_last:  # the default
        return "1.00x"
    return f"{each.ratio:.2f}x in the search" if each.confirmed is None else ratio(each.confirmed)


def trade_offs(result: Result) -> list[TradeOff]:
    """Return the fastest configuration, and slower ones that cost less than all before them.

    The costs are memory and, if the metric is the throughput, the time of a call. The default is
    the last row. Empty if nothing gains more than noise, or if trials hold no memory, as in results
    of earlier versions.
    """
    found = _measured(result)
    default = next((each for each in found if _is_default_at_best(each, result)), None)
    if default is None:
        return []
    gaining = [each for each in found if _gains(each, result.noise_floor)]
    kept = _front(sorted(gaining, key=lambda each: -each.ratio))
    return [*kept[:MOST], default] if kept else []


def _gains(each: TradeOff, noise_floor: float) -> bool:
    """Tell whether a configuration is faster than the default by more than noise."""
    if is_default(Configuration.of(each.configuration)):  # at another batch
        return False
    is_sure = each.confirmed is None or each.confirmed.low > 1
    return is_sure and each.ratio > 1 + noise_floor


def _is_default_at_best(each: TradeOff, result: Result) -> bool:
    """Tell whether a configuration is the default at its best batch."""
    batch = each.configuration.get(BATCH, result.reference_batch)
    return is_default(Configuration.of(each.configuration)) and batch == result.default.batch


def _front(candidates: Iterable[TradeOff]) -> list[TradeOff]:
    """Return those that cost clearly less, in some respect, than all that are faster.

    The search's ratios of the best are lucky: they replace nothing that is confirmed.
    """
    kept: list[TradeOff] = []
    for each in candidates:
        rivals = (o for o in kept if o.confirmed is not None or each.confirmed is None)
        if all(map(each.costs_less, rivals)):
            kept.append(each)
    return kept


def _measured(result: Result) -> list[TradeOff]:
    """Return what was measured and may be used."""
    has_calls = result.objective.metric == THROUGHPUT.metric
    found: dict[Configuration, TradeOff] = {}
    for trial in result.trials:
        if trial.outcome is not Outcome.MEASURED or trial.search_ratio is None:
            continue
        if trial.memory_bytes is None:
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
    bare = Configuration.of(trial.configuration).without(BATCH)
    for baseline in result.baselines:  # their speedups are of the batch that is their best
        is_same = Configuration.of(baseline.configuration) == bare
        if is_same and baseline.search_ratio == trial.search_ratio:
            return baseline.speedup
    return None
