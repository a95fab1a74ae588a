"""What a budget can and cannot do, said once the default's launch tells what one costs."""

from __future__ import annotations

import math

from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.study.study import Study

WANTED_LAUNCHES = 40
"""Launches of a study that searches: baselines, some twenty proposals, a claim's rounds."""
_PROPOSALS = WANTED_LAUNCHES // 2
_ARMS = 2
"""Of the smallest confirmation: the default and one other."""


def warn_of_a_short_budget(study: Study, n_baselines: int) -> None:
    """Warn where the budget holds less than a search wants, and name one that holds it.

    n_baselines: those that are still to be measured. Launches of the search take slices of a pacer
    between their own and may wait for quiet, those of a claim's rounds take turns without either.
    """
    launch_s = study.cost_s(Configuration())
    claim_s = LOOKS[0] * _ARMS * study.round_cost_s([Configuration()])
    left_s = max(0.0, study.budget.left_s())
    wanted_s = claim_s + (n_baselines + _PROPOSALS) * launch_s
    if left_s >= wanted_s:
        return
    n_beside = int((left_s - claim_s) / launch_s)
    if left_s < claim_s:
        held = "are too short even for that: expect no verdict"
    elif n_beside <= n_baselines:
        held = f"hold that and {n_beside} of {n_baselines} baseline(s), and no search"
    else:
        held = (
            f"hold that, the baselines and {n_beside - n_baselines} of the {_PROPOSALS} launches "
            "that a search wants"
        )
    enough_s = study.budget.used_s() + wanted_s
    study.warn(
        f"a launch takes about {launch_s:.0f} s here and the smallest claim {claim_s:.0f} s; the "
        f"{left_s:.0f} s that are left {held}; --budget {math.ceil(enough_s / 60)}m holds all of it"
    )
