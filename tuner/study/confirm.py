"""The confirmation: what will ship against the default, in fresh interleaved launches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.record.events import RoundEnds, TimeLeft
from tuner.record.journal import ArmsChosen, Phase, RoundDone, WinnerClass
from tuner.record.launch import Purpose
from tuner.space.as_run import AS_RUN
from tuner.space.catalogue import is_default
from tuner.study.claims import Claims
from tuner.study.compared import (
    as_run,
    baseline_name,
    baselines_to_confirm,
    best_baseline,
    confirmation_arms,
    unmeasured_baselines,
)
from tuner.study.neighbours import wants_neighbour
from tuner.study.profiles import to_profile
from tuner.study.proofs import unproven
from tuner.study.schedule import Schedule
from tuner.study.study import Study

DECIDED = "decided"
"""How the reason begins why the confirmation ended, where it did not for want of time."""


def confirm(study: Study) -> None:
    """Run rounds until every class is decided, the looks are used up, or the budget is.

    An arm that is decided takes no part in later rounds: they are for the undecided ones.
    """
    if study.notes.is_done(Phase.CONFIRM):
        return
    study.bench.pacer.retire()
    chosen = choose_arms(study)
    study.notes.enter(
        Phase.CONFIRM, f"the default against {len(chosen.arms)} arm(s), round by round"
    )
    schedule = Schedule(study)
    reason = "" if chosen.arms else "nothing scored above the default, and no baseline differs"
    while not reason:
        n = len(study.store.all(RoundDone))
        last_look = max((look for look in LOOKS if look <= n), default=0)
        claims = make_claims(study, last_look)
        open_arms = claims.open_arms() if last_look else list(chosen.arms)
        open_arms = [c for c in open_arms if c in chosen.arms and study.ledger.eligible.may_win(c)]
        if not any(map(study.ledger.eligible.may_win, chosen.arms)):
            reason = f"no arm was left after {n} rounds: {_why_none(study, chosen.arms)}"
        elif last_look and not open_arms:
            reason = f"{DECIDED} after {n} rounds"
        elif n >= LOOKS[-1]:
            reason = f"still open after {n} rounds, the last look"
        elif lacking := schedule.why_no_round(
            n, _launched(study, open_arms), is_proved=_is_settled(study, claims, open_arms)
        ):
            reason = f"no time for a further round after {n}: {lacking}"
        else:
            _run_round(study, open_arms, n + 1)
    study.notes.done(Phase.CONFIRM, reason)


def _is_settled(study: Study, claims: Claims, open_arms: Sequence[Configuration]) -> bool:
    """Tell whether there is a winner, and what ships does not depend on further rounds."""
    is_any = any(claims.claim(klass).verdict == "faster" for klass in WinnerClass)
    return is_any and study.contenders.finalists()[study.widest] not in open_arms


def _why_none(study: Study, arms: Sequence[Configuration]) -> str:
    whys = (study.ledger.eligible.over_bound(arm) or "it failed" for arm in arms)
    return "; ".join(f"{arm.label()}: {why}" for arm, why in zip(arms, whys, strict=True))


def make_claims(study: Study, n_rounds: int | None = None) -> Claims:
    """Return what the complete rounds (or the first `n_rounds`) allow to say."""
    return Claims(
        study.store,
        study.ledger,
        finalists=study.contenders.finalists(),
        chosen=_chosen(study) if study.store.all(ArmsChosen) else None,
        n_rounds=n_rounds,
        is_proven=lambda configuration: not unproven(study, configuration),
        unmeasured=lambda klass: unmeasured_baselines(study, klass),
    )


def _chosen(study: Study) -> ArmsChosen:
    return study.store.all(ArmsChosen)[-1]


def choose_arms(study: Study) -> ArmsChosen:
    """Fix what is compared: the finalists and the best baseline; from 30 minutes on, all.

    Where a first look at all of them does not fit, the winners' verdicts come before the baselines,
    and the best of these before the others; a cheaper one may fit where a better one does not.
    Where not even one at the winners does, a verdict on what ships comes before none on each.
    """
    if study.store.all(ArmsChosen):
        return _chosen(study)
    schedule, finalists = Schedule(study), _finalists(study)
    arms = _fitting(schedule, study.widest, finalists)
    best, own = best_baseline(study), as_run(study)
    wanted = [c for c in baselines_to_confirm(study) if c not in arms]
    phases = schedule.phases
    later_s = phases.looks_s() - phases.first_look_s() + phases.profiling_s()
    later_s += phases.validating_s()
    fitting, is_whole = _surest_first(study, arms), all(c in arms for c in finalists.values())
    for baseline in wanted:
        # finalists that fell together may have parted since their time was set aside
        kept_s = 0.0 if baseline in (best, own) else later_s
        arms = [*fitting, baseline]
        if not fitting or (is_whole and schedule.has_time_for_a_look(arms, kept_s)):
            fitting.append(baseline)
    missing = [c for c in wanted if c not in fitting]
    sound = tuple(dict.fromkeys(c for c in fitting if study.ledger.eligible.may_win(c)))
    launched = confirmation_arms(study, sound, at_reference=True)
    chosen = ArmsChosen(
        arms=sound,
        best_baseline=None if best in missing else best,
        at_reference=schedule.has_time_for_rounds(launched, LOOKS[1]),  # or verdicts would suffer
        looks=LOOKS,
    )
    if schedule.is_out_of_reach():
        study.notes.leave_undone("to confirm anything")
    else:
        for finalist in dict.fromkeys(finalists.values()):
            if finalist not in (*fitting, best):
                study.notes.leave_undone(f"to confirm {finalist.label()}")
        _leave_baselines(study, missing, best, own)
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
        klass: finalist
        for klass, finalist in study.contenders.finalists().items()
        if not is_default(finalist) and study.ledger.eligible.may_win(finalist)
    }


def _fitting(
    schedule: Schedule, widest: WinnerClass, finalists: Mapping[WinnerClass, Configuration]
) -> list[Configuration]:
    """Return those that a first look fits, in the finalists' order; where it fits none, all.

    What ships comes first, and then what would if that proved no faster.
    """
    found: list[Configuration] = []
    in_turn = (widest, WinnerClass.SAME, WinnerClass.LAUNCH_ONLY, WinnerClass.REDUCED)
    for finalist in dict.fromkeys(finalists[k] for k in in_turn if k in finalists):
        if schedule.has_time_for_a_look([*found, finalist], 0.0, in_haste=True):
            found.append(finalist)
    by_class = list(dict.fromkeys(finalists.values()))
    return [c for c in by_class if c in found] or by_class


def _surest_first(study: Study, finalists: Sequence[Configuration]) -> list[Configuration]:
    """Order finalists by their lead in the search, in standard errors: so they are tested.

    The rounds are other launches, so that the order does not depend on what they show.
    """
    ledger = study.ledger
    default = ledger.leaders.default_at_best()
    if default is None:
        return [*finalists]
    configuration, level = default

    def lead(finalist: Configuration) -> float:
        score = ledger.score(finalist)
        noise = ledger.noise(finalist, configuration)
        return -math.inf if score is None else (score - level) / noise

    return sorted(finalists, key=lead, reverse=True)


def _launched(study: Study, open_arms: list[Configuration]) -> list[Configuration]:
    return confirmation_arms(study, open_arms, at_reference=_chosen(study).at_reference)


def _run_round(study: Study, open_arms: list[Configuration], number: int) -> None:
    """Measure one fresh launch of the default and of every open arm, side by side."""
    arms = _launched(study, open_arms)
    records = study.bench.measure_round(
        arms,
        number,
        Purpose.CONFIRM,
        noise=study.ledger.estimates.scatter,
        seconds=Schedule(study).round_ends_s(number),
        beside_neighbour=wants_neighbour(study, arms, number - 1),
        profiled=to_profile(study, arms, number - 1),
    )
    study.store.add(RoundDone(number, tuple(r.request.id for r in records)))
    study.ledger.refresh()
    study.listen(TimeLeft(study.budget.left_s()))
    claims = make_claims(study)
    speedups = {}
    for klass in WinnerClass:
        interval = claims.claim(klass).speedup
        if interval is not None:
            speedups[str(klass)] = (interval.point, interval.low, interval.high)
    study.listen(RoundEnds(number, speedups))
