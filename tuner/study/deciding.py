"""The rounds, and seconds, that would decide on the open arms in an extension.

The result states these seconds, and an extension keeps them for the confirmation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measurement.confirmation import (
    FIRST_LOOK,
    LOOKS,
    Difference,
    Noise,
    difference,
    fallback_alphas,
    judge,
)
from tuner.record.configuration import Configuration
from tuner.record.journal import RoundDone
from tuner.space.catalogue import is_default
from tuner.study.claims import Claims
from tuner.study.compared import baselines_to_confirm, confirmation_arms
from tuner.study.settled import claims_by, last_look_level, settled
from tuner.study.study import Study


def open_in_extension(study: Study) -> tuple[Claims, list[Configuration]]:
    """Return the claims at the start of an extension, and the finalists that are still open."""
    before, finalists = settled(study), study.candidates.finalists()
    found = [
        c
        for winner_class, c in finalists.items()
        if not is_default(c) and study.evaluation.may_win(c)
        if winner_class not in before or before[winner_class].configuration != c
    ]
    return claims_by(study, finalists, None, before, None), list(dict.fromkeys(found))


def rounds_to_decide(
    study: Study, claims: Claims, arms: Sequence[Configuration]
) -> dict[Configuration, int]:
    """Return how many rounds of an extension would decide on each of its finalists.

    Those are left out which no extension decides, and which are not above the default so far.
    """
    has_looked = bool(study.store.current(RoundDone))
    level = last_look_level(study.store, n_more=int(has_looked))
    levels = fallback_alphas([1.0] * len(arms), level)
    needed = {}
    for arm, level in zip(arms, levels, strict=True):
        found, n = _difference(study, claims, arm), len(claims.differences(arm))
        if found is None or found.mean <= 0:
            continue
        if (n_more := _rounds_needed(found, n, claims.noise, level)) is not None:
            needed[arm] = n_more
    return needed


def rounds_s(study: Study, claims: Claims, arms: Sequence[Configuration], n_rounds: int) -> float:
    """Estimate the seconds of rounds of an extension, at least a first look.

    Until the first look, baselines and earlier winners take part too.
    """
    lasting = [*arms, *claims.rivals(arms)]
    first = confirmation_arms(study, [*lasting, *baselines_to_confirm(study)], at_reference=True)
    later = confirmation_arms(study, lasting, at_reference=True)
    n_later = max(0, n_rounds - FIRST_LOOK)
    return FIRST_LOOK * study.costs.round_s(first) + n_later * study.costs.round_s(later)


def _difference(study: Study, claims: Claims, arm: Configuration) -> Difference | None:
    """Return the difference from the default; of fewer than two rounds, that of the search.

    Its error is that of a single round.
    """
    differences = claims.differences(arm)
    n = len(differences)
    if n > 1:
        found = difference(differences, claims.noise)
        return Difference(found.mean, found.error * math.sqrt(n), found.freedom)
    ratio = study.evaluation.ratio(arm)
    if ratio is None:
        return None
    return Difference(math.log(ratio), math.sqrt(2) * claims.noise.launch_sd, claims.noise.freedom)


def _rounds_needed(found: Difference, n: int, noise: Noise, level: float) -> int | None:
    """Return after how many more rounds the interval is likely to decide; None if after none.

    found: with the error of a single round. n: those before; an extension has as many more as any.
    """
    for n_more in range(max(1, FIRST_LOOK - n), LOOKS[-1] + 1):
        n_rounds = n + n_more
        freedom = max(found.freedom, n_rounds - 1)
        expected = Difference(found.mean, found.error / math.sqrt(n_rounds), freedom)
        if judge(expected.likely_interval(level), noise.floor(n_rounds)) != "ambiguous":
            return n_more
    return None
