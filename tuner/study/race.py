"""The race: the leaders of each class are launched again, so that luck does not choose."""

from __future__ import annotations

import math

from tuner.measurement.confirmation import ONE_SIDED
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase
from tuner.record.launch import Purpose
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.study.neighbours import probe_finalists
from tuner.study.settled import settled_finalists
from tuner.study.steps import Aim, Launch, NoTime, Steps, ask
from tuner.study.study import Study

SLACK = 0.02
"""Logarithm by which a finalist may be worse than another that was measured."""
_MAX_LAUNCHES = 30
"""Launches of a configuration, at most, in the search and its race."""


def race(study: Study) -> Steps[None]:
    """Name one finalist per class: the best by the surrogate's estimate, after repeated launches.

    Launch the leader of a class and its likeliest rival again, in pairs, until no rival is likely
    to be faster by more than the slack (top-two sampling: Russo 2020, Operations Research 68(6);
    Jourdan et al. 2023 with a slack).
    """
    if study.notes.is_done(Phase.RACE):
        return
    study.notes.enter(Phase.RACE, "the leaders of each class again")
    reason = "every class has a clear leader, or its runners were launched often enough"
    while due := _due(study):
        runner = min(due, key=study.evaluation.n_launches)
        if isinstance((yield from ask(Launch(runner, Purpose.RACE, Aim.RACE))), NoTime):
            reason = "the rest of the budget is for minimising and the confirmation"
            break
        if study.evaluation.row(runner).has_failed:
            study.notes.warn(f"{runner.label()} failed when it was launched again, and is out")
    yield from probe_finalists(study)
    before = settled_finalists(study)
    for winner_class in WinnerClass:
        found = FinalistNamed(Phase.RACE, winner_class, study.candidates.candidate(winner_class))
        if winner_class in before and not _is_better(study, found, before[winner_class]):
            found = before[winner_class]
        study.store.add(found)
    study.notes.done(Phase.RACE, reason)


def _is_better(study: Study, finalist: FinalistNamed, before: FinalistNamed) -> bool:
    """Tell whether a finalist may beat what was decided before."""
    believed = study.candidates.believed()
    new, old = (believed.get(named.configuration) for named in (finalist, before))
    return new is not None and (old is None or new > old + SLACK)


def _due(study: Study) -> list[Configuration]:
    """Return what to launch again: of every open class, the leader or its closest challenger."""
    found = []
    for winner_class in study.turns:
        pair = _open_pair(study, winner_class)
        due = [c for c in pair if study.evaluation.n_launches(c) < _MAX_LAUNCHES]
        if due:
            found.append(min(due, key=study.evaluation.n_launches))
    return found


def _open_pair(study: Study, winner_class: WinnerClass) -> list[Configuration]:
    """Return a class's leader and the rival that may be faster by more than the slack, if any."""
    beliefs = {c: b for c, b in study.candidates.beliefs().items() if allowed_in(winner_class, c)}
    if not beliefs:
        return []
    leader = study.candidates.leader(winner_class)
    if leader not in beliefs:
        return []

    def clearness(c: Configuration) -> float:
        """Return by how many standard errors one is behind."""
        sd = math.hypot(beliefs[c].sd, beliefs[leader].sd)
        return (beliefs[leader].mean - beliefs[c].mean + SLACK) / sd

    others = [c for c in beliefs if c != leader]
    closest = min(others, key=clearness, default=None)
    if closest is None or clearness(closest) >= ONE_SIDED:
        return []
    return [leader, closest]
