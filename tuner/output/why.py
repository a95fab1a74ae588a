"""Why a configuration is faster, in words: which classes of operators take less time."""

from __future__ import annotations

import math
from typing import NamedTuple

from tuner.record.interval import Interval
from tuner.record.result import Result
from tuner.record.why import (
    ClassTime,
    HostBest,
    OperatorClass,
    Roofline,
    RooflinePoint,
    Why,
)

_MOST = 5
"""Classes that are named."""
_LITTLE = 0.05
"""Share of the difference below which a class is not named."""
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SCALES = 0.8
"""Share of the number of cores from which a gain by them needs no comment."""


def findings(found: Why) -> list[str]:
    """Say which classes of operators the difference is in, the largest first.

    Only classes whose difference is surely not 0, and nothing if the two do not surely differ: of
    several classes, chance makes one differ in a quarter of all cases.
    """
    total = found.default_s - found.tuned_s
    return [_sentence(each, total) for each in _reasons(found)]


def _reasons(found: Why) -> list[ClassTime]:
    if found.accounted is None or not _shows(found):
        return []
    total = found.default_s - found.tuned_s
    sure = [
        each
        for each in found.classes
        if each.is_sure and abs(each.saved_s.point) >= _LITTLE * abs(total)
    ]
    return sorted(sure, key=lambda each: -each.saved_s.point * math.copysign(1, total))[:_MOST]


def _shows(found: Why) -> bool:
    """Tell whether profiled calls may differ in speed by half as much (log) as the others do."""
    half = math.sqrt(found.default_s / found.tuned_s)
    return found.profiled.high > half if half > 1 else found.profiled.low < half


def what_is_left(found: Why) -> list[str]:
    """Say what the configuration still spends its time on, and what limits it, in sentences."""
    sentences = []
    if found.classes:
        most = max(found.classes, key=lambda each: each.tuned_s)
        sentences.append(
            f"of the {_time(found.tuned_s)} that an item still takes, "
            f"{_percent(most.tuned_s / found.tuned_s)} is {most.name}"
        )
    if found.roofline is not None and found.best is not None:
        sentences += _at_the_roof(found, found.roofline, found.best)
    elif found.efficiency is not None and found.best is not None and found.efficiency.tuned <= 1:
        dtype = found.efficiency.dtype
        default = _percent(found.efficiency.default)
        sentences.append(
            f"products run at {_percent(found.efficiency.tuned)} of the best that this host did "
            f"({_giga(found.best.flops[dtype])}FLOP/s, {found.best.fastest[dtype]} in {dtype})"
            + (f", those of the default at {default} in fp32" if found.configuration else "")
        )
    if found.busy is not None:
        default, tuned = map(_percent, found.busy)
        beside = f", the default's for {default}" if found.configuration else ""
        sentences.append(
            f"its processes use their CPUs for {tuned} of the time{beside}, waiting threads that "
            "spin included"
        )
    if found.on_all_cores is not None:
        sentences.append(_on_all_cores(found.on_all_cores, found.n_cores))
    if found.at_half_batch is not None and found.at_half_batch.low > 1:
        fixed = found.at_half_batch
        sentences.append(
            f"{_percent(fixed.point - 1)} of a call do not depend on its batch ("
            f"{_percent(fixed.low - 1)} to {_percent(fixed.high - 1)}): a larger batch spreads them"
        )
    return [f"{each[0].upper()}{each[1:]}." for each in sentences]


def _at_the_roof(found: Why, roof: Roofline, best: HostBest) -> list[str]:
    """Say which share of the attainable speed is reached, where the rest is, and what limits it.

    Nothing about what is faster than the roof: operands that stay in caches can be.
    """
    sentences = []
    reached = roof.attainable_s / found.tuned_s
    if reached <= 1:
        sentences.append(
            f"at the best that this host did in {roof.dtype} ({_giga(best.flops[roof.dtype])}FLOP/s"
            f", {best.fastest[roof.dtype]}; {_giga(best.bytes_per_s)}byte/s, {best.stream}), its "
            f"products would take {_time(roof.attainable_s)}: {_percent(reached)} of the attainable"
            f" speed is reached, and most of the rest ({_time(roof.left_s)}) is in {roof.left}"
        )
    for each in roof.points:
        tuned = limit(each, roof, best)
        if each.name is not None and tuned.share <= 1:
            beside = ""
            if found.configuration and (default := limit_of_default(each, best)).share <= 1:
                beside = f"; the default's at {_percent(default.share)}, in fp32"
            sentences.append(
                f"{each.name} runs at {_giga(each.flops / each.tuned_s)}FLOP/s, "
                f"{_percent(tuned.share)} of the most that its {tuned.by} allows{beside}"
            )
    return sentences


class Limit(NamedTuple):
    """What an operator's speed is limited by on this host."""

    share: float
    """Of the rate at the roof, that it reaches."""
    by: str


def limit(point: RooflinePoint, roof: Roofline, best: HostBest) -> Limit:
    """Return what limits a class in the configuration."""
    return _limit(point.flops, point.tuned_bytes, point.tuned_s, best, roof.dtype)


def limit_of_default(point: RooflinePoint, best: HostBest) -> Limit:
    """Return what limits a class in the default, which computes in fp32."""
    return _limit(point.flops, point.default_bytes, point.default_s, best, "fp32")


def _limit(flops: float, n_bytes: float, seconds: float, best: HostBest, dtype: str) -> Limit:
    by_arithmetic, by_memory = flops / best.flops[dtype], n_bytes / best.bytes_per_s
    if by_arithmetic >= by_memory:
        return Limit(by_arithmetic / seconds, "arithmetic")
    return Limit(by_memory / seconds, "traffic with memory")


def _on_all_cores(gain: Interval, n_cores: int) -> str:
    """Write: 2 cores are 1.3 times as fast as one (1.2 - 1.4)."""
    text = (
        f"{n_cores} cores are {gain.point:.2f} times as fast as one "
        f"({gain.low:.2f} - {gain.high:.2f})"
    )
    if gain.low > n_cores:
        return f"{text}: one alone lacks more than arithmetic, such as caches or undivided time"
    if gain.high >= _SCALES * n_cores:
        return text
    return f"{text}: one thread may do the rest, or all may wait for the same memory"


def in_short(found: Why) -> str:
    """Say on one line where the difference is; that nothing explains it, if so."""
    reasons = _reasons(found)
    if found.accounted is None:
        return "in these rounds, the two do not surely differ in speed"
    if not _shows(found):
        profiled = found.profiled
        return (
            "the profiles do not explain the difference: "
            f"{found.default_s / found.tuned_s:.2f}x in timed calls, and {profiled.point:.2f}x "
            f"({profiled.low:.2f} - {profiled.high:.2f}) in profiled ones"
        )
    if not reasons:
        return "no class of operators differs surely: the profiles do not explain the difference"
    total = found.default_s - found.tuned_s
    rest = 1 - sum(each.saved_s.point for each in reasons) / total
    sentences = findings(found)
    if abs(rest) > _LITTLE:
        sentences.append(f"the other {_percent(rest)} are in no class that surely differs")
    return "; ".join(sentences)


def explanation_of(result: Result) -> Why | None:
    """Return what is known of the recommended winner; None if it was not explained."""
    winner = result.winners[result.recommended_class]
    own = [each for each in result.why if each.configuration == winner.configuration]
    return own[0] if own and winner.verdict == "faster" else None


def first_reason(result: Result) -> str:
    """Say what most of the recommended winner's gain comes from; empty if it is not known."""
    found = explanation_of(result)
    named = findings(found) if found is not None else []
    return named[0] if named else ""


def changes_of_default(before: Result, after: Result) -> list[str]:
    """Say which classes of the default's operators differ between two studies that were explained.

    Only classes whose intervals do not overlap, the largest difference first.
    """
    if not before.why or not after.why:
        return []
    known = {each.name: each.default for each in before.why[0].classes}
    both = [
        (each.name, known[each.name], each.default)
        for each in after.why[0].classes
        if each.name in known
    ]
    sure = [(n, a, b) for n, a, b in both if a.high < b.low or b.high < a.low]
    sure.sort(key=lambda row: -abs(row[2].point - row[1].point))
    return [
        f"{name} of the default: {_time(a.point)} an item, then {_time(b.point)}"
        for name, a, b in sure[:_MOST]
    ]


def heads(found: Why) -> list[str]:
    """Name the columns of the table of classes."""
    names = ["class of operators", "default"]
    if found.configuration:
        names += ["tuned", "saved per item (95 %)"]
    return [*names, *([found.baseline.name] if found.baseline else [])]


def rows(found: Why) -> list[list[str]]:
    """Return a row per class: its name, and the seconds of an item in each."""
    table = []
    for each in found.classes:
        row = [str(each.name), _time(each.default_s)]
        if found.configuration:
            saved = "{} ({} to {})".format(*map(_time, _points(each.saved_s)))
            row += [_time(each.tuned_s), saved]
        if found.baseline is not None:
            row.append(_time(found.baseline.classes.get(each.name, 0.0)))
        table.append(row)
    return table


def _sentence(each: ClassTime, total: float) -> str:
    """Write: convolution: 12.1 ms an item instead of 30.5 ms, 62 % of the gain (50 - 74 %)."""
    fused = ", in which several classes are fused" if each.name == OperatorClass.FUSED else ""
    took = f"{each.name}{fused}: {_time(each.tuned_s)} an item instead of {_time(each.default_s)}"
    if total <= 0:
        return took
    share, low, high = (value / total for value in _points(each.saved_s))
    if share < 0:
        return f"{took}, by which {_percent(-share)} of the gain are lost"
    return f"{took}, {_percent(share)} of the gain ({100 * low:.0f} - {100 * high:.0f} %)"


def _points(interval: Interval) -> tuple[float, float, float]:
    return interval.point, interval.low, interval.high


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _giga(rate: float) -> str:
    """Write a rate in the unit that its size asks for."""
    return f"{rate / 1e12:.3g} T" if rate >= 1e12 else f"{rate / 1e9:.3g} G"


def _time(seconds: float) -> str:
    """Write seconds with three digits, in the unit that their size asks for."""
    unit, name = next(((unit, name) for unit, name in _UNITS if abs(seconds) >= unit), _UNITS[-1])
    return f"{float(f'{seconds / unit:.3g}'):g} {name}"
