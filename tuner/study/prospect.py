"""What a budget can and cannot do, said once the default's launch tells what one costs."""

from __future__ import annotations

import math

from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.study.study import Study

WANTED_LAUNCHES = 40
"""Launches of a study that searches: baselines, some twenty proposals, a claim's rounds."""
_ARMS = 3
"""Of the smallest confirmation: the default, the best baseline, one winner."""


def warn_of_a_short_budget(study: Study, n_baselines: int) -> None:
    """Warn where the budget holds fewer launches than a search wants, and name one that holds them.

    n_baselines: those that are still to be measured.
    """
    launch_s = study.cost_s(Configuration())
    n_left = int(study.budget.left_s() / launch_s)
    n_claim = LOOKS[0] * _ARMS
    wanted = max(WANTED_LAUNCHES, n_baselines + n_claim + WANTED_LAUNCHES // 2)
    if n_left >= wanted:
        return
    if n_left < n_claim:
        held = f"fewer than the {n_claim} of the smallest claim: expect none"
    elif n_left <= n_claim + n_baselines:
        held = (
            f"a claim takes {n_claim} of them, which leaves {n_left - n_claim} for "
            f"{n_baselines} baseline(s) and none for a search"
        )
    else:
        held = (
            f"a claim takes {n_claim} of them and the baselines {n_baselines}, which leaves "
            f"{n_left - n_claim - n_baselines} for a search and for trying without each setting"
        )
    enough_s = study.budget.used_s() + wanted * launch_s
    study.warn(
        f"a launch takes about {launch_s:.0f} s here, so that the budget holds some {n_left} more: "
        f"{held}; --budget {math.ceil(enough_s / 60)}m holds all of it"
    )
