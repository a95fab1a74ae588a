"""What to set for a model with no search at all: the combination that rules promise most of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from scipy.special import stdtrit

from tuner.guidelines import calibration
from tuner.guidelines.facts import HOST, HOST_CORES, HOST_FACTS, unlike
from tuner.guidelines.rules import LEAST_FAMILIES
from tuner.record.configuration import Configuration
from tuner.record.guidelines import Condition, Fact, Guidelines, Rule, StudyOf
from tuner.record.interval import Interval
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors
from tuner.space.profile import FactorEntry

WITH = " with "
_CONFIDENCE = 0.9
SURE = 0.8
"""Probability of gaining anything that a combination needs to be recommended. By averages alone,
families left out lose as often as they gain: effects differ more between families than averages are
large (benchmarks/guidelines.py)."""
_FEW = 0.5
"""Share of a framework's families: a rule of no more speaks of models of about their size."""
_LEAST = math.log(1.01)
"""A setting that adds less is not worth shipping."""


class Prediction(msgspec.Struct, frozen=True):
    """A combination of factors, and what rules expect of it."""

    factors: tuple[str, ...]
    """Nothing: the default."""
    speedup: Interval
    """Of a model of a family that the rules have not seen, 90 %."""
    rules: tuple[Rule, ...]
    """That it rests on."""
    sure: float
    """The gain that such a model exceeds with a probability of SURE, as a ratio."""

    @property
    def expected_gain(self) -> float:
        """The average gain if a gain is that sure; otherwise the gain that is that sure: a loss."""
        return self.speedup.point if self.sure > 1 else self.sure


class Known(msgspec.Struct, frozen=True):
    """The rules' prediction for one model."""

    rules: dict[str, Rule]
    """By their setting: those about it, with families enough behind them."""
    untold: frozenset[str]
    """Pairs that do something together in some models, of which no rule says what in this one."""
    strange: list[str]
    """Facts of it, or of the host, that nothing measured comes near to."""
    elsewhere: dict[str, str] = {}
    """Settings whose rules come from one other host alone: that host, in words."""
    distant: dict[str, list[str]] = {}
    """Settings of which few families tell: the facts in which the model is unlike all of those."""


def known_of(
    guidelines: Guidelines, framework: str, facts: Mapping[str, Fact], architecture: str = ""
) -> Known:
    """Return the guidelines' prediction for a model on a host.

    For a model unlike all that were measured, only rules that hold for every kind; for such a host,
    only those that hold for every one. A rule that few of the families taught applies only to
    models of about their size: bf16 made large products 1.5x to 2x as fast, and a small tabular
    network 0.76x. A rule from one host alone applies to that one: bf16, worth 1.7x on the only host
    that taught it, halved the speed of the next one that has it
    (benchmarks/history/what-the-printed-interval-holds.md).

    architecture: the model's parameters_sha256; one that was measured is like itself.
    """
    own = [rule for rule in guidelines.rules if rule.framework == framework]
    studies = {s.name: s for s in guidelines.studies if s.framework == framework}
    strange = unlike(facts, (study.facts for study in studies.values()))
    if architecture in {study.parameters_sha256 for study in studies.values()} - {""}:
        strange = [name for name in strange if name in HOST_FACTS]
    about = {
        rule.setting: rule
        for rule in own
        if rule.n_families >= LEAST_FAMILIES
        if rule.condition is None
        or (rule.condition.holds(facts) and not _is_beyond(rule.condition, strange))
    }
    here = facts.get(HOST)
    sizes = {n: v for n, v in facts.items() if n not in HOST_FACTS and not isinstance(v, str)}
    few = _FEW * len({study.family for study in studies.values() if study.effects})
    elsewhere, distant = {}, {}
    for setting, rule in about.items():
        taught = [studies[name] for name in rule.studies if name in studies]
        hosts = {study.host for study in taught}
        if here is not None and len(hosts) == 1 and here not in hosts:
            elsewhere[setting] = hosts.pop()
        elif rule.n_families <= few and (
            unlike_these := unlike(sizes, (study.facts for study in taught))
        ):
            distant[setting] = unlike_these
    rules = {n: rule for n, rule in about.items() if n not in {*elsewhere, *distant}}
    untold = {rule.setting for rule in own if WITH in rule.setting} - rules.keys()
    return Known(rules, frozenset(untold), strange, elsewhere, distant)


def known_by_itself(study: StudyOf, freedom: int, known: Known) -> Known:
    """Return the result of a model's own study in the form of rules: effects, with their errors.

    freedom: their degrees of freedom. known: other rules: which pairs have none.
    """
    rules = {}
    for setting, (value, error) in study.effects.items():
        half, wide = (-float(stdtrit(freedom, p)) * error for p in (0.025, 0.05))
        rules[setting] = Rule(
            study.framework,
            setting,
            None,
            value,
            error,
            freedom + 1,
            Interval(math.exp(value), math.exp(value - half), math.exp(value + half), 0.95),
            Interval(math.exp(value), math.exp(value - wide), math.exp(value + wide), 0.9),
            "none",
            {study.family: math.exp(value)},
            1,
            [study.name],
        )
    pairs = {name for name in {*known.rules, *known.untold} if WITH in name}
    return Known(rules, frozenset(pairs - rules.keys()), [])


def settable(known: Known, factors: Iterable[FactorEntry]) -> list[str]:
    """Return the factors whose rules apply here.

    Rules about sharing cores apply to hosts with about as many of them.
    """
    is_alike = HOST_CORES not in known.strange
    return [factor.name for factor in factors if is_alike or not factor.of_cores]


def _is_beyond(condition: Condition, strange: Iterable[str]) -> bool:
    """Tell whether the subject of a condition, model or host, is unlike all that were measured."""
    if condition.fact in HOST_FACTS:
        return condition.fact in strange
    return any(name not in HOST_FACTS for name in strange)


def every_combination(
    known: Known, allowed: Collection[str], unexplained_sd: float | None = None
) -> list[Prediction]:
    """Return the prediction for every combination of allowed factors that have rules.

    The effects of factors and pairs add up. Pairs with an unknown interaction are left out.
    unexplained_sd: as in foretold().
    """
    known_ones = [name for name in allowed if name in known.rules]
    return [
        predicted(known.rules, chosen, unexplained_sd)
        for n in range(len(known_ones) + 1)
        for chosen in itertools.combinations(known_ones, n)
        if not any(set(pair.split(WITH)) <= set(chosen) for pair in known.untold)
    ]


def ranked(
    known: Known, allowed: Collection[str], unexplained_sd: float | None = None
) -> list[Prediction]:
    """Return the combinations of the allowed factors, the most valuable first.

    Less _LEAST for each setting. Combinations worth less than no setting come after that.
    """
    every = every_combination(known, allowed, unexplained_sd)
    return sorted(
        every,
        key=lambda each: math.log(each.expected_gain) - _LEAST * len(each.factors),
        reverse=True,
    )


def predicted(
    rules: Mapping[str, Rule], factors: Sequence[str], unexplained_sd: float | None = None
) -> Prediction:
    """Return the prediction for some factors together.

    unexplained_sd: the further error of such predictions; None: the shipped value.
    """
    here = set(factors)
    used = [rule for setting, rule in rules.items() if set(setting.split(WITH)) <= here]
    mean = math.fsum(rule.mean for rule in used)
    beyond = calibration.shipped().unexplained_sd if unexplained_sd is None else unexplained_sd
    spread = math.sqrt(math.fsum(rule.spread**2 for rule in used) + beyond**2)
    half = less = 0.0
    if used:
        freedom = min(rule.n_families for rule in used) - 1
        half = -float(stdtrit(freedom, (1 - _CONFIDENCE) / 2)) * spread
        less = -float(stdtrit(freedom, 1 - SURE)) * spread
    speedup = Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), _CONFIDENCE)
    return Prediction(tuple(factors), speedup, tuple(used), math.exp(mean - less))


def best_combination(
    factors: Factors, known: Known, winner_class: WinnerClass, failed: Sequence[Sequence[str]] = ()
) -> tuple[Configuration, Prediction] | None:
    """Return the best-ranked combination (predict.py) that surely gains and is allowed; else None.

    failed: factors that failed together in this very model.
    """
    for prediction in ranked(known, settable(known, factors.here)):
        if not prediction.factors:
            break  # what is left may as well be slower
        if has_failed(prediction.factors, failed):
            continue
        configuration = configuration_of(factors, prediction, winner_class)
        if configuration is not None:
            return configuration, prediction
    return None


def may_gain(
    factors: Factors, known: Known, winner_class: WinnerClass, failed: Sequence[Sequence[str]] = ()
) -> bool:
    """Tell whether anything that a class allows gains on average by the rules, or no rule says.

    If not, the default is expected to be the fastest.
    """
    allowed = [
        each.name
        for each in factors.here
        if allowed_in(winner_class, factors.together([each.name]).configuration)
    ]
    if not set(allowed) <= set(settable(known, factors.here)) & known.rules.keys():
        return True
    every = every_combination(known, allowed)
    return any(e.speedup.point > 1 and not has_failed(e.factors, failed) for e in every)


def has_failed(together: Sequence[str], failed: Sequence[Sequence[str]]) -> bool:
    """Tell whether settings hold some that failed together."""
    return any(set(each) <= set(together) for each in failed)


def configuration_of(
    factors: Factors, prediction: Prediction, winner_class: WinnerClass
) -> Configuration | None:
    """Return a combination's settings; None if the class or the host does not allow all of it."""
    names = prediction.factors
    made = factors.together(names)
    if not made.is_applicable or not allowed_in(winner_class, made.configuration):
        return None
    lesser = ([name for name in names if name != left_out] for left_out in names)
    is_idle = any(factors.together(few).configuration == made.configuration for few in lesser)
    return None if is_idle else made.configuration
