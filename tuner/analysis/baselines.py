"""The baselines: how each performed here, which is the best, and the gain over them."""

from __future__ import annotations

import statistics

from tuner.analysis.neighbours import beside_neighbour
from tuner.analysis.sections import rounded
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.journal import Phase
from tuner.record.result import BaselineSection
from tuner.space.baselines import Baseline
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.compared import (
    baseline_name,
    best_baseline,
    configuration_as_run,
    unmeasured_baselines,
)
from tuner.study.study import Study


def baseline_section(study: Study, claims: Claims, baseline: Baseline) -> BaselineSection:
    """Return the section of a baseline: why it was not measured, or how it performed."""
    evaluation = study.evaluation
    speedup = ratio = fared = None
    reason = baseline.reason
    if baseline.is_applicable:
        at_batches = [
            evaluation.at_batch(baseline.configuration, batch) for batch in evaluation.batches
        ]
        best = evaluation.best(at_batches)
        ratio = evaluation.ratio(best[0]) if best else None
        arm = _confirmed_arm(study, claims, baseline.configuration)
        if arm is not None and baseline.same_as != "default":
            speedup = claims.against_default(arm)
            fared = beside_neighbour(claims, arm)
        if best is None:
            endings = [t.ending for t in evaluation.trials() if t.configuration in at_batches]
            reason = f"{endings[0].outcome}: {endings[0].reason}" if endings else "no time"
    return BaselineSection(
        name=baseline.name,
        source=baseline.source,
        applicable=baseline.is_applicable,
        reason=reason,
        same_as=baseline.same_as,
        dead_settings=list(baseline.dead_settings),
        substituted=list(baseline.substituted),
        configuration=baseline.configuration.as_dict(),
        speedup=speedup,
        search_ratio=rounded(ratio),
        beside_neighbour=fared,
    )


def over_best_baseline(
    study: Study, claims: Claims, recommended: Claim
) -> tuple[str | None, Interval | None]:
    """Return the best baseline's name, and the recommended winner's gain over it if measured.

    The default counts as a baseline. It is the best one if the rounds show no other above it, or if
    all were tried and none may win. Before that is known there is none.
    """
    best = claims.best_baseline or best_baseline(study)
    is_faster = recommended.verdict == "faster"
    differences = claims.differences(best) if best is not None else []
    if best is not None and not (differences and statistics.fmean(differences) <= 0):
        is_another = best != recommended.configuration
        gain = claims.against(recommended.configuration, best) if is_faster and is_another else None
        return baseline_name(study, best), gain
    is_known = study.notes.is_done(Phase.BASELINES)
    if best is None and not (is_known and not unmeasured_baselines(study, study.widest)):
        return None, None
    name = next((b.name for b in study.baselines if b.same_as == "default"), None)
    return name, recommended.speedup if is_faster else None


def over_as_run(study: Study, claims: Claims, recommended: Claim) -> Interval | None:
    """Return the gain of the recommendation, else of the default, over the user's own settings."""
    own = configuration_as_run(study)
    arm = None if own is None else _confirmed_arm(study, claims, own)
    best = recommended.configuration if recommended.verdict == "faster" else claims.default
    return None if arm is None or arm == best else claims.against(best, arm)


def _confirmed_arm(study: Study, claims: Claims, bare: Configuration) -> Configuration | None:
    """Return a baseline at the batch at which rounds hold it; at its best one, if at several."""
    evaluation = study.evaluation
    at_batches = [evaluation.at_batch(bare, batch) for batch in evaluation.batches]
    confirmed = [c for c in at_batches if len(claims.differences(c)) >= 1]
    best = evaluation.best(at_batches)
    if best is not None and best[0] in confirmed:
        return best[0]
    return confirmed[0] if confirmed else None
