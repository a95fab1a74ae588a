"""First the default, then every recommendation; who leads, at the other batches too."""

from __future__ import annotations

import math
from collections import Counter

from tuner.errors import NothingMeasured
from tuner.record.configuration import Configuration
from tuner.record.events import Warned
from tuner.record.journal import Phase
from tuner.record.launch import Purpose
from tuner.space.baselines import Baseline, to_measure
from tuner.space.catalogue import is_default, winner_class
from tuner.space.knobs_of.launch import BATCH
from tuner.study.compared import configuration_as_run
from tuner.study.prospect import warn_of_a_short_budget
from tuner.study.schedule import Schedule
from tuner.study.study import Study


def measure_baselines(study: Study) -> None:
    """Measure the default and all distinct baselines, a launch per batch.

    The default comes first and always. Then every baseline at the default's best batch, and then,
    at the others at which the default does not fail, the best of each winner class and how the user
    runs it: what is behind at one batch seldom leads at another, and the search looks there too.
    Whether a baseline works where the default does not is left to the search, and warned of.
    Nothing but the first baseline is measured that would eat what the confirmation needs. Raises
    NothingMeasured if the default cannot be measured.
    """
    if study.notes.is_done(Phase.BASELINES):
        return
    own = configuration_as_run(study)
    chosen = sorted(to_measure(study.baselines), key=lambda b: b.configuration != own)
    study.notes.enter(Phase.BASELINES, f"the default and {len(chosen)} distinct baselines")
    study.start_pacer()
    ledger = study.ledger
    for batch in ledger.batches:
        _measure(study, Configuration(), batch, "default")
    best = ledger.leaders.default_at_best()
    if best is None:
        reasons = Counter(f"{t.ending.outcome}: {t.ending.reason}" for t in ledger.trials())
        raise NothingMeasured(
            "the default configuration cannot be measured: "
            + "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        )
    if beyond := ledger.eligible.default_beyond():
        study.listen(Warned(f"the default itself lies beyond what is allowed ({beyond})"))
    warn_of_a_short_budget(study, len(chosen))
    first = int(best[0].get(BATCH) or ledger.reference_batch)
    skipped = [b.name for b in chosen if not _measure(study, b.configuration, first, b.name)]

    def score(baseline: Baseline) -> float:
        found = ledger.score(ledger.at_batch(baseline.configuration, first))
        return found if found is not None else -math.inf

    ranked = sorted(chosen, key=score, reverse=True)
    klass_of = {b.name: winner_class(b.configuration) for b in ranked}
    first_of_class = {klass_of[b.name]: b for b in reversed(ranked)}.values()
    leaders = dict.fromkeys([*first_of_class, *(b for b in chosen if b.configuration == own)])
    working = [b for b in ledger.batches if not _fails_at(study, b)]
    if chosen and len(working) < len(ledger.batches):
        failing = ", ".join(str(b) for b in ledger.batches if b not in working)
        study.notes.warn(f"the default fails at batch {failing}: no baseline was measured there")
    for baseline in leaders:
        for batch in working:
            if not _measure(study, baseline.configuration, batch, baseline.name):
                skipped.append(baseline.name)
    if skipped:
        study.notes.leave_undone(f"to measure {', '.join(dict.fromkeys(skipped))}")
    study.notes.done(Phase.BASELINES, "all measured" if not skipped else "no time for all")


def _has_time(study: Study, configuration: Configuration) -> bool:
    if all(map(is_default, study.ledger.tried())):  # the first: there is nothing to keep time for
        return study.budget.left_s() >= study.costs.launch_s(configuration)
    return Schedule(study).has_time_before_confirming(configuration)


def _fails_at(study: Study, batch: int) -> bool:
    return study.ledger.eligible.has_failed(study.ledger.at_batch(Configuration(), batch))


def _is_tried(study: Study, configuration: Configuration) -> bool:
    return configuration in {trial.configuration for trial in study.ledger.trials()}


def _measure(study: Study, configuration: Configuration, batch: int, source: str) -> bool:
    """Measure a configuration at a batch; the default always, others while there is time.

    Returns whether it was measured, now or before.
    """
    at_batch = study.ledger.at_batch(configuration, batch)
    if _is_tried(study, at_batch):
        return True
    if not is_default(configuration) and not _has_time(study, at_batch):
        return False
    proposal = study.search.enter(at_batch, source)
    study.tell(proposal, study.measure(at_batch, Purpose.BASELINE))
    return True
