"""Which settings are dear, and which of these are shown to be worth their price.

A setting is dear if it raises memory or the time of a call by more than 10 %. It ships only if its
removal was measured and costs more of the rate than the noise explains: two instances that gain 1 %
for three times the memory do not.
"""

from __future__ import annotations

import math

from tuner.record.configuration import Configuration
from tuner.space.catalogue import BATCH
from tuner.study.ledger import Ledger, is_default
from tuner.study.study import LONG_BUDGET_S, SAFETY, Study

DEAR = math.log(1.1)
_TOLERANCE_LONG = 0.01
_TOLERANCE_MOST = 0.03
"""However noisy the host: what does more good than this is not worth losing for a shorter list."""
QUANTILE = 1.64
"""A setting is needed once its loss exceeds the tolerance by this many standard errors."""


def tolerance(study: Study) -> float:
    """Return the log rate that may be lost with a setting that is removed."""
    if study.budget.total_s >= LONG_BUDGET_S:
        return _TOLERANCE_LONG
    return min(_TOLERANCE_MOST, study.ledger.floor())


def lost(ledger: Ledger, full: Configuration, shorter: Configuration) -> float | None:
    """Return the log rate that is lost without some settings; None if not known, or it failed."""
    # the full one's own score is asked for each time: drift is estimated anew after each launch
    score, full_score = ledger.score(shorter), ledger.score(full)
    if score is None or full_score is None or ledger.has_failed(shorter):
        return None
    return full_score - score


def dear(study: Study, configuration: Configuration) -> dict[str, Configuration]:
    """Return the dear settings, the dearest first, each with the configuration without it.

    By the price of both configurations; where the shorter one was never launched, by what all
    configurations together say that the setting costs. A setting that only the default is left
    without is not in question: the confirmation compares these two.
    """
    prices, rises = study.ledger.prices, {}
    if configuration not in prices:
        return {}
    shorter = {k: c for k, c in study.removals(configuration).items() if not is_default(c)}
    for knob, without in shorter.items():
        if without in prices:
            found = prices[configuration].rises(prices[without])
            rises[knob] = max(found.values(), default=0.0)
    if rises.keys() != shorter.keys():
        guessed = _guessed_rises(study, configuration)
        rises |= {knob: guessed.get(knob, 0.0) for knob in shorter if knob not in rises}
    dearest = sorted((k for k in rises if rises[k] > DEAR), key=lambda k: -rises[k])
    return {knob: shorter[knob] for knob in dearest}


def _guessed_rises(study: Study, configuration: Configuration) -> dict[str, float]:
    """Return by how much each setting raises memory or the time of a call: a guess."""
    prices, sampler = study.ledger.prices, study.trials.sampler
    found: dict[str, float] = {}
    for figures in (
        {c: price.memory for c, price in prices.items() if price.memory is not None},
        {c: price.call for c, price in prices.items() if price.call is not None},
    ):
        if figures:
            for knob, rise in sampler.effects(configuration, figures).items():
                found[knob] = max(rise, found.get(knob, 0.0))
    return found


def is_shown(study: Study, full: Configuration, shorter: Configuration) -> bool:
    """Tell whether the launches so far show that a removed setting is needed.

    It is where nothing works without it, or too much of the rate is lost: more than the tolerance,
    and that by more than the noise. A launch that was dropped after its first slice counts as well.
    """
    ledger = study.ledger
    if ledger.has_failed(shorter):
        return True
    if study.goal == "robust" and ledger.collapses(shorter):
        return True
    full_score, score = ledger.score(full), _known_score(ledger, shorter)
    if full_score is None or score is None:
        return False
    excess = full_score - score - tolerance(study)
    return excess >= QUANTILE * ledger.noise(shorter, full)


def _known_score(ledger: Ledger, configuration: Configuration) -> float | None:
    """Return the score of a configuration, be it of its only slice; None if it has none."""
    score = ledger.score(configuration)
    return ledger.tried().get(configuration) if score is None else score


def unproven(study: Study, configuration: Configuration) -> list[str]:
    """Return the dear settings that nothing shows to be needed.

    Where the configuration was never measured at the reference batch, the default tells whether
    its batch is needed: both are compared at their best batch.
    """
    return [
        knob
        for knob, shorter in dear(study, configuration).items()
        if not is_shown(study, configuration, shorter)
        if not (
            knob == BATCH
            and is_unmeasured(study, shorter)
            and is_shown(study, _default_at(study, configuration), Configuration())
        )
    ]


def _default_at(study: Study, configuration: Configuration) -> Configuration:
    """Return the default at the batch of a configuration."""
    batch = int(configuration.get(BATCH) or study.ledger.reference_batch)
    return study.ledger.at_batch(Configuration(), batch)


def is_unmeasured(study: Study, configuration: Configuration) -> bool:
    """Tell whether a configuration neither has a score nor is known to fail."""
    is_known = _known_score(study.ledger, configuration) is not None
    return not is_known and not study.ledger.has_failed(configuration)


def seconds_to_prove(study: Study) -> float:
    """Estimate the seconds of measuring the finalists without each of their dear settings."""
    shorter = {
        c
        for finalist in set(study.finalists().values())
        for c in dear(study, finalist).values()
        if is_unmeasured(study, c)
    }
    return SAFETY * sum(study.cost_s(c) for c in shorter)
