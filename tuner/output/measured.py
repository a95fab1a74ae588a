"""The figures of the default and of each winner as a table, with a row for each."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tuner.output.headline import class_name
from tuner.output.phrases import same_settings
from tuner.output.training import share_in_words
from tuner.output.values import metric, milliseconds, value_of
from tuner.record.figures import figure
from tuner.record.interval import Interval
from tuner.record.objective import THROUGHPUT
from tuner.record.result import DefaultSection, Result, WinnerSection
from tuner.space.knobs_of.launch import BATCH, INSTANCES

_UNKNOWN = "-"

_Section = DefaultSection | WinnerSection


class MeasuredTable(msgspec.Struct, frozen=True):
    """Columns in which at least one row has a figure."""

    heads: list[str]
    rows: list[list[str]]
    """The first cell names the row."""
    has_instances: bool
    """Whether any winner has several instances."""


def measured(result: Result) -> MeasuredTable:
    """Return the figures of the default and of each winner with other settings.

    The best candidate of a class where nothing is faster is marked as such.
    """
    shown: dict[str, _Section] = {"default": result.default}
    for winner_class, winner in result.winners.items():
        if winner.configuration and not same_settings(result, winner_class):
            kind = "" if winner.verdict == "faster" else " (candidate)"
            shown[f"{class_name(winner, winner_class)}{kind}"] = winner
    columns = {
        head: cells
        for head, cell in _columns(result).items()
        if set(cells := [cell(section) for section in shown.values()]) != {_UNKNOWN}
    }
    names = ["", *columns]
    rows = [[name, *cells] for name, *cells in zip(shown, *columns.values(), strict=True)]
    n = [s.configuration.get(INSTANCES, 1) for s in shown.values() if isinstance(s, WinnerSection)]
    return MeasuredTable(names, rows, any(each != 1 for each in n))


def _columns(result: Result) -> dict[str, Callable[[_Section], str]]:
    cores = result.host.identity["quota_cores"] or result.host.identity["physical_cores"]
    is_rate, hourly = result.objective.is_rate, result.price_per_hour
    unit = result.objective.unit
    named = unit if result.objective.metric == THROUGHPUT.metric else f"{metric(result)}, {unit}"

    def batch(section: _Section) -> str:
        if isinstance(section, DefaultSection):
            return str(section.batch)
        return str(section.configuration.get(BATCH, result.reference_batch))

    def undisturbed(section: _Section) -> str:
        without = section.value_undisturbed
        return _UNKNOWN if without in (None, section.value) else _interval(without)

    def per_core(section: _Section) -> str:
        return figure(section.rate.point / cores) if section.rate and is_rate else _UNKNOWN

    def per_million(section: _Section) -> str:
        if section.rate is None or hourly is None or not is_rate:
            return _UNKNOWN
        return figure(hourly / 3600 / section.rate.point * 1e6)

    return {
        "batch": batch,
        named: lambda s: _interval(value_of(s)),
        f"{named} without disturbed calls": undisturbed,
        "items/s a core": per_core,
        "median call": lambda s: milliseconds(s.call.p50_s) if s.call else _UNKNOWN,
        "99 % of calls": lambda s: milliseconds(s.call.p99_s) if s.call else _UNKNOWN,
        "calls timed": lambda s: str(s.call.n_calls) if s.call else _UNKNOWN,
        "slower in": lambda s: _slower(s, "{s.n_slower} of {s.n_rounds} rounds"),
        "launches that may be slower": lambda s: _slower(s, "{s.low:.0%} - {s.high:.0%}"),
        "CPU time used": lambda s: _UNKNOWN if s.cpu_share is None else f"{s.cpu_share:.0%}",
        "of a step, for loading": lambda s: (
            _UNKNOWN if s.loading is None else share_in_words(s.loading)
        ),
        f"a million items, at {hourly or 0:g} an hour": per_million,
        "mJ an item on the GPU": lambda s: (
            _UNKNOWN if s.joules_per_item is None else f"{1000 * s.joules_per_item:.3g}"
        ),
    }


def _slower(section: _Section, form: str) -> str:
    """Write how often a winner's launch was slower than the default's beside it."""
    if isinstance(section, DefaultSection) or section.stability is None:
        return _UNKNOWN
    return form.format(s=section.stability)


def _interval(value: Interval | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{figure(value.point)} ({figure(value.low)} - {figure(value.high)})"
