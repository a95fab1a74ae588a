"""Take away what does no good: a user gets three settings instead of fifteen."""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase
from tuner.record.launch import Purpose
from tuner.study.ledger import is_default
from tuner.study.study import LONG_BUDGET_S, Study

_TOLERANCE_LONG = 0.01


def minimise(study: Study) -> None:
    """Reduce each class's finalist; what remains is what will be confirmed and shipped.

    A setting goes if the configuration without it scores no worse than the tolerance below the
    finalist that the race named: cumulatively 1 % from 30 minutes of budget on, else the search's
    noise. A setting whose removal there was no time to measure stays.
    """
    if study.is_done(Phase.MINIMISE):
        return
    study.enter(Phase.MINIMISE, "each setting of the finalists away, one by one")
    long = study.budget.total_s >= LONG_BUDGET_S
    tolerance = _TOLERANCE_LONG if long else study.ledger.floor()
    out_of_time = False
    for klass, finalist in study.finalists().items():
        configuration, removed, was_cut = _reduce(study, finalist, tolerance)
        out_of_time = out_of_time or was_cut
        study.store.add(FinalistNamed(Phase.MINIMISE, klass, configuration, tuple(removed)))
    study.done(Phase.MINIMISE, "no time to try every removal" if out_of_time else "minimal")


def _reduce(
    study: Study, finalist: Configuration, tolerance: float
) -> tuple[Configuration, list[str], bool]:
    """Return the reduced finalist, what was removed, and whether time cut it short."""
    ledger, out_of_time = study.ledger, False
    start = ledger.score(finalist)
    if is_default(finalist) or start is None:
        return finalist, [], False
    current, removed = finalist, list[str]()
    while True:
        options: list[tuple[float, str, Configuration]] = []
        for knob, _ in current.settings:
            shorter = study.space.canonical(current.without(knob).as_dict())
            if ledger.score(shorter) is None and not ledger.has_failed(shorter):
                if study.budget.left_s() < study.reserve_s() + study.cost_s(shorter):
                    out_of_time = True
                    continue
                study.measure(shorter, Purpose.ABLATION)
            score = ledger.score(shorter)
            if score is not None and not ledger.has_failed(shorter):
                options.append((score, knob, shorter))
        if not options:
            return current, removed, out_of_time
        score, knob, shorter = max(options, key=lambda option: option[0])
        # the finalist's own score may have moved: drift is estimated anew after each launch
        if score < (ledger.score(finalist) or start) - tolerance:
            return current, removed, out_of_time
        current, removed = shorter, [*removed, knob]
        if is_default(current):
            return current, removed, out_of_time
