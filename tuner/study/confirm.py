"""The confirmation: what will ship against the default, in fresh interleaved launches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.record.events import RoundEnds
from tuner.record.journal import ArmsChosen, Phase, RoundDone
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import AS_RUN
from tuner.space.catalogue import is_default
from tuner.study.ablation import without_costly
from tuner.study.claims import Claims
from tuner.study.compared import (
    as_run,
    baseline_name,
    baselines_to_confirm,
    best_baseline,
    confirmation_arms,
)
from tuner.study.settled import claims_by, last_look_level, settled
from tuner.study.steps import ArmsWanted, NoTime, Round, Steps, ask
from tuner.study.study import Study

DECIDED = "decided"
"""Begins the reason why the confirmation ended, unless it ran out of time."""


def confirm(study: Study) -> Steps[None]:
    """Run rounds until every class is decided, the looks are used up, or the budget is.

    A decided arm leaves: later rounds are for undecided ones. Looks and rounds are counted from the
    start of the extent; the claim of an arm rests on all its rounds.
    """
    if study.notes.is_done(Phase.CONFIRM):
        return
    study.bench.pacer.retire()
    chosen = yield from choose_arms(study)
    study.notes.enter(
        Phase.CONFIRM, f"the default against {len(chosen.arms)} arm(s), round by round"
    )
    reason = "" if chosen.arms else "nothing scored above the default, and no baseline differs"
    if not chosen.arms and settled(study):
        reason = f"{DECIDED} before the study went on, and nothing new leads in the search"
    while not reason:
        n, n_all = len(study.store.current(RoundDone)), len(study.store.all(RoundDone))
        last_look = max((look for look in LOOKS if look <= n), default=0)
        claims = make_claims(study, last_look)
        open_arms = claims.open_arms() if last_look else list(chosen.arms)
        open_arms = [c for c in open_arms if c in chosen.arms and study.evaluation.may_win(c)]
        if not any(map(study.evaluation.may_win, chosen.arms)):
            reason = f"no arm was left after {n} rounds: {_why_none(study, chosen.arms)}"
        elif last_look and not open_arms:
            reason = f"{DECIDED} after {n} rounds"
        elif n >= LOOKS[-1]:
            reason = f"still open after {n} rounds, the last look"
        else:
            leaner = [c for arm in open_arms for c in without_costly(study, arm)]
            compared = [*open_arms, *claims.rivals(open_arms)]
            compared += [c for c in leaner if c in chosen.arms]
            arms = confirmation_arms(study, compared, at_reference=chosen.at_reference)
            is_proved = _is_settled(study, claims, open_arms)
            records = yield from ask(Round(arms, n_all + 1, Purpose.CONFIRM, n, is_proved))
            if isinstance(records, NoTime):
                reason = f"no time for a further round after {n}: {records.reason}"
            else:
                _note_round(study, n_all + 1, records)
    study.notes.done(Phase.CONFIRM, reason)


def _is_settled(study: Study, claims: Claims, open_arms: Sequence[Configuration]) -> bool:
    """Tell whether there is a winner, and the recommendation does not depend on further rounds."""
    is_any = any(claims.claim(winner_class).verdict == "faster" for winner_class in WinnerClass)
    return is_any and study.candidates.finalists()[study.widest] not in open_arms


def _why_none(study: Study, arms: Sequence[Configuration]) -> str:
    whys = (study.evaluation.row(arm).over_bound or "it failed" for arm in arms)
    return "; ".join(f"{arm.label()}: {why}" for arm, why in zip(arms, whys, strict=True))


def make_claims(study: Study, n_rounds: int | None = None) -> Claims:
    """Return the claims from all complete rounds, or from the first `n_rounds` of this extent."""
    store = study.store
    n_before = len(store.all(RoundDone)) - len(store.current(RoundDone))
    return claims_by(
        study,
        study.candidates.finalists(),
        _chosen(study) if store.current(ArmsChosen) else None,
        settled(study),
        None if n_rounds is None else n_before + n_rounds,
        is_interim=n_rounds is not None,
    )


def _chosen(study: Study) -> ArmsChosen:
    return study.store.current(ArmsChosen)[-1]


def choose_arms(study: Study) -> Steps[ArmsChosen]:
    """Choose the arms: the finalists and the best baseline; from 30 minutes on, every baseline.

    A finalist with an unproven costly setting brings the configuration without it. The planner
    selects those that fit. In an extension, the finalists are those that were not decided, together
    with the earlier winners that they have to beat.
    """
    if study.store.current(ArmsChosen):
        return _chosen(study)
    before = settled(study)
    finalists = _finalists(study)
    for winner_class, claim in before.items():
        if finalists.get(winner_class) == claim.configuration:
            del finalists[winner_class]
    won = {k: claim for k, claim in before.items() if claim.verdict == "faster"}
    rivals = [won[k].configuration for k in finalists if k in won]
    best, own = best_baseline(study), as_run(study)
    level = last_look_level(study.store)
    if before and not finalists:
        study.store.add(
            nothing := ArmsChosen((), None, at_reference=False, looks=LOOKS, level=level)
        )
        return nothing
    leaner = {c: without_costly(study, c) for c in finalists.values()}
    baselines = list(dict.fromkeys([*rivals, *baselines_to_confirm(study)]))
    found = yield from ask(ArmsWanted(finalists, leaner, baselines, main=(*rivals, best, own)))
    assert not isinstance(found, NoTime)  # it takes none
    missing = [c for c in baselines if c not in found.arms]
    in_order = dict.fromkeys([*_surest_first(study, found.arms, finalists), *found.arms])
    sound = tuple(filter(study.evaluation.may_win, in_order))
    chosen = ArmsChosen(
        arms=sound,
        best_baseline=None if best in missing else best,
        at_reference=found.at_reference,
        looks=LOOKS,
        level=level,
    )
    if found.is_out_of_reach:
        study.notes.leave_undone("to confirm anything")
    else:
        for finalist in dict.fromkeys(finalists.values()):
            if finalist not in (*found.arms, best):
                study.notes.leave_undone(f"to confirm {finalist.label()}")
        _leave_baselines(study, missing, best, own)
        launched = confirmation_arms(study, sound, at_reference=True)
        if not chosen.at_reference and launched != confirmation_arms(study, sound):
            study.notes.leave_undone("to confirm the winners at the reference batch as well")
    study.store.add(chosen)  # last: a session after a kill goes by it, and notes nothing more
    return chosen


def _leave_baselines(
    study: Study,
    missing: Sequence[Configuration],
    best: Configuration | None,
    own: Configuration | None,
) -> None:
    """Note which baselines are not confirmed; own: how the user runs it."""
    if own in missing:
        study.notes.leave_undone(f"to confirm {AS_RUN}")
    if best is not None and best in missing:
        if best != own:
            study.notes.leave_undone(f"to confirm the best baseline, {baseline_name(study, best)}")
    elif any(c != own for c in missing):
        study.notes.leave_undone("to confirm every baseline beside the winners")


def _finalists(study: Study) -> dict[WinnerClass, Configuration]:
    """Return the finalists that may win, but for the default."""
    return {
        winner_class: finalist
        for winner_class, finalist in study.candidates.finalists().items()
        if not is_default(finalist) and study.evaluation.may_win(finalist)
    }


def _surest_first(
    study: Study, arms: Sequence[Configuration], finalists: Mapping[WinnerClass, Configuration]
) -> list[Configuration]:
    """Return the finalists among the arms, in the order in which their claims are tested.

    That is the order of their leads over the default in the search, in standard errors. It does not
    depend on the rounds, which are other launches.
    """
    evaluation, among = study.evaluation, [c for c in arms if c in finalists.values()]
    default = evaluation.default_at_best()
    if default is None:
        return among
    configuration, level = default

    def lead(finalist: Configuration) -> float:
        score = evaluation.score(finalist)
        noise = evaluation.noise(finalist, configuration)
        return -math.inf if score is None else (score - level) / noise

    return sorted(among, key=lead, reverse=True)


def _note_round(study: Study, number: int, records: Sequence[LaunchRecord]) -> None:
    """Note a complete round, and report the intervals so far."""
    study.store.add(RoundDone(number, tuple(r.request.id for r in records)))
    claims = make_claims(study)
    speedups = {}
    for winner_class in WinnerClass:
        interval = claims.claim(winner_class).speedup
        if interval is not None:
            speedups[str(winner_class)] = (interval.point, interval.low, interval.high)
    study.listen(RoundEnds(number, speedups))
