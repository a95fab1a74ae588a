"""Why a winner is faster: profiles, and what each of its settings is worth."""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.journal import AblationRound, NeighbourRound, Phase
from tuner.record.launch import Purpose
from tuner.space.catalogue import is_default
from tuner.study.compared import EXPLAIN_ROUNDS, explained
from tuner.study.confirm import make_claims
from tuner.study.forecast import NEIGHBOUR_ROUNDS
from tuner.study.steps import ExtraRound, NoTime, Round, Steps, ask
from tuner.study.study import CLASS_ORDER, Study
from tuner.study.validate import validate, validate_further

_OF_NONE = "where the default's time goes; nothing proved to be faster"


def explain(study: Study) -> Steps[None]:
    """Profile the default and the winners, and compare each winner with shorter ones.

    Also measure them next to a busy neighbour, because most deployments share their hosts. All of
    this uses new launches and the time that an early decision of the confirmation left. If that is
    too short, the launches of minimising give a hint of what each setting is worth.
    """
    if study.notes.is_done(Phase.EXPLAIN):
        return
    winners = _winners(study)
    detail = f"what each setting of {len(winners)} winner(s) is worth" if winners else _OF_NONE
    study.notes.enter(Phase.EXPLAIN, detail)
    yield from validate(study, winners)
    yield from _measure_extras(study, winners, 1)
    reason = "every setting of the winners was measured" if winners else "there is no winner"
    for winner in winners:
        arms = explained(study, winner)
        has_unknown = any(not is_default(arm) for arm in arms[1:])  # else the claim tells
        while has_unknown and len(rounds_of(study, winner)) < EXPLAIN_ROUNDS:
            number = len(rounds_of(study, winner)) + 1
            records = yield from ask(Round(arms, number, Purpose.EXPLAIN))
            if isinstance(records, NoTime):
                reason = "the budget left no time for all"
                break
            study.store.add(AblationRound(winner, tuple(record.request.id for record in records)))
    yield from _measure_extras(study, winners, NEIGHBOUR_ROUNDS)
    yield from validate_further(study, winners)
    study.notes.done(Phase.EXPLAIN, reason)


def _measure_extras(study: Study, winners: list[Configuration], n_rounds: int) -> Steps[None]:
    """Measure extra rounds of the default and the winners: profiles, and a busy neighbour.

    n_rounds: the number of such rounds in all. Claims do not use them. If there is no time for all
    winners, only the recommended one takes part.
    """
    default = make_claims(study).default
    shown = winners[0] if winners else default
    while len(_beside(study, shown)) < n_rounds:
        number = len(study.store.all(NeighbourRound)) + 1
        records = yield from ask(ExtraRound([default, *winners], number))
        if isinstance(records, NoTime) and len(winners) > 1:
            records = yield from ask(ExtraRound([default, winners[0]], number))
        if isinstance(records, NoTime):
            return
        study.store.add(NeighbourRound(tuple(record.request.id for record in records)))


def _beside(study: Study, configuration: Configuration) -> list[NeighbourRound]:
    """Return the rounds after a verdict in which a configuration took part."""
    launches = study.store.launches
    return [
        note
        for note in study.store.all(NeighbourRound)
        if configuration in {launches[i].request.configuration for i in note.launches}
    ]


def _winners(study: Study) -> list[Configuration]:
    """Return the winners that were confirmed to be faster, the recommended one first."""
    claims = make_claims(study)
    found = [claims.claim(winner_class) for winner_class in CLASS_ORDER]
    return list(dict.fromkeys(c.configuration for c in found if c.verdict == "faster"))


def rounds_of(study: Study, winner: Configuration) -> list[AblationRound]:
    """Return the rounds in which a winner was compared with itself less one setting."""
    return [note for note in study.store.all(AblationRound) if note.winner == winner]
