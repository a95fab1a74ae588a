"""The arms of rounds: those of the confirmation, and those that show what each setting is worth."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.measurement.confirmation import FIRST_LOOK
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import AS_RUN, named
from tuner.space.baselines import Baseline, to_measure
from tuner.space.catalogue import allowed_in, is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.study.study import Study

_NEARLY_BEST = 0.05
"""A default this close (log) to the default's best batch may yet be the best."""
EXPLAIN_ROUNDS = FIRST_LOOK
"""As many as the confirmation's first look: an interval over fewer is hardly one."""


def configuration_as_run(study: Study) -> Configuration | None:
    """Return the configuration that the user's environment sets; None if it is the default."""
    found = named(study.baselines)
    return None if found is None or is_default(found.configuration) else found.configuration


def as_run(study: Study) -> Configuration | None:
    """Return a configuration at its best batch, or at an equal finalist's; None if it fails."""
    bare = configuration_as_run(study)
    if bare is None:
        return None
    evaluation = study.evaluation
    at_batches = [evaluation.at_batch(bare, batch) for batch in evaluation.batches]
    found = evaluation.best([c for c in at_batches if evaluation.may_win(c)])
    if found is None:
        return None
    finalists = {
        finalist.without(BATCH): finalist for finalist in study.candidates.finalists().values()
    }
    return finalists.get(bare, found[0])


def baselines_to_confirm(study: Study) -> list[Configuration]:
    """Return the baselines to confirm if they fit, the user's own settings first.

    Below 30 minutes these and the best baseline; otherwise all.
    """
    own = as_run(study)
    first = [] if own is None else [own]
    return list(dict.fromkeys([*first, *_best_baselines(study)]))


def best_baseline(study: Study) -> Configuration | None:
    """Return the baseline with the best score, at its best batch; None if there is none.

    Baselines that reduce the precision are left out if the winner must keep it.
    """
    bare = [
        b.configuration
        for b in study.baselines
        if b.is_applicable and not b.same_as and allowed_in(study.widest, b.configuration)
    ]
    at_batches = [
        study.evaluation.at_batch(c, batch) for c in bare for batch in study.evaluation.batches
    ]
    found = study.evaluation.best([c for c in at_batches if study.evaluation.may_win(c)])
    return _as_finalists(study, [found[0]])[0] if found else None


def _as_finalists(study: Study, baselines: Iterable[Configuration]) -> list[Configuration]:
    """Replace each baseline that is a finalist, perhaps at another batch, by that finalist.

    Finalists are chosen by the surrogate's estimate, not by the score. Without this a configuration
    would be confirmed at two batches.
    """
    finalists = {f.without(BATCH): f for f in study.candidates.finalists().values()}
    return [finalists.get(c.without(BATCH), c) for c in baselines]


def never_launched(study: Study) -> list[Baseline]:
    """Return the distinct baselines that were launched at no batch, by whatever phase."""
    launched = {r.request.configuration.without(BATCH) for r in study.store.launches.values()}
    tried = {configuration.without(BATCH) for configuration in study.evaluation.tried()}
    return [b for b in to_measure(study.baselines) if b.configuration not in launched | tried]


def unmeasured_baselines(study: Study, winner_class: WinnerClass) -> list[str]:
    """Return the names of a class's recommendations that were launched at no batch."""
    return [
        b.name
        for b in never_launched(study)
        if b.name != AS_RUN and allowed_in(winner_class, b.configuration)
    ]


def baseline_name(study: Study, configuration: Configuration) -> str | None:
    """Return the name of the baseline that a configuration is, at whatever batch."""
    named = (b for b in study.baselines if b.is_applicable and not b.same_as)
    bare = configuration.without(BATCH)
    return next((b.name for b in named if b.configuration == bare), None)


def _best_baselines(study: Study) -> list[Configuration]:
    """Return the baselines to confirm, the best first; below 30 minutes only that one."""
    best, evaluation = best_baseline(study), study.evaluation
    found = [] if best is None else [best]
    if study.is_long:
        at_their_best = [
            evaluation.best(
                [evaluation.at_batch(baseline.configuration, b) for b in evaluation.batches]
            )
            for baseline in to_measure(study.baselines)
        ]
        scored = [pair for pair in at_their_best if pair is not None]
        found += _as_finalists(study, (c for c, _ in sorted(scored, key=lambda pair: -pair[1])))
    return list(dict.fromkeys(found))


def confirmation_arms(
    study: Study, candidates: Iterable[Configuration | None], *, at_reference: bool = False
) -> list[Configuration]:
    """Return the launches of a confirmation round, the default's first.

    The default is launched at its best batch, and at every batch that may yet be its best. With
    `at_reference`, arms at another batch are launched at the reference batch too: for the gain
    without the batch.
    """
    evaluation = study.evaluation
    default = evaluation.default_at_best()
    first = default[0] if default else Configuration()
    # a default that never answers would have every round wait for it
    arms = [evaluation.stand_in if evaluation.default_is_silent and evaluation.stand_in else first]
    for batch in evaluation.batches:
        at_batch = evaluation.at_batch(Configuration(), batch)
        if evaluation.row(at_batch).over_bound:
            continue
        score = evaluation.score(at_batch)
        if default and score is not None and score > default[1] - _NEARLY_BEST:
            arms.append(at_batch)
    for candidate in candidates:
        if candidate is not None and not is_default(candidate):
            arms.append(candidate)
            at_batch = evaluation.at_batch(candidate, evaluation.reference_batch)
            if at_reference:
                arms += [at_batch, *([] if evaluation.default_is_silent else [Configuration()])]
    return list(dict.fromkeys(arms))


def explained(study: Study, winner: Configuration) -> list[Configuration]:
    """Return the winner, and the winner without each setting other than the batch."""
    without = [c for knob, c in study.removals(winner).items() if knob != BATCH]
    return [winner, *dict.fromkeys(without)]
