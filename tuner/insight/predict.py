"""What to set for a model with no search at all: the combination that rules promise most of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
from scipy.special import stdtrit

from tuner.insight.facts import unlike
from tuner.insight.rules import LEAST_FAMILIES
from tuner.record.guidelines import Fact, Guidelines, Rule
from tuner.record.interval import Interval

WITH = " with "
_CONFIDENCE = 0.9


class Prediction(msgspec.Struct, frozen=True):
    """A combination of factors, and what rules expect of it."""

    factors: tuple[str, ...]
    """Nothing: the default."""
    speedup: Interval
    """Of a model of a family that the rules have not seen, 90 %."""
    rules: tuple[Rule, ...]
    """That it rests on."""


class Known(msgspec.Struct, frozen=True):
    """What rules say of one model."""

    rules: dict[str, Rule]
    """By their setting: those about it, with families enough behind them."""
    untold: frozenset[str]
    """Pairs that do something together in some models, of which no rule says what in this one."""
    strange: list[str]
    """Facts of it that nothing measured comes near to."""


def known_of(guidelines: Guidelines, framework: str, facts: Mapping[str, Fact]) -> Known:
    """Return what guidelines say of a model.

    Of a model unlike all that was measured: only what holds of every kind.
    """
    own = [rule for rule in guidelines.rules if rule.framework == framework]
    strange = unlike(facts, (s.facts for s in guidelines.studies if s.framework == framework))
    rules = {
        rule.setting: rule
        for rule in own
        if rule.n_families >= LEAST_FAMILIES
        if rule.condition is None or (rule.condition.holds(facts) and not strange)
    }
    untold = {rule.setting for rule in own if WITH in rule.setting} - rules.keys()
    return Known(rules, frozenset(untold), strange)


def every_combination(known: Known, allowed: Collection[str]) -> list[Prediction]:
    """Return what rules expect of every combination of the allowed factors that they speak of.

    What rules say of factors and pairs adds up. Not of two whose doing together is not told.
    """
    told = [name for name in allowed if name in known.rules]
    return [
        foretold(known.rules, chosen)
        for n in range(len(told) + 1)
        for chosen in itertools.combinations(told, n)
        if not any(set(pair.split(WITH)) <= set(chosen) for pair in known.untold)
    ]


def ranked(known: Known, allowed: Collection[str]) -> list[Prediction]:
    """Return the combinations of factors that rules advise to set, the most promising first.

    Alone or beside another. Of two that promise the same, the shorter one.
    """
    advised = {
        part
        for setting, rule in known.rules.items()
        if rule.advice == "set"
        for part in setting.split(WITH)
    }
    every = every_combination(known, [name for name in allowed if name in advised])
    return sorted(every, key=lambda each: (-each.speedup.point, len(each.factors)))


def foretold(rules: Mapping[str, Rule], factors: Sequence[str]) -> Prediction:
    """Return what rules expect of some factors together."""
    here = set(factors)
    used = [rule for setting, rule in rules.items() if set(setting.split(WITH)) <= here]
    mean = math.fsum(rule.mean for rule in used)
    spread = math.sqrt(math.fsum(rule.spread**2 for rule in used))
    half = 0.0
    if used:
        freedom = min(rule.n_families for rule in used) - 1
        half = -float(stdtrit(freedom, (1 - _CONFIDENCE) / 2)) * spread
    speedup = Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), _CONFIDENCE)
    return Prediction(tuple(factors), speedup, tuple(used))
