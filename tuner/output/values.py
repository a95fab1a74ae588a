"""Figures in words: 1.65x (1.52 - 1.79), 39.1 (38.7 - 39.5) items/s, 25.6 (25.1 - 26.1) ms."""

from __future__ import annotations

from tuner.record.figures import figure
from tuner.record.interval import Interval
from tuner.record.objective import METRICS
from tuner.record.result import DefaultSection, Result, WinnerSection


def ratio(interval: Interval | None) -> str:
    """Write a ratio with its interval: 1.65x (1.52 - 1.79)."""
    if interval is None:
        return "-"
    return f"{interval.point:.2f}x ({interval.low:.2f} - {_number(interval.high)})"


def winner_ratio(winner: WinnerSection) -> str:
    """Write a winner's speedup; of a candidate without rounds, the search's ratio as such."""
    hint = winner.search_ratio
    return ratio(winner.speedup) if hint is None else f"{hint:.2f}x in the search"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else "unbounded"


def value_of(section: DefaultSection | WinnerSection) -> Interval | None:
    """Return the value of a configuration; results of earlier versions knew rates only."""
    return section.value or section.rate


def metric(result: Result) -> str:
    """Name the metric in words."""
    name = result.objective.metric
    return METRICS[name].words if name in METRICS else name


def default_value(result: Result) -> str:
    """Write the default's value with its interval and its batch; else that it has none."""
    interval = value_of(result.default)
    serving = result.default.serving
    if result.default_silence:
        return "answers no request"
    if serving is not None and not serving.n_met:
        return "within the bound at no rate that was tried"
    if interval is None and (hint := result.default.search_value) is not None:
        unit = result.objective.unit
        return f"about {figure(hint)} {unit} at batch {result.default.batch} in the search"
    if interval is None:
        return "not known: too few rounds confirmed it"
    undisturbed = _undisturbed(result.default, result)
    return f"{in_unit(interval, result)} at batch {result.default.batch}{undisturbed}"


def in_unit(interval: Interval, result: Result) -> str:
    """Write a value with its interval and its unit."""
    low, high = figure(interval.low), figure(interval.high)
    return f"{figure(interval.point)} ({low} - {high}) {result.objective.unit}"


def compared(winner: WinnerSection, result: Result) -> str:
    """Write a winner's value next to the default's; empty if one is unknown."""
    mine, other = value_of(winner), value_of(result.default)
    if mine is None or other is None:
        return ""
    unit = result.objective.unit
    return f"{metric(result)} {figure(mine.point)} {unit} (default {figure(other.point)} {unit})"


def _undisturbed(section: DefaultSection | WinnerSection, result: Result) -> str:
    """Write the value without disturbed calls; empty if there were none, or only such."""
    without = section.value_undisturbed
    if without is None or without == section.value:
        return ""
    return f"; {in_unit(without, result)} without disturbed calls"


def score_in_unit(log_score: float | None, result: Result) -> str:
    """Write the value of a launch of the confirmation, in the objective's unit."""
    return "-" if log_score is None else figure(result.objective.value(log_score))


def bounds(result: Result) -> str:
    """Write the requested bounds; empty if there were none."""
    return ", ".join(bound.asked for bound in result.objective.bounds)


def milliseconds(seconds: float) -> str:
    """Write seconds in one unit, so that 1,434 ms and 326 ms compare at a glance."""
    value = 1000 * seconds
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"
