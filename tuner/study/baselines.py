"""First the default, then every recommendation; who leads, at the other batches too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tuner.errors import NothingMeasured
from tuner.measurement.confirmation import ONE_SIDED
from tuner.record.configuration import Configuration
from tuner.record.events import Warned
from tuner.record.journal import Phase
from tuner.record.launch import Purpose
from tuner.record.winner_class import WinnerClass
from tuner.space.baselines import Baseline, to_measure
from tuner.space.catalogue import narrowest_class
from tuner.space.knobs_of.launch import BATCH
from tuner.study.compared import configuration_as_run
from tuner.study.early import early_verdict
from tuner.study.evaluation import Evaluation
from tuner.study.explore import try_combinations
from tuner.study.steps import Aim, Launches, NoTime, Outlook, Steps, ask
from tuner.study.study import Study
from tuner.study.transferred import try_transferred


def measure_baselines(study: Study) -> Steps[None]:
    """Measure the default and all distinct baselines, one launch per batch.

    The order: the default; what guidelines predict for this model and host; the best of earlier
    studies, if given; the baselines. After half of the baselines, combinations of those that gained
    are measured. All this happens at the smallest batch that one launch does not distinguish from
    the default's best, because a larger one raises the latency of a call and needs a proof. An
    early verdict may follow the predictions or the combinations.

    Then the best of each winner class, and the user's own settings, are measured at the other
    batches at which the default works. A configuration that is behind at one batch seldom leads at
    another, and the search looks there too. If the default fails at a batch, a warning says that
    baselines were not tried there.

    If the default is a server that answers no request, its stand-in is measured as well.

    Raises NothingMeasured if the default cannot be measured.
    """
    if study.notes.is_done(Phase.BASELINES):
        return
    own = configuration_as_run(study)
    chosen = to_measure(study.baselines)
    study.notes.enter(Phase.BASELINES, f"the default and {len(chosen)} distinct baselines")
    study.start_pacer()
    best, evaluation = (yield from _measure_default(study)), study.evaluation
    if not study.store.n_extensions:
        yield from ask(Outlook(len(chosen)))
    first = _batch_to_begin_with(study, best)
    chosen = yield from try_transferred(study, chosen, first)
    yield from early_verdict(study)
    chosen = sorted(chosen, key=lambda b: b.configuration != own)
    at_first = [(evaluation.at_batch(b.configuration, first), b.name) for b in chosen]
    # profiles list first what gains most as a rule: what unites these comes before the rest
    half = (len(at_first) + 1) // 2
    yield from _measure(study, at_first[:half])
    yield from try_combinations(study)
    yield from early_verdict(study)
    yield from _measure(study, at_first[half:])
    leaders = _best_of_each_class(evaluation, chosen, first)
    leaders += [b for b in chosen if b.configuration == own and b not in leaders]
    is_silent = evaluation.default_is_silent
    working = [b for b in evaluation.batches if is_silent or not _fails_at(study, b)]
    if chosen and len(working) < len(evaluation.batches):
        failing = ", ".join(str(b) for b in evaluation.batches if b not in working)
        study.notes.warn(f"the default fails at batch {failing}: no baseline was measured there")
    at_others = [
        (evaluation.at_batch(b.configuration, n), b.name) for b in leaders for n in working
    ]
    yield from _measure(study, at_others)
    tried = evaluation.tried()
    skipped = [name for c, name in at_first if c not in tried]
    elsewhere = {name for c, name in at_others if c not in tried}.difference(skipped)
    if elsewhere:  # those that no phase launches are told in the end (findings/warnings.py)
        study.notes.leave_undone(f"to measure {', '.join(sorted(elsewhere))} at every batch")
    is_complete = not skipped and not elsewhere
    study.notes.done(Phase.BASELINES, "all measured" if is_complete else "no time for all")


def _measure_default(study: Study) -> Steps[tuple[Configuration, float] | None]:
    """Measure the default at every batch; return it at its best batch, or None if it never answers.

    Raises NothingMeasured if it cannot be measured.
    """
    evaluation = study.evaluation
    default = [(evaluation.at_batch(Configuration(), b), "default") for b in evaluation.batches]
    yield from _measure(study, default)
    best = evaluation.default_at_best()
    if evaluation.default_is_silent:
        yield from _measure_stand_in(study)
    elif best is None:
        reasons = Counter(f"{t.ending.outcome}: {t.ending.reason}" for t in evaluation.trials())
        raise NothingMeasured(
            "the default configuration cannot be measured: "
            + "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        )
    if beyond := evaluation.default_exceeds:
        study.listen(Warned(f"the default itself exceeds the bound ({beyond})"))
    _warn_of_a_late_default(study)
    return best


def _best_of_each_class(
    evaluation: Evaluation, baselines: Sequence[Baseline], batch: int
) -> list[Baseline]:
    """Return the baseline with the highest score at a batch, of each winner class."""

    def score(baseline: Baseline) -> float:
        found = evaluation.score(evaluation.at_batch(baseline.configuration, batch))
        return found if found is not None else -math.inf

    ranked = sorted(baselines, key=score, reverse=True)
    best: dict[WinnerClass, Baseline] = {}
    for each in reversed(ranked):
        best[narrowest_class(each.configuration)] = each
    return list(best.values())


def _measure_stand_in(study: Study) -> Steps[None]:
    """Measure what answers in the place of the default, and say what follows for the claims."""
    stand_in = study.evaluation.stand_in
    assert stand_in is not None
    study.notes.warn(
        f"the default answers no request; {stand_in.label()} does. There is no speedup over what "
        "does not answer, but the rates of what does; outputs are compared with those under "
        f"{stand_in.label()}, and the search's scores are relative to it"
    )
    if study.space.contains(stand_in):
        yield from _measure(study, [(stand_in, "stand-in")])


def _batch_to_begin_with(study: Study, best: tuple[Configuration, float] | None) -> int:
    """Return the smallest batch at which the default cannot be distinguished from its best."""
    evaluation = study.evaluation
    if best is None:
        return evaluation.reference_batch
    leader, score = best
    for batch in sorted(evaluation.batches):
        default = evaluation.at_batch(Configuration(), batch)
        found = None if evaluation.row(default).exceeds else evaluation.score(default)
        if found is not None and score - found < ONE_SIDED * evaluation.noise(default, leader):
            return batch
    return int(leader.get(BATCH) or evaluation.reference_batch)


def _warn_of_a_late_default(study: Study) -> None:
    """Warn if requests take longer than the bound with the default even without a queue."""
    slo = study.evaluation.objective.slo
    if slo is not None and study.evaluation.default_is_late:
        study.notes.warn(
            f"the default takes longer than {1000 * slo.seconds:.3g} ms ({slo.asked}) even for "
            "single requests: what keeps within it gets a rate, but no speedup, unless a larger "
            "--slo will do"
        )


def _fails_at(study: Study, batch: int) -> bool:
    return study.evaluation.row(study.evaluation.at_batch(Configuration(), batch)).has_failed


def _measure(study: Study, wanted: Sequence[tuple[Configuration, str]]) -> Steps[None]:
    """Measure configurations that were not tried yet, while there is time.

    wanted: configurations, each with the name of its source.
    """
    tried = {trial.configuration for trial in study.evaluation.trials()}
    sources = {c: source for c, source in dict(wanted).items() if c not in tried}
    waiting = list(sources)
    while waiting:
        step = Launches(lambda: waiting.pop(0) if waiting else None, Purpose.BASELINE, Aim.BASELINE)
        records = yield from ask(step)
        if isinstance(records, NoTime):
            break
        for record in records:
            configuration = record.request.configuration
            study.tell(study.search.enter(configuration, sources[configuration]), record)
