"""First the default, then every recommendation, each over the same batches."""

from __future__ import annotations

from collections import Counter

from tuner.errors import NothingMeasured
from tuner.record.configuration import Configuration
from tuner.record.journal import Phase
from tuner.record.launch import Purpose
from tuner.space.baselines import to_measure
from tuner.study.ledger import is_default
from tuner.study.study import Study


def measure_baselines(study: Study) -> None:
    """Measure the default and all distinct baselines, a launch per batch.

    The default comes first and always; a baseline is left out only where its launch would eat
    what the confirmation needs. Raises NothingMeasured if the default cannot be measured.
    """
    if study.is_done(Phase.BASELINES):
        return
    chosen = to_measure(study.baselines)
    study.enter(Phase.BASELINES, f"the default and {len(chosen)} distinct baselines")
    study.start_pacer()
    _measure(study, Configuration(), "default")
    if study.ledger.default_at_best() is None:
        reasons = Counter(f"{t.ending.outcome}: {t.ending.reason}" for t in study.ledger.trials())
        raise NothingMeasured(
            "the default configuration cannot be measured: "
            + "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        )
    skipped = []
    for baseline in chosen:
        if not _measure(study, baseline.configuration, baseline.name):
            skipped.append(baseline.name)
    if skipped:
        study.warn(
            f"the budget left no time to measure at every batch: {', '.join(skipped)}; "
            "give a larger one"
        )
    study.done(Phase.BASELINES, "all measured" if not skipped else "no time for all")


def _measure(study: Study, configuration: Configuration, source: str) -> bool:
    """Measure a configuration at every batch; the default always, others while there is time.

    Returns whether all of it was measured.
    """
    ledger = study.ledger
    for batch in ledger.batches:
        at_batch = ledger.at_batch(configuration, batch)
        if at_batch in {trial.configuration for trial in ledger.trials()}:
            continue
        needs_s = study.reserve_s() + study.cost_s(at_batch)
        if not is_default(configuration) and study.budget.left_s() < needs_s:
            return False
        proposal = study.trials.ask_for(at_batch, source)
        study.tell(proposal, study.measure(at_batch, Purpose.BASELINE))
    return True
