"""What a class that is not decided has shown so far, and how much longer would decide it."""

from __future__ import annotations

import math

from tuner.measurement.confirmation import (
    FIRST_LOOK,
    LOOK_SHARE,
    LOOKS,
    Difference,
    Noise,
    difference,
    judge,
)
from tuner.record.interval import Interval
from tuner.space.catalogue import is_default
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.compared import confirmation_arms
from tuner.study.study import Study

_POWER_Z = 0.84
"""Standard errors. The mean of more rounds will be another: a number of rounds counts as enough if
it decides four times out of five, not every other time."""
_NEXT_LEVEL = 1 - LOOK_SHARE
"""Share of its level that an arm is left where a study goes on: the error rate is kept."""


def rounds_won(claims: Claims, claim: Claim) -> tuple[int | None, int]:
    """Return in how many rounds the configuration beat the default, and of how many.

    None where no round compared them. Rounds too few for a claim count as well, such as those of an
    early verdict that was stopped.
    """
    if is_default(claim.configuration):
        return None, 0
    differences = claims.differences(claim.configuration)
    return sum(d > 0 for d in differences) if differences else None, len(differences)


def seconds_to_decide(study: Study, claims: Claims, claim: Claim) -> float | None:
    """Estimate the seconds of further rounds that would decide a class.

    The rounds launch whatever else is open as well. Returns None where the class is decided, or
    rounds cannot decide it; where the candidate is not above the default so far; and where all
    rounds up to the last look are not enough.
    """
    configuration = claim.configuration
    if claim.verdict != "ambiguous" or configuration not in claims.open_arms():
        return None
    n = len(claims.differences(configuration))
    if n >= FIRST_LOOK and claim.speedup is None:  # rounds without a figure: a missed bound
        return None
    if claim.speedup is not None and judge(claim.speedup, claims.noise.floor(n)) != "ambiguous":
        return None  # something else than rounds is lacking
    found = _difference(study, claims, claim)
    if found is None or found.mean <= 0:
        return None
    needed = _rounds_needed(found, n, claims.noise, _NEXT_LEVEL * claims.level(configuration))
    if needed is None:
        return None
    arms = confirmation_arms(study, claims.open_arms())
    return round((needed - n) * study.costs.round_s(arms), 1)


def _difference(study: Study, claims: Claims, claim: Claim) -> Difference | None:
    """Return the difference from the default; of fewer than two rounds, that of the search.

    Its error is that of a single round.
    """
    differences = claims.differences(claim.configuration)
    n = len(differences)
    if n > 1:
        found = difference(differences, claims.noise)
        return Difference(found.mean, found.error * math.sqrt(n), found.freedom)
    ratio = study.ledger.ratio(claim.configuration)
    if ratio is None:
        return None
    return Difference(math.log(ratio), math.sqrt(2) * claims.noise.launch_sd, claims.noise.freedom)


def _rounds_needed(found: Difference, n: int, noise: Noise, level: float) -> int | None:
    """Return after how many rounds in all the interval is expected to decide; None if after none.

    found: with the error of a single round.
    """
    for n_rounds in range(max(n + 1, FIRST_LOOK), LOOKS[-1] + 1):
        freedom = max(found.freedom, n_rounds - 1)
        error = found.error / math.sqrt(n_rounds)
        expected = Difference(found.mean, error, freedom).interval(level)
        margin = math.exp(_POWER_Z * error)
        wider = Interval(
            expected.point, expected.low / margin, expected.high * margin, expected.confidence
        )
        if judge(wider, noise.floor(n_rounds)) != "ambiguous":
            return n_rounds
    return None
