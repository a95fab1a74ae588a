"""Claims over several extents: a continued study keeps its verdicts.

An extension tests at its own level (measurement/confirmation.py), over all rounds of an arm. The
verdicts of an earlier extent follow from its arms, rounds and level, and are computed from these
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial

from tuner.measurement.confirmation import EARLY_ALPHA, FIRST_LOOK, look_level
from tuner.record.configuration import Configuration
from tuner.record.journal import ArmsChosen, EarlyRound, FinalistNamed, Phase, PhaseDone, RoundDone
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import is_default
from tuner.study.ablation import why_unjustified
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.compared import unmeasured_baselines
from tuner.study.evaluation import as_of
from tuner.study.rounds import LossInRounds
from tuner.study.study import Study


def settled(study: Study) -> Mapping[WinnerClass, Claim]:
    """Return the claims that the extents before this one decided, by class.

    Scores and costs are those of the time when a claim was decided; a failure or an exceeded bound
    counts whenever it was seen. Not that nothing came near the default in the search, which goes
    on.
    """
    store = study.store
    found: dict[WinnerClass, Claim] = {}
    n_rounds = 0
    for number in range(store.n_extensions):
        n_rounds += len(store.extents[number][RoundDone])
        if (chosen := _looked_at(store, number)) is None:
            continue
        finalists = study.candidates.finalists()
        finalists |= {n.winner_class: n.configuration for n in store.extents[number][FinalistNamed]}
        then = copy(study)  # what was launched since must not undo a verdict
        last = max(launch for done in store.extents[number][RoundDone] for launch in done.launches)
        then.evaluation = as_of(study.evaluation, last)
        claims = claims_by(then, finalists, chosen, dict(found), n_rounds)
        for winner_class in WinnerClass:
            claim = claims.claim(winner_class)
            is_decided = claim.verdict != "ambiguous" and not is_default(claim.configuration)
            if is_decided and study.evaluation.may_win(claim.configuration):
                found[winner_class] = claim
    return found


def settled_finalists(study: Study) -> dict[WinnerClass, FinalistNamed]:
    """Return how the configurations of the decided claims were named last, by class."""
    found = {}
    for winner_class, claim in settled(study).items():
        named = [
            n for n in study.store.all(FinalistNamed) if n.configuration == claim.configuration
        ]
        of_class = [n for n in named if n.winner_class is winner_class]
        removed = of_class[-1].removed if of_class else ()
        found[winner_class] = FinalistNamed(Phase.RACE, winner_class, claim.configuration, removed)
    return found


def last_look_level(store: Store, n_more: int = 0) -> float:
    """Return the two-sided error rate of this extent's last look, over all its finalists.

    It is a share of what the earlier extents, and an early verdict, have left. n_more: last looks
    before it that are not yet among those of earlier extents.
    """
    n_before = sum(_looked_at(store, number) is not None for number in range(store.n_extensions))
    had_early_look = len(store.all(EarlyRound)) >= FIRST_LOOK
    return look_level(n_before + n_more, EARLY_ALPHA if had_early_look else 0.0)


def _looked_at(store: Store, number: int) -> ArmsChosen | None:
    """Return the arms of an extent's confirmation; None if it has no round or never ended."""
    chosen: list[ArmsChosen] = store.extents[number][ArmsChosen]
    ended = {note.phase for note in store.extents[number][PhaseDone]}
    is_looked = Phase.CONFIRM in ended and bool(store.extents[number][RoundDone])
    return chosen[-1] if chosen and is_looked else None


def claims_by(
    study: Study,
    finalists: dict[WinnerClass, Configuration],
    chosen: ArmsChosen | None,
    before: Mapping[WinnerClass, Claim],
    n_rounds: int | None,
    *,
    is_interim: bool = False,
) -> Claims:
    """Return the claims of finalists from the first `n_rounds` of all, or from all of them."""
    return Claims(
        study.store,
        study.evaluation,
        finalists=finalists,
        chosen=chosen,
        n_rounds=n_rounds,
        is_interim=is_interim,
        settled=before,
        why_unjustified=_judge_of_costs(study, chosen),
        unmeasured=lambda winner_class: unmeasured_baselines(study, winner_class),
    )


def _judge_of_costs(
    study: Study, chosen: ArmsChosen | None
) -> Callable[[Configuration, LossInRounds], str]:
    """Return what says which costly settings of a configuration are not shown to be needed.

    The arm of an early verdict is judged by what was known then, unless the confirmation chose it
    as well: the user has read that verdict, and later estimates of costs must not undo it.
    """
    rounds = study.store.all(EarlyRound)
    if len(rounds) < FIRST_LOOK or (chosen and rounds[-1].arm in chosen.arms):
        return partial(why_unjustified, study)
    then, arm = copy(study), rounds[-1].arm
    then.evaluation = as_of(study.evaluation, max(rounds[-1].launches))
    return lambda c, loss: why_unjustified(then if c == arm else study, c, loss)
