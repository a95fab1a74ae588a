"""The effect of each setting of a winner."""

from __future__ import annotations

import math

from tuner.measurement.confirmation import plain_interval
from tuner.measurement.estimates import round_worths
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.result import Contribution
from tuner.space.knobs_of.launch import BATCH
from tuner.study.compared import EXPLAIN_ROUNDS
from tuner.study.confirm import make_claims
from tuner.study.explain import rounds_of
from tuner.study.study import Study


def contributions(study: Study, winner: Configuration) -> list[Contribution]:
    """Return the effect of each setting, the largest first, without those that are unknown.

    From the confirmation if it compared both, else from rounds of their own, else a hint.
    """
    shorter = study.removals(winner)
    found = []
    for knob, value in winner.settings:
        if knob not in shorter or knob == BATCH:  # the batch's gain is the default's too
            continue
        interval, n_rounds = worth(study, winner, shorter[knob])
        ratio = interval.point if interval else _hint(study, winner, shorter[knob])
        if ratio is not None:
            left = dict(shorter[knob].settings)
            along = [k for k, _ in winner.settings if k not in left and k != knob]
            found.append(Contribution(knob, value, ratio, interval, n_rounds, along))
    return sorted(found, key=lambda c: -c.ratio)


def worth(
    study: Study, winner: Configuration, shorter: Configuration
) -> tuple[Interval | None, int]:
    """Return the speedup of one over the other, and over how many rounds; None if too few."""
    claims = make_claims(study)
    confirmed = (
        claims.against_default(winner)
        if shorter == claims.default
        else claims.against(winner, shorter)
    )
    if confirmed is not None:
        return confirmed, len(claims.rounds.series(winner).against(claims.rounds.series(shorter)))
    differences = _differences(study, winner, shorter)
    if len(differences) >= EXPLAIN_ROUNDS:
        return plain_interval(differences), len(differences)
    return None, 0


def _hint(study: Study, winner: Configuration, shorter: Configuration) -> float | None:
    """Return the search's ratio. The winner was chosen by it, which flatters the winner."""
    score, less = study.evaluation.score(winner), study.evaluation.score(shorter)
    if score is None or less is None or not study.evaluation.may_win(shorter):
        return None
    return round(math.exp(score - less), 4)  # no more digits than a hint has


def _differences(study: Study, winner: Configuration, shorter: Configuration) -> list[float]:
    """Return the log ratios of the winner to the shorter configuration, round by round."""
    found = []
    for note in rounds_of(study, winner):
        records = [study.store.launches[i] for i in note.launches]
        arms = [record.request.configuration for record in records]
        values = dict(zip(arms, round_worths(records, study.evaluation.objective), strict=True))
        full, less = values[winner], values.get(shorter)
        if full is not None and less is not None:
            found.append(full - less)
    return found
