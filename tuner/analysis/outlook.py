"""An undecided class: what it has shown so far, and how much longer would decide it."""

from __future__ import annotations

from tuner.measurement.confirmation import FIRST_LOOK, judge
from tuner.record.configuration import Configuration
from tuner.space.catalogue import is_default
from tuner.study.ablation import without_costly
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.deciding import rounds_s, rounds_to_decide
from tuner.study.study import Study


def rounds_won(claims: Claims, claim: Claim) -> tuple[int | None, int]:
    """Return in how many rounds the configuration beat the default, and of how many.

    None if no round compared them. Rounds too few for a claim count as well, such as those of an
    early verdict that was stopped.
    """
    if is_default(claim.configuration):
        return None, 0
    differences = claims.differences(claim.configuration)
    return sum(d > 0 for d in differences) if differences else None, len(differences)


def seconds_to_decide(study: Study, claims: Claims, claim: Claim) -> float | None:
    """Estimate the seconds of an extension that would decide a class, its start included.

    The extension keeps them for rounds, which include everything else that is open. Returns None if
    the class is decided or rounds cannot decide it, if the candidate is not above the default so
    far, or if the rounds of an extension are not enough.
    """
    configuration, arms = claim.configuration, claims.open_arms()
    if claim.verdict != "ambiguous" or configuration not in arms:
        return None
    if claim.is_unjustified:
        compared = [*arms, *without_costly(study, configuration)]
        return round(_start_s(study) + rounds_s(study, claims, compared, FIRST_LOOK), 1)
    n = len(claims.differences(configuration))
    if n >= FIRST_LOOK and claim.speedup is None:  # rounds without a figure: a missed bound
        return None
    if claim.speedup is not None and judge(claim.speedup, claims.noise.floor(n)) != "ambiguous":
        return None  # something else than rounds is lacking
    needed = rounds_to_decide(study, claims, arms).get(configuration)
    if needed is None:
        return None
    return round(_start_s(study) + rounds_s(study, claims, arms, needed), 1)


def _start_s(study: Study) -> float:
    """Return what an extension takes besides its rounds: the model, the pacer, the report."""
    pacer_s = study.costs.own_s(Configuration())
    return study.costs.least_launch_s + pacer_s + study.budget.kept_s
