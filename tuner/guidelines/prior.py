"""The prediction of rules for a study, in the form of an earlier study.

The search weighs it against its measurements and drops it if it misleads (search/transfer.py). In
one study of four a setting with rules is withheld, so that later recordings can still contradict
them.
"""

from __future__ import annotations

import math
import random

from tuner.guidelines.facts import facts_of
from tuner.guidelines.predict import every_combination, known_of, settable
from tuner.host.identity import Host
from tuner.record.configuration import Configuration
from tuner.record.guidelines import Guidelines
from tuner.record.workload import ModelFacts, Workload
from tuner.search.transfer import Earlier
from tuner.space.design import Factors

WITHHELD = 0.25
"""Probability that one setting is withheld from a study."""


def as_earlier(
    guidelines: Guidelines,
    workload: Workload,
    model: ModelFacts,
    host: Host,
    factors: Factors,
    identity: str,
) -> Earlier | None:
    """Return the predicted gain of each combination that can be set here; None without rules.

    The gain (predict.py), whether or not its last setting is worth shipping. identity: of the
    study, which decides what is withheld: the same when it continues.
    """
    known = known_of(
        guidelines, workload.framework, facts_of(workload.card, model, host.identity())
    )
    names = [name for name in settable(known, factors.here) if name in known.rules]
    text = f"guidelines of {guidelines.created[:10]} ({len(known.rules)} rules)"
    chance = random.Random(identity)  # no secret
    if names and chance.random() < WITHHELD:
        withheld, n_settings = chance.choice(names), len(names)
        names.remove(withheld)
        text += (
            f" but of {withheld}, withheld at random with a probability of "
            f"{WITHHELD / n_settings:.3g}"
        )
    log_ratios: dict[Configuration, float] = {}
    for prediction in every_combination(known, names):  # what hurts is a hint as well
        made = factors.together(prediction.factors)
        if made.is_applicable:
            log_ratios.setdefault(made.configuration, math.log(prediction.expected_gain))
    return Earlier(text, log_ratios) if len(log_ratios) > 1 else None
