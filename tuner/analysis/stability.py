"""Whether a winner is faster in every launch, or only on average.

A claim is about the mean over launches; who starts a program once a day gets one launch.
"""

from __future__ import annotations

import math

from scipy.special import betaincinv  # scipy.stats takes 0.3 s to import

from tuner.measurement.confirmation import ALPHA
from tuner.record.study_stats import Stability, Steadiness
from tuner.study.claim import Claim
from tuner.study.claims import Claims

_UNSTABLE_ABOVE = 0.1
"""A launch in ten: who restarts a service now and then meets it."""
_MISSED = 0.05
"""Probability from which on slow launches may have been missed."""
_STABLE_BELOW = 0.2
"""Twice as much: a bound of 10 % would take 24 rounds without a slower launch, and the confirmation
ends after 18. This one takes 11."""


def stability_of(n_slower: int, n_rounds: int) -> Stability:
    """Judge a winner whose launch was the slower one in some of its rounds; at least one round.

    The interval is Jeffreys', which Brown, Cai and DasGupta (2001), Statistical Science 16(2),
    recommend for few trials. It contains the truth in 95 % on average over all probabilities. That
    of Clopper and Pearson, which does so for each of them, would need 17 rounds to call anything
    stable.
    """
    a, b = n_slower + 0.5, n_rounds - n_slower + 0.5
    low = float(betaincinv(a, b, ALPHA / 2)) if n_slower else 0.0
    high = float(betaincinv(a, b, 1 - ALPHA / 2)) if n_slower < n_rounds else 1.0
    word: Steadiness = "unknown"
    if low > _UNSTABLE_ABOVE:
        word = "unstable"
    elif high < _STABLE_BELOW:
        word = "stable"
    unseen = unseen_one_in(n_rounds)
    return Stability(n_slower / n_rounds, low, high, n_slower, n_rounds, word, unseen)


def unseen_one_in(n_rounds: int) -> int:
    """Return the smallest N for which slow launches, one in N, may be missed by all rounds.

    A round has one launch of the winner, so that all miss them with probability (1 - 1/N)^n_rounds.
    What reaches 5 % may happen: 6 % for N = 2 in 4 rounds, 8 % for N = 4 in 9, 6 % for N = 7 in 18.
    1/N is the upper 95 % limit of a frequency that was seen no time, rounded down (Clopper and
    Pearson 1934; Hanley and Lippman-Hand 1983, JAMA 249, approximate it by 3 / n_rounds).
    """
    return math.ceil(1 / (1 - math.pow(_MISSED, 1 / n_rounds)))


def stability(claims: Claims, claim: Claim) -> Stability | None:
    """Return how often a winner's launch is slower than the default; None without a claim.

    A launch counts as slower if the default's launch of the same round was faster. Both ran
    interleaved, so that the host's drift cancels. Compared with the default's median over all
    rounds, every later launch on a slowing host would seem slow. Rounds of two arms cannot
    distinguish an unlucky launch of the winner from a lucky one of the default. The default's own
    scatter therefore counts too, and the probability is rather too high than too low.
    """
    if claim.verdict != "faster":
        return None
    differences = claims.differences(claim.configuration)
    if not differences:  # the default was in time in no round: it was the slower one in each
        return stability_of(0, claim.n_rounds)
    return stability_of(sum(d < 0 for d in differences), len(differences))


def is_unstable(claims: Claims, claim: Claim) -> bool:
    """Tell whether a claim is of a winner that is surely slower than the default now and then."""
    found = stability(claims, claim)
    return found is not None and found.word == "unstable"
