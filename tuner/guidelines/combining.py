"""The combination of settings that rules promise most of, as it can be set on a host."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.guidelines.predict import Known, Prediction, every_combination, ranked, settable
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors


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
