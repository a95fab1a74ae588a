"""Where a difference in speed comes from: the time of classes of operators, round by round.

Seconds are those of slices without a profiler, and shares those of profiled calls: with c the
seconds of a class in a profiled call, p those of the call, and r the items per second without, the
class takes c / (p r) an item. What no operator accounts for is framework overhead. Where operators
of several threads sum up to more than a call of either side takes, no overhead is to be seen, and p
is their sum on both sides.

The classes of a side sum up to its seconds by construction, and a profiler slows small operators
more than large ones. Reports therefore attribute a difference only if profiled calls may
show at least half of it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter

from tuner.analysis.operator_classes import class_of
from tuner.analysis.roofline import roofline
from tuner.measurement.confirmation import ALPHA, t_interval
from tuner.measurement.estimates import clean_slices
from tuner.record.configuration import Value
from tuner.record.interval import Interval
from tuner.record.launch import LaunchRecord
from tuner.record.why import (
    LEAST_ROUNDS,
    MULTIPLYING,
    BaselineTimes,
    ClassTime,
    Efficiency,
    HostBest,
    ModelWork,
    OperatorClass,
    ProfiledRound,
    Roofline,
    ScalingRound,
    Seen,
    Why,
)

_UNNAMED = (OperatorClass.OTHER, OperatorClass.OVERHEAD)
_SMALL = 0.005
"""Share of a call of the slower configuration below which a class is not listed."""
_HIDDEN = 0.1
"""Time in kernels of unknown class, as a share of that in products, from which no efficiency is
stated."""
_CONVERTING = (
    "torch.dtype", "torch.autocast", "tensorflow.keras_policy", "tensorflow.auto_mixed_precision"
)  # fmt: skip
_NARROW = ("bf16", "fp16", "mixed_bfloat16")
"""Settings under which products read and write tensors of the type in which they compute."""
_DEFAULT_S, _TUNED_S = attrgetter("default_s"), attrgetter("tuned_s")


def shares_of(record: LaunchRecord, *, has_overhead: bool = True) -> dict[OperatorClass, float]:
    """Return the share of a call that each class takes, by the profile of a launch.

    has_overhead: whether what is in no operator counts; else shares are those of all operators.
    """
    profile = record.profile
    assert profile is not None
    seconds: dict[OperatorClass, float] = defaultdict(float)
    for operator in profile.operators:
        seconds[class_of(operator.name)] += operator.seconds
    within = sum(seconds.values())
    whole = max(profile.call_s, within) if has_overhead else within
    if has_overhead:
        seconds[OperatorClass.OVERHEAD] += whole - within
    return {name: taken / whole for name, taken in seconds.items()}


def _is_parallel(seen: Seen) -> bool:
    """Tell whether operators of several threads sum up to more than a call takes."""
    profile = seen.profiled.profile
    assert profile is not None
    return sum(operator.seconds for operator in profile.operators) > profile.call_s


def item_s(record: LaunchRecord) -> float:
    """Return the seconds of an item in the unprofiled slices of a launch."""
    slices = clean_slices(record) or record.slices
    return 1 / statistics.geometric_mean(each.rate for each in slices)


def is_complete(seen: Seen) -> bool:
    """Tell whether a configuration was measured and profiled."""
    profile = seen.profiled.profile
    return (
        bool(seen.timed.slices)
        and profile is not None
        and any(operator.seconds > 0 for operator in profile.operators)
    )


def why(
    rounds: Sequence[ProfiledRound],
    configuration: Mapping[str, Value],
    *,
    scaling: Sequence[ScalingRound] = (),
    macs: int | None = None,
    work: ModelWork | None = None,
    best: HostBest | None = None,
    n_cores: int = 1,
    baseline: tuple[str, Mapping[str, Value]] = ("", {}),
) -> Why | None:
    """Return the classes of both, and of their difference; None for fewer than LEAST_ROUNDS.

    macs: multiply-accumulates of an item. work: by operators. None if unknown. baseline: the name
    and settings of what rounds hold as such.
    """
    known = [each for each in rounds if is_complete(each.default) and is_complete(each.tuned)]
    if len(known) < LEAST_ROUNDS:
        return None
    has_overhead = not any(_is_parallel(seen) for each in known for seen in filter(None, each))
    times = [
        tuple(_class_seconds(seen, has_overhead) for seen in (each.default, each.tuned))
        for each in known
    ]
    names = {name for both in times for each in both for name in each}
    rows = {
        name: [(default.get(name, 0.0), tuned.get(name, 0.0)) for default, tuned in times]
        for name in names
    }
    default_s = statistics.fmean(item_s(each.default.timed) for each in known)
    tuned_s = statistics.fmean(item_s(each.tuned.timed) for each in known)
    classes = [_row(name, values) for name, values in rows.items()]
    least = _SMALL * max(default_s, tuned_s)
    classes = [each for each in classes if max(each.default_s, each.tuned_s) >= least]
    classes.sort(key=lambda each: -abs(each.saved_s.point))
    saved_s = default_s - tuned_s
    total = t_interval([item_s(e.default.timed) - item_s(e.tuned.timed) for e in known], ALPHA)
    named = sum(each.saved_s.point for each in classes if each.name not in _UNNAMED)
    is_other = total[1] > 0 or total[2] < 0
    profiled = _ratio([(_profiled_item_s(e.default), _profiled_item_s(e.tuned)) for e in known])
    assert profiled is not None
    profile = known[0].default.profiled.profile
    assert profile is not None
    return Why(
        dict(configuration),
        len(known),
        default_s,
        tuned_s,
        classes,
        named / saved_s if is_other and not math.isclose(saved_s, 0.0) else None,
        profiled,
        profile.how,
        n_cores,
        _ratio([(item_s(e.one_core), item_s(e.whole)) for e in scaling if e.one_core]),
        _ratio([(item_s(e.half_batch), item_s(e.whole)) for e in scaling if e.half_batch]),
        _busy([(each.default.timed, each.tuned.timed) for each in known]),
        best,
        _efficiency(classes, macs, best),
        _roofline(known[0], classes, work, best, (default_s, tuned_s), configuration),
        _baseline(known, *baseline, default_s, has_overhead),
    )


def _roofline(
    one: ProfiledRound,
    classes: Sequence[ClassTime],
    work: ModelWork | None,
    best: HostBest | None,
    seconds: tuple[float, float],
    configuration: Mapping[str, Value],
) -> Roofline | None:
    """Return how near the configuration comes to the best of the host; None if it is not known."""
    if work is None or best is None:
        return None
    batches = one.default.timed.request.batch, one.tuned.timed.request.batch
    return roofline(
        classes,
        work,
        best,
        batches,
        seconds,
        is_hidden=_hides_products(classes),
        is_narrow=any(configuration.get(knob, "off") in _NARROW for knob in _CONVERTING),
    )


def _baseline(
    rounds: Sequence[ProfiledRound],
    name: str,
    configuration: Mapping[str, Value],
    default_s: float,
    has_overhead: bool,
) -> BaselineTimes | None:
    """Return the mean times of the baseline, as if the default took `default_s` in its rounds."""
    known = [(e.default, e.baseline) for e in rounds if e.baseline and is_complete(e.baseline)]
    if len(known) < LEAST_ROUNDS:
        return None
    scale = default_s / statistics.fmean(item_s(default.timed) for default, _ in known)
    times = [_class_seconds(seen, has_overhead) for _, seen in known]
    names = {each for one in times for each in one}
    return BaselineTimes(
        name,
        dict(configuration),
        scale * statistics.fmean(item_s(seen.timed) for _, seen in known),
        {each: scale * statistics.fmean(one.get(each, 0.0) for one in times) for each in names},
    )


def _busy(pairs: Sequence[tuple[LaunchRecord, LaunchRecord]]) -> tuple[float, float] | None:
    """Return the mean shares of the CPU time that both used; None if some slices do not tell."""
    sides = [
        [each.interference.own for record in side for each in record.slices]
        for side in zip(*pairs, strict=True)
    ]
    known = [[own for own in side if own is not None] for side in sides]
    if not all(known) or known != sides:
        return None
    default, tuned = map(statistics.fmean, known)
    return default, tuned


def _ratio(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """Return the mean ratio of pairs of seconds; None for fewer than LEAST_ROUNDS."""
    if len(pairs) < LEAST_ROUNDS:
        return None
    logs = [math.log(one / other) for one, other in pairs]
    point, low, high = map(math.exp, t_interval(logs, ALPHA))
    return Interval(point, low, high, 1 - ALPHA)


def _efficiency(
    classes: Sequence[ClassTime], macs: int | None, best: HostBest | None
) -> Efficiency | None:
    """Return how fast the multiplying classes are, beside the host's fastest operator.

    None if kernels of unknown class may multiply, too.
    """
    if not macs or best is None:
        return None
    if _hides_products(classes):
        return None
    taken = [each for each in classes if each.name in MULTIPLYING]
    default_s, tuned_s = (sum(map(side, taken)) for side in (_DEFAULT_S, _TUNED_S))
    dtype = max(best.flops, key=lambda name: best.flops[name])
    n_operations = 2 * macs
    return Efficiency(
        n_operations / best.flops["fp32"] / default_s,
        n_operations / best.flops[dtype] / tuned_s,
        dtype,
    )


def _hides_products(classes: Sequence[ClassTime]) -> bool:
    """Tell whether products may lie in kernels of unknown class, on either side."""
    taken = [each for each in classes if each.name in MULTIPLYING]
    unknown = [each for each in classes if each.name in (OperatorClass.FUSED, OperatorClass.OTHER)]
    least_s = min(sum(map(side, taken)) for side in (_DEFAULT_S, _TUNED_S))
    hidden_s = max(sum(map(side, unknown)) for side in (_DEFAULT_S, _TUNED_S))
    return not least_s or hidden_s > _HIDDEN * least_s


def _class_seconds(seen: Seen, has_overhead: bool) -> dict[OperatorClass, float]:
    """Return the seconds of an item that each class takes."""
    whole = item_s(seen.timed)
    shares = shares_of(seen.profiled, has_overhead=has_overhead)
    return {name: share * whole for name, share in shares.items()}


def _profiled_item_s(seen: Seen) -> float:
    """Return the seconds of an item in profiled calls, of all instances together."""
    record = seen.profiled
    assert record.profile is not None
    n_instances = max(1, *(len(each.shares) for each in record.slices))
    return record.profile.call_s / (record.request.batch * n_instances)


def _row(name: OperatorClass, values: Sequence[tuple[float, float]]) -> ClassTime:
    return ClassTime(
        name,
        _mean([default for default, _ in values]),
        _mean([tuned for _, tuned in values]),
        _mean([default - tuned for default, tuned in values]),
    )


def _mean(values: Sequence[float]) -> Interval:
    return Interval(*t_interval(values, ALPHA), 1 - ALPHA)
