"""A recommendation without a search: from a study on such a host, or predicted by rules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tuner.analysis.recommendation import placement_of, portable, setting_of
from tuner.app.advice import Advised, Adviser
from tuner.app.plan import Plan, plan
from tuner.app.request import Request, check_request
from tuner.errors import StudyConflict, UsageError
from tuner.galleries import GUIDELINES
from tuner.host.identity import Host, probe
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output.recommended import write_recommendations
from tuner.record.configuration import Configuration
from tuner.record.events import Listener, PhaseBegins, unheard
from tuner.record.files import make_folder
from tuner.record.guidelines import Guidelines, read_guidelines
from tuner.record.lines import opened_in
from tuner.record.numerics import recommends_reduced
from tuner.record.output_check import MAX_DRIFT_SAME, max_drift
from tuner.record.recommendation import (
    RECOMMENDATION_VERSION,
    Recommendation,
    RecommendedHost,
    RecommendedWorkload,
    ShippedClaim,
    Tolerances,
)
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, level_of
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import plan_launch
from tuner.study.trial_run import TimeIsUp, TrialRun, trial_runs

PATIENCE_S = 600.0
"""In which a model must have loaded."""
TRIAL_S = 180.0
"""Seconds in which everything recommended must be built and called once. TorchInductor compiles
resnet50 in a minute on two cores; what takes longer than this is replaced."""


class Recommended(msgspec.Struct, frozen=True):
    """The content of one framework's folder."""

    framework: str
    batch: int
    folder: Path
    shipped: WinnerClass
    advised: dict[WinnerClass, Advised]
    notes: list[str]
    """Notes for the user."""


def read_rules(path: Path | None) -> Guidelines:
    """Read a guidelines.json, or that of a folder; the shipped one for None.

    Raises UsageError if there is none.
    """
    if path is None and not GUIDELINES.exists():
        raise UsageError(
            "no guidelines ship with this version: distil your own studies with tune-framework "
            "guidelines DIR..., and name their folder with --guidelines"
        )
    return read_guidelines(path or GUIDELINES)


def recommend(
    request: Request, guidelines: Guidelines, listen: Listener, testbed: Testbed = THIS_HOST
) -> list[Recommended]:
    """Build the model, apply the guidelines, and write what they recommend and what runs.

    Raises UsageError if they have nothing for a framework, and as plan does.
    """
    check_request(request)
    host = probe()
    _check_frameworks(request.frameworks, guidelines)  # before a model is built
    plans = plan(request, host, listen, testbed=testbed)
    _check_frameworks([each.workload.framework for each in plans], guidelines)
    is_reduced = recommends_reduced(request.restrictions.numerics)
    shipped = WinnerClass.REDUCED_PRECISION if is_reduced else WinnerClass.SAME_PRECISION
    folders = [_folder(each, is_given=request.out is not None) for each in plans]
    return [
        _recommend_one(each, folder, guidelines, host, shipped, listen, testbed)
        for each, folder in zip(plans, folders, strict=True)
    ]


def _check_frameworks(frameworks: Iterable[str], guidelines: Guidelines) -> None:
    known = {study.framework for study in guidelines.studies}
    for framework in frameworks:
        if framework not in known:
            names = ", ".join(sorted(known)) or "no framework"
            raise UsageError(
                f"the guidelines are of {names}, and say nothing of {framework}: tune it, or leave "
                "it out with --framework"
            )


def _folder(plan: Plan, *, is_given: bool) -> Path:
    """Return the folder of a recommendation: next to that of a study."""
    if not is_given:
        return plan.folder.with_name(f"{plan.folder.name}-recommended")
    if opened_in(plan.folder) is not None:
        raise StudyConflict(
            f"{plan.folder} holds a study, which is better evidence: name another folder with --out"
        )
    return plan.folder


def _recommend_one(
    plan: Plan,
    folder: Path,
    guidelines: Guidelines,
    host: Host,
    shipped: WinnerClass,
    listen: Listener,
    testbed: Testbed,
) -> Recommended:
    workload = plan.workload
    adviser = Adviser(plan, host, guidelines)
    listen(PhaseBegins("trial", "the recommendation is built and called once"))
    with trial_runs(workload, plan.facts, plan.objective, host, TRIAL_S, unheard, testbed) as trial:
        advised, untried = _that_run(adviser, trial)
    notes = [*untried, *adviser.notes()]
    ready = {
        winner_class: _to_ship(plan, host, winner_class, advised[winner_class], notes)
        for winner_class in WinnerClass
    }
    make_folder(folder)
    write_recommendations(folder, ready, shipped)
    batch = int(advised[shipped].configuration.get(BATCH) or workload.card.reference_batch)
    return Recommended(workload.framework, batch, folder, shipped, advised, notes)


def _that_run(adviser: Adviser, trial: TrialRun) -> tuple[dict[WinnerClass, Advised], list[str]]:
    """Return the best advice of each class that runs here, and a note if nothing can be tried.

    When the time is up, what ran in a narrower class is used for the wider ones.
    """
    advised: dict[WinnerClass, Advised] = {}
    try:
        for winner_class in WinnerClass:
            advised[winner_class] = _that_runs(adviser, winner_class, trial)
    except TimeIsUp as up:
        if up.is_by_default:
            why = f"not tried here: the default alone takes longer than {TRIAL_S:.0f} s"
            note = f"{why}; only predicted settings of the launch are set"
            return {
                winner_class: _untried(adviser, winner_class, why) for winner_class in WinnerClass
            }, [note]
        in_time = _within_the_time(next(reversed(advised.values()), None))
        advised = {winner_class: advised.get(winner_class, in_time) for winner_class in WinnerClass}
    return advised, []


def _that_runs(adviser: Adviser, winner_class: WinnerClass, trial: TrialRun) -> Advised:
    """Return the best advice that runs here; the default runs in any case.

    Raises TimeIsUp once nothing more can be tried.
    """
    while True:
        advised = adviser.advise(winner_class)
        fault = trial.fault(advised.configuration)
        if fault is None:
            return advised
        adviser.rule_out(advised, fault)
        if trial.is_over:  # the default is not the next best: what is better may only take longer
            raise TimeIsUp


def _within_the_time(ran: Advised | None) -> Advised:
    """Return the advice for the classes that the time did not suffice for.

    ran: that of the widest class before them.
    """
    if ran is None or not ran.configuration.settings:
        return _not_known(f"nothing that is recommended ran here within {TRIAL_S:.0f} s")
    limit = f"nothing beyond it ran here within {TRIAL_S:.0f} s"
    return msgspec.structs.replace(ran, rests_on=[*ran.rests_on, limit])


def _untried(adviser: Adviser, winner_class: WinnerClass, why: str) -> Advised:
    """Return the advice of a class that is worth giving untested.

    That is the winner of a study of this model, or else only settings of the launch, which leave
    the program as it is.
    """
    narrowest = WinnerClass.NO_CODE
    advised = adviser.advise(winner_class)
    if advised.verdict == "looked_up" or allowed_in(narrowest, advised.configuration):
        return advised
    less = adviser.advise(narrowest)
    return less if less.configuration.settings else _not_known(why)


def _not_known(why: str) -> Advised:
    return Advised("not_known", Configuration(), None, [why])


def _to_ship(
    plan: Plan, host: Host, winner_class: WinnerClass, advised: Advised, notes: Iterable[str]
) -> Recommendation:
    configuration, workload = advised.configuration, plan.workload
    plans = plan_launch(configuration, host, workload.device)
    environment, packages = portable(plans[0].environment, host)
    reference = workload.card.reference_batch
    level = level_of(configuration)
    return Recommendation(
        schema_version=RECOMMENDATION_VERSION,
        winner_class=winner_class,
        workload=RecommendedWorkload(
            workload.model.label(),
            workload.framework,
            workload.scenario,
            int(configuration.get(BATCH) or reference),
            reference,
            workload.card.form,
            workload.card.source_sha256,
            workload.device,
            workload.callers,
            workload.card.batch_dim,
        ),
        host=RecommendedHost(
            host.fingerprint(),
            host.processor.model,
            host.physical_cores,
            host.usable_cpus,
            max(1, round(len(host.cpus) / host.physical_cores)),
            host.identity(),
        ),
        claim=ShippedClaim(
            advised.verdict,
            n_rounds=0,
            noise_floor=0.0,
            speedup=advised.speedup,
            metric=plan.objective.metric,
            rests_on=[
                *advised.rests_on,
                *(f"beware: {each}" for each in advised.beware),
                *(f"note: {note}" for note in notes),
            ],
            studies=advised.studies,
        ),
        tolerances=Tolerances(level.in_words, max_drift(level) if level else MAX_DRIFT_SAME),
        versions={**host.versions, **plan.facts.versions},
        environment=environment,
        settings=[setting_of(knob, value) for knob, value in configuration.settings],
        placements=[placement_of(each) for each in plans],
        packages=packages,
    )
