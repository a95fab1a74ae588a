"""What the confirmation costs, and what is kept for it before it begins."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.measurement.confirmation import expected_half_width
from tuner.record.configuration import Configuration
from tuner.record.journal import Phase
from tuner.study.compared import confirmation_arms, main_baselines
from tuner.study.leaders import is_default
from tuner.study.study import MIN_ROUNDS, Study

_ENOUGH_ROUNDS = 9
"""Rounds of the third look: on a busy host, four seldom decide an effect below 10 %."""
_CONFIRM_SHARE = 1 / 3
"""Of the budget, the most that is kept for the confirmation beyond its first look."""
_QUANTILE = 1.64
"""Standard errors by which a score may be off."""
_FEW = 6
"""Proposals, two for each question: up to so many, only what a verdict needs is kept for the
confirmation. A study that looks beyond the recommendations a little tells more than one whose
intervals of them are narrower."""
NEIGHBOUR_ROUNDS = 4
"""The first rounds of the confirmation end beside a busy neighbour."""
_SLOWER = 2.5
"""Beside it a slice is reckoned to take so many times as long."""


def reserve_s(study: Study) -> float:
    """Estimate what to keep for the confirmation: its looks, some beside a neighbour.

    After few proposals, the least that a verdict needs.
    """
    if not study.preference.bears_neighbours and has_few_proposals(study):
        return first_look_s(study)
    arms = [*study.contenders.finalists().values(), *main_baselines(study)]
    launched = confirmation_arms(study, arms, at_reference=True)
    besides_s = NEIGHBOUR_ROUNDS * beside_s(study, launched)
    return looks_s(study) + min(neighbours_s(study), besides_s)


def looks_s(study: Study) -> float:
    """Estimate the seconds of the confirmation's first look, and of more looks if cheap.

    Where the first will do, those after it are not reckoned with.
    """
    if _leads_are_clear(study):
        return first_look_s(study)
    arms = [*study.contenders.finalists().values(), *main_baselines(study)]
    launched = confirmation_arms(study, arms, at_reference=True)
    enough_s = _ENOUGH_ROUNDS * study.costs.round_s(launched)
    return max(first_look_s(study), min(enough_s, _CONFIRM_SHARE * study.budget.total_s))


def first_look_s(study: Study) -> float:
    """Estimate the seconds of the confirmation's first look, at the least that it compares."""
    arms = [*study.contenders.finalists().values(), *main_baselines(study)]
    return MIN_ROUNDS * study.costs.round_s(confirmation_arms(study, arms))


def _leads_are_clear(study: Study) -> bool:
    """Tell whether a first look should find every finalist faster than the default."""
    default = study.ledger.leaders.default_at_best()
    finalists = [c for c in study.contenders.finalists().values() if not is_default(c)]
    if default is None or not finalists:
        return False
    sd, n_arms = study.ledger.estimates.launch_sd, len(set(finalists))
    half_width = expected_half_width(sd, MIN_ROUNDS, n_arms)
    return all(
        (score := study.ledger.score(c)) is not None
        and score - default[1] > half_width + _QUANTILE * study.ledger.noise(c, default[0])
        for c in finalists
    )


def has_few_proposals(study: Study) -> bool:
    """Tell whether exploring has begun and gone no further than a few proposals."""
    return study.notes.is_done(Phase.BASELINES) and study.n_proposed() <= _FEW


def neighbours_s(study: Study) -> float:
    """Return the seconds that slices beside a busy neighbour may take in all."""
    return study.preference.neighbours_s(study.budget.total_s)


def beside_s(study: Study, arms: Iterable[Configuration]) -> float:
    """Estimate the seconds of a slice beside a busy neighbour, of each of these arms."""
    return _SLOWER * sum(study.costs.slice_s(arm) for arm in arms)
