"""Rules: the effect of a setting on models of a kind, distilled from many designed parts.

A rule is an effect pooled over models (pooling.py): of all of a framework, or of those on one side
of a condition. A condition is used if it predicts the effects in unseen families better than no
condition does. It counts families, because models of one are alike.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tuner.guidelines import calibration
from tuner.guidelines.facts import HOST, HOST_CORES, HOST_ISA
from tuner.guidelines.pooling import Observation, pool
from tuner.record.guidelines import Advice, Condition, Fact, Rule
from tuner.record.interval import Interval

LEAST_FAMILIES = 3
"""On either side of a condition, and for any advice."""
MANY_HOSTS = 5
_WORTH_SAYING = math.log(1.02)
_FORETELLS = 0.75
"""Share of the squared error without a condition that the error with it may come to."""
_CLEARLY = 3.0
"""Standard errors by which both sides of a condition differ."""
_MOST_THRESHOLDS = 6


class Seen(msgspec.Struct, frozen=True):
    """An effect in one model on one host, by all studies of it there."""

    model: str
    studies: tuple[str, ...]
    family: str
    facts: dict[str, Fact]
    value: float
    variance: float


def distil(framework: str, setting: str, seen: Sequence[Seen]) -> list[Rule]:
    """Return the rule of a setting, or the two of a condition's sides."""
    split = _best_condition(seen)
    if split is None:
        return [_rule(framework, setting, None, seen)]
    n_tried = len(_candidates(seen))
    return [
        _rule(framework, setting, side, [e for e in seen if side.holds(e.facts)], n_tried)
        for side in (split, split.opposite())
    ]


def _rule(
    framework: str,
    setting: str,
    condition: Condition | None,
    seen: Sequence[Seen],
    n_tried: int = 1,
) -> Rule:
    """Return a rule; its interval holds for all conditions at once that were tried."""
    pooled = pool(_observations(seen))
    low, high = pooled.interval(1 - 0.05 / n_tried)
    advice: Advice = "none"
    if pooled.n_families >= LEAST_FAMILIES and abs(pooled.mean) > _WORTH_SAYING:
        advice = "set" if low > 0 else "leave" if high < 0 else "none"
    families = dict.fromkeys(each.family for each in seen)
    return Rule(
        framework,
        setting,
        condition,
        pooled.mean,
        pooled.spread,
        pooled.n_families,
        _ratio(pooled.mean, (low, high), 0.95),
        _ratio(pooled.mean, pooled.expected(0.9, calibration.shipped().unexplained_sd), 0.9),
        advice,
        {
            name: math.exp(statistics.fmean(s.value for s in seen if s.family == name))
            for name in families
        },
        len({each.model for each in seen}),
        sorted(name for each in seen for name in each.studies),
    )


def _ratio(mean: float, bounds: tuple[float, float], confidence: float) -> Interval:
    low, high = bounds
    return Interval(math.exp(mean), math.exp(max(low, -700)), math.exp(min(high, 700)), confidence)


def _observations(seen: Iterable[Seen]) -> list[Observation]:
    return [Observation(each.family, each.value, each.variance) for each in seen]


def _best_condition(seen: Sequence[Seen]) -> Condition | None:
    """Return the condition that predicts unseen families best, if it is worth its complexity."""
    found = [(_predicted_effect(seen, each.holds), each) for each in _candidates(seen)]
    if not found:
        return None
    error, best = min(found, key=lambda pair: pair[0])
    if error > _FORETELLS * _predicted_effect(seen, lambda _: True):
        return None
    sides = [pool(_observations(s for s in seen if best.holds(s.facts) is is_in))
             for is_in in (True, False)]  # fmt: skip
    apart = abs(sides[0].mean - sides[1].mean)
    return best if apart > _CLEARLY * math.hypot(sides[0].error, sides[1].error) else None


def _candidates(seen: Sequence[Seen]) -> list[Condition]:
    """Return the conditions on facts that all studies have, with families enough on both sides."""
    names = set.intersection(*(set(each.facts) for each in seen)) if seen else set()
    n_hosts = len({each.facts.get(HOST) for each in seen})
    # of few hosts each speaks for itself; what they are like tells something where there are many
    names -= {HOST} if n_hosts >= MANY_HOSTS else {HOST_ISA, HOST_CORES}
    found: list[Condition] = []
    for name in sorted(names):
        values = [each.facts[name] for each in seen]
        if all(isinstance(value, str) for value in values):
            found += [Condition(name, "==", value) for value in sorted(set(map(str, values)))]
            continue
        ordered = sorted({float(value) for value in values if not isinstance(value, str)})
        between = [math.sqrt(a * b) for a, b in itertools.pairwise(ordered) if a > 0]
        step = max(1, -(-len(between) // _MOST_THRESHOLDS))
        found += [Condition(name, "<=", float(f"{value:.2g}")) for value in between[::step]]
    return [each for each in found if _has_families(seen, each)]


def _has_families(seen: Sequence[Seen], condition: Condition) -> bool:
    sides = [
        {s.family for s in seen if condition.holds(s.facts) is is_in} for is_in in (True, False)
    ]
    return min(map(len, sides)) >= LEAST_FAMILIES


def _predicted_effect(
    seen: Sequence[Seen], holds: Callable[[Mapping[str, Fact]], bool | None]
) -> float:
    """Return the squared error in each family, foretold by the others of its side; their mean."""
    errors = []
    for family in dict.fromkeys(each.family for each in seen):
        own = [each for each in seen if each.family == family]
        others = [each for each in seen if each.family != family]
        predicted = {
            side: pool(_observations([o for o in others if holds(o.facts) is side] or others)).mean
            for side in {holds(each.facts) for each in own}
            if others
        }
        misses = [(each.value - predicted.get(holds(each.facts), 0.0)) ** 2 for each in own]
        errors.append(statistics.fmean(misses))
    return statistics.fmean(errors)
