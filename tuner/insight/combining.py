"""The combination of settings that rules promise most of, as it can be set on a host."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.insight.predict import Known, Prediction, ranked, settable
from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors


def best_combination(
    factors: Factors, known: Known, klass: WinnerClass, failed: Sequence[Sequence[str]] = ()
) -> tuple[Configuration, Prediction] | None:
    """Return what is ranked first (predict.py) of what surely gains and a class allows; else None.

    failed: factors that failed together in this very model.
    """
    for prediction in ranked(known, settable(known, factors.here)):
        if not prediction.factors:
            break  # what is left may as well be slower
        if any(set(each) <= set(prediction.factors) for each in failed):
            continue
        configuration = configuration_of(factors, prediction, klass)
        if configuration is not None:
            return configuration, prediction
    return None


def configuration_of(
    factors: Factors, prediction: Prediction, klass: WinnerClass
) -> Configuration | None:
    """Return what a combination sets; None where the class or the host does not allow all of it."""
    names = prediction.factors
    made = factors.together(names)
    if not made.is_applicable or not allowed_in(klass, made.configuration):
        return None
    lesser = ([name for name in names if name != left_out] for left_out in names)
    is_idle = any(factors.together(few).configuration == made.configuration for few in lesser)
    return None if is_idle else made.configuration
