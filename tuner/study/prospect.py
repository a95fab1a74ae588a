"""What a budget can and cannot do, said once the default's launch tells what one costs."""

from __future__ import annotations

import math

from tuner.record.configuration import Configuration
from tuner.study.schedule import Schedule
from tuner.study.study import Study

WANTED_LAUNCHES = 60
"""Launches of a study that searches: baselines, proposals, removals, a first look at all arms."""
_PROPOSALS = 20
_REMOVALS = 15
"""Launches of minimising: each of five settings away from each of three finalists."""
_FEWEST_ARMS = 2
"""Arms of the smallest confirmation: the default and one other."""


def warn_of_a_short_budget(study: Study, n_baselines: int) -> None:
    """Warn where the budget holds less than a study wants, and name one that holds it.

    n_baselines: those that are still to be measured. Launches of the search take slices of a pacer
    between their own and may wait for quiet, those of a claim's rounds take turns without either.
    What is kept from the search is reckoned as Schedule.after_search_s does, which knows no
    finalist yet: every question soon has one of its own, and the best baseline is confirmed beside
    them.
    """
    launch_s = study.costs.launch_s(Configuration())
    claim_s = _look_s(study, _FEWEST_ARMS)
    left_s = max(0.0, study.budget.left_s())
    looking_s = _look_s(study, 1 + len(study.turns) + min(1, n_baselines))
    n_leading = min(n_baselines, len(study.turns))
    n_before = n_baselines + n_leading * (len(study.ledger.batches) - 1)
    validating_s = 2 * Schedule(study).phases.validating_s()
    wanted_s = looking_s + validating_s + (n_before + _PROPOSALS + _REMOVALS) * launch_s
    if left_s >= wanted_s:
        return
    n_beside = int((left_s - claim_s) / launch_s)
    # a launch more is kept for the race, and LoadGen is asked about the default and another
    kept_s = looking_s + launch_s + validating_s
    n_proposals = int((left_s - kept_s) / launch_s) - n_before
    if left_s < claim_s:
        held = "are too short even for that: expect no verdict"
        if Schedule(study).is_out_of_reach():
            held += ", but hints of what is fast (--learn-from hands them to a longer study)"
    elif n_beside < n_baselines:
        held = f"hold that and {n_beside} of {n_baselines} baseline(s), and no search"
    elif n_proposals <= 0:
        held = "hold that and the baselines, and next to no search"
    elif n_proposals < _PROPOSALS:
        held = (
            f"hold that, the baselines and about {n_proposals} of the {_PROPOSALS} launches that a "
            "search wants, and few that try a winner without each setting"
        )
    else:
        held = "hold that and a search, but may not hold trying each winner without each setting"
    enough_s = study.budget.used_s() + wanted_s
    study.notes.warn(
        f"a launch takes about {_told(launch_s)} here and the smallest claim {_told(claim_s)}; the "
        f"{_told(left_s)} that are left {held}; {_told(enough_s)} for this study alone would hold "
        "baselines, a search and verdicts (--budget is for all studies of a run)"
    )


def _told(seconds: float) -> str:
    """Write seconds as a budget is given: above ten minutes in whole minutes."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{math.ceil(seconds / 60)}m"


def _look_s(study: Study, n_arms: int) -> float:
    """Estimate the seconds of a first look at `n_arms` arms that cost as much as the default."""
    return Schedule(study).phases.looking_s([Configuration()] * n_arms)
