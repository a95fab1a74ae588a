"""Why a winner is faster: where its time goes, and what each of its settings is worth."""

from __future__ import annotations

import math

from tuner.measurement.confirmation import plain_interval
from tuner.measurement.estimates import round_values
from tuner.record.configuration import Configuration
from tuner.record.events import TimeLeft
from tuner.record.journal import AblationRound, Phase
from tuner.record.launch import Purpose
from tuner.record.result import Contribution, Interval
from tuner.space.catalogue import BATCH
from tuner.study.confirm import make_claims
from tuner.study.ledger import is_default
from tuner.study.profiles import profile_alone
from tuner.study.study import TURNS, Study

_OF_NONE = "where the default's time goes; nothing proved to be faster"
_ROUNDS = 4
"""As many as the confirmation's first look: an interval over fewer is hardly one."""


def explain(study: Study) -> None:
    """Profile the default and what is recommended; then measure each winner beside shorter ones.

    All of it in fresh launches, while time is left: what an early decision of the confirmation left
    is used for this, and no other. Where it does not suffice, the launches of the search that
    minimising made give a hint of what each setting is worth.
    """
    if study.is_done(Phase.EXPLAIN):
        return
    winners = _winners(study)
    detail = f"what each setting of {len(winners)} winner(s) is worth" if winners else _OF_NONE
    study.enter(Phase.EXPLAIN, detail)
    profile_alone(study, [make_claims(study).default, *winners[:1]])
    reason = "every setting of the winners was measured" if winners else "there is no winner"
    for winner in winners:
        arms = _arms(study, winner)
        has_unknown = any(not is_default(arm) for arm in arms[1:])  # else the claim tells
        while has_unknown and len(_rounds(study, winner)) < _ROUNDS:
            missing = _ROUNDS - len(_rounds(study, winner))
            if study.budget.left_s() < missing * study.round_cost_s(arms):
                reason = "the budget left no time for all"
                break
            _run_round(study, winner, arms)
    study.done(Phase.EXPLAIN, reason)


def seconds_to_explain(study: Study, winner: Configuration) -> float:
    """Estimate the seconds that all settings of a winner take."""
    return _ROUNDS * study.round_cost_s(_arms(study, winner))


def _arms(study: Study, winner: Configuration) -> list[Configuration]:
    """Return the winner, and what it is without each setting; the batch's gain is the default's."""
    without = [c for knob, c in study.removals(winner).items() if knob != BATCH]
    return [winner, *dict.fromkeys(without)]


def _winners(study: Study) -> list[Configuration]:
    """Return what was confirmed to be faster, what ships by default first."""
    claims = make_claims(study)
    found = [claims.claim(klass) for klass in TURNS]
    return list(dict.fromkeys(c.configuration for c in found if c.verdict == "faster"))


def _rounds(study: Study, winner: Configuration) -> list[AblationRound]:
    return [note for note in study.store.all(AblationRound) if note.winner == winner]


def _run_round(study: Study, winner: Configuration, arms: list[Configuration]) -> None:
    number = len(_rounds(study, winner)) + 1
    records = study.bench.measure_round(
        arms, number, Purpose.EXPLAIN, noise=study.ledger.estimates.scatter
    )
    study.store.add(AblationRound(winner, tuple(record.request.id for record in records)))
    study.ledger.refresh()
    study.listen(TimeLeft(study.budget.left_s()))


def contributions(study: Study, winner: Configuration) -> list[Contribution]:
    """Return what each setting is worth, the most first; without those nothing is known of.

    By the confirmation, where it compared both; else by rounds of their own; else a hint.
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
        return confirmed, len(claims.series(winner).against(claims.series(shorter)))
    differences = _differences(study, winner, shorter)
    if len(differences) >= _ROUNDS:
        return plain_interval(differences), len(differences)
    return None, 0


def _hint(study: Study, winner: Configuration, shorter: Configuration) -> float | None:
    """Return what the search's launches say; the winner was chosen by them, which flatters it."""
    score, less = study.ledger.score(winner), study.ledger.score(shorter)
    if score is None or less is None or study.ledger.has_failed(shorter):
        return None
    return round(math.exp(score - less), 4)  # no more digits than a hint has


def _differences(study: Study, winner: Configuration, shorter: Configuration) -> list[float]:
    """Return the log rates of the winner less those of the shorter one, round by round."""
    found = []
    for note in _rounds(study, winner):
        records = [study.store.launches[i] for i in note.launches]
        arms = [record.request.configuration for record in records]
        values = dict(zip(arms, round_values(records), strict=True))
        full, less = values[winner], values.get(shorter)
        if full is not None and less is not None:
            found.append(full - less)
    return found
