"""The race: the leaders of each class are launched again, so that luck does not choose."""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase, WinnerClass
from tuner.record.launch import Purpose
from tuner.study.neighbours import probe_finalists
from tuner.study.study import Study

_MAX_RUNNERS = 3
_MAX_LAUNCHES = 3
_QUANTILE = 1.64
"""A runner stays while its score is within this many standard errors of the leader's."""


def race(study: Study) -> None:
    """Name one finalist per class: the best mean over repeated launches."""
    if study.is_done(Phase.RACE):
        return
    study.enter(Phase.RACE, "the leaders of each class again")
    reason = "every class has a clear leader, or its runners were launched often enough"
    while due := _due(study):
        runner = min(due, key=study.ledger.n_launches)
        kept_s = study.reserve_s() + study.reduction_cost_s()
        if study.budget.left_s() < kept_s + study.cost_s(runner):
            reason = "the rest of the budget is for minimising and the confirmation"
            break
        study.measure(runner, Purpose.RACE)
        if study.ledger.has_failed(runner):
            study.warn(f"{runner.label()} failed when it was launched again, and is out")
    if study.goal == "robust":
        probe_finalists(study)
    for klass in WinnerClass:
        study.store.add(FinalistNamed(Phase.RACE, klass, study.candidate(klass)))
    study.done(Phase.RACE, reason)


def _runners(study: Study, klass: WinnerClass) -> list[Configuration]:
    """Return the configurations that may still be the class's best, the leader first."""
    ledger = study.ledger
    scores = ledger.measured(klass)
    if not scores:
        return []
    leader = max(scores, key=scores.__getitem__)

    def lag(c: Configuration) -> float:
        error = ledger.estimates.standard_error(c, leader)
        return scores[leader] - scores[c] - _QUANTILE * error

    close = sorted((c for c in scores if lag(c) <= 0), key=lambda c: -scores[c])
    return close[:_MAX_RUNNERS]


def _due(study: Study) -> list[Configuration]:
    """Return the runners to launch again: those of classes with more than one runner left."""
    of_classes = [_runners(study, klass) for klass in WinnerClass]
    runners = [c for found in of_classes if len(found) > 1 for c in found]
    return [c for c in runners if study.ledger.n_launches(c) < _MAX_LAUNCHES]
