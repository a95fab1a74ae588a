"""Which baselines the confirmation compares beside the finalists."""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.space.as_run import named
from tuner.space.knobs_of.launch import BATCH
from tuner.study.leaders import is_default
from tuner.study.study import MIN_ROUNDS, Study

_SHARE = 1 / 4
"""Of the budget, the most that is kept to confirm how the user runs it."""


def configuration_as_run(study: Study) -> Configuration | None:
    """Return what the environment of the study's begin comes to; None if that is the default."""
    found = named(study.baselines)
    return None if found is None or is_default(found.configuration) else found.configuration


def as_run(study: Study) -> Configuration | None:
    """Return the same at its best batch, or where it is a finalist; None if it does not work."""
    bare = configuration_as_run(study)
    if bare is None:
        return None
    ledger = study.ledger
    at_batches = [ledger.at_batch(bare, batch) for batch in ledger.batches]
    found = ledger.leaders.best([c for c in at_batches if ledger.eligible.may_win(c)])
    if found is None:
        return None
    finalists = {finalist.without(BATCH): finalist for finalist in study.finalists().values()}
    return finalists.get(bare, found[0])


def main_baselines(study: Study) -> list[Configuration]:
    """Return what time is kept for: how the user runs it, and the best baseline.

    One thread on a large machine may take the time of the whole study: it then waits for what the
    others leave.
    """
    own = as_run(study)
    if own is not None:
        first_look_s = MIN_ROUNDS * study.costs.round_s([own])
        own = own if first_look_s <= _SHARE * study.budget.total_s else None
    both = (own, study.best_baseline())
    return list(dict.fromkeys(c for c in both if c is not None))


def baselines_to_confirm(study: Study) -> list[Configuration]:
    """Return all that are confirmed if they fit, what the user runs first.

    Below 30 minutes that and the best baseline.
    """
    own = as_run(study)
    first = [] if own is None else [own]
    return list(dict.fromkeys([*first, *study.baselines_to_confirm()]))
