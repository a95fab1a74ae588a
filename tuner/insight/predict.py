"""What to set for a model with no search at all: the combination that rules promise most of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
from scipy.special import stdtrit

from tuner.insight.rules import LEAST_FAMILIES
from tuner.record.guidelines import Fact, Rule
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


def applicable(rules: Sequence[Rule], framework: str, facts: Mapping[str, Fact]) -> dict[str, Rule]:
    """Return the rules about a model, by their setting: those with families enough behind them."""
    return {
        rule.setting: rule
        for rule in rules
        if rule.framework == framework
        if rule.n_families >= LEAST_FAMILIES
        if rule.condition is None or rule.condition.holds(facts)
    }


def best_supported(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules that stand for models of all kinds: what a model like no other is told."""
    return {
        name: rule
        for name, rule in rules.items()
        if rule.condition is None and rule.advice != "none"
    }


def ranked(rules: Mapping[str, Rule], allowed: Collection[str]) -> list[Prediction]:
    """Return all combinations of the allowed factors that rules know, the most promising first.

    What rules say of factors and pairs adds up. Of two that promise the same, the shorter one.
    """
    known = [name for name in allowed if name in rules]
    every = [
        foretold(rules, chosen)
        for n in range(len(known) + 1)
        for chosen in itertools.combinations(known, n)
    ]
    return sorted(every, key=lambda each: (-each.speedup.point, len(each.factors)))


def foretold(rules: Mapping[str, Rule], factors: Sequence[str]) -> Prediction:
    """Return what rules expect of some factors together; pairs without a rule do not interact."""
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
