"""A plan turned into a study: its folder opened, its parts connected, warnings printed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuner.app.advice import guesses
from tuner.app.plan import Plan, difference
from tuner.app.request import Request, trace_of
from tuner.errors import StudyConflict
from tuner.host.checks import examine, look_around
from tuner.host.identity import Host
from tuner.launchers.testbed import Testbed
from tuner.measurement.bench import bench_on
from tuner.measurement.interference_gate import WAITING_SHARE
from tuner.measurement.replication import CONFIRM, replication
from tuner.record.events import Listener, Warned
from tuner.record.journal import EarlierNoted, SloFixed, StudyOpened
from tuner.record.moments import utc_now
from tuner.record.numerics import recommends_reduced
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.search import Search
from tuner.search.transfer import Earlier
from tuner.space.as_run import change, named, removal
from tuner.space.knobs_of.launch import BATCH
from tuner.study.costs import Budget, Costs
from tuner.study.evaluation import Evaluation
from tuner.study.latency_bound import fix_bound
from tuner.study.study import Study
from tuner.version import __version__


def study_of(
    store: Store,
    plan: Plan,
    request: Request,
    host: Host,
    budget: Budget,
    session: int,
    listen: Listener,
    testbed: Testbed,
) -> Study:
    """Put a study together. session: the number of this run of the tool over it."""
    batch_knob = plan.space.by_id[BATCH]
    reference = plan.workload.card.reference_batch
    batches = tuple(sorted({int(b) for b in (*batch_knob.choices, reference)}))
    evaluation = Evaluation(store, reference, batches, plan.objective, plan.stand_in())
    confirming = replication(CONFIRM, plan.workload.card)
    costs = Costs(store, evaluation, confirming, plan.least_launch_s())
    bench = bench_on(
        testbed,
        store,
        host,
        plan.workload,
        plan.facts,
        plan.objective,
        listen,
        session=session,
        seed=request.seed,
        seconds_left=budget.left_s,
        waiting_s=WAITING_SHARE * budget.total_s,
        search_ratio=evaluation.ratio_after,
        arrivals_seed=int(plan.identity[:8], 16),
    )
    search = Search(
        plan.folder / "study.db",
        plan.space,
        evaluation.tried,
        request.seed,
        evaluation.trials(),
        [
            Earlier(n.name, dict(zip(n.configurations, n.log_ratios, strict=True)))
            for n in store.all(EarlierNoted)
        ],
        sd=evaluation.score_sd,
        cost_s=costs.own_s,
    )
    is_reduced = recommends_reduced(request.restrictions.numerics)
    return Study(
        store,
        plan.space,
        plan.baselines,
        bench,
        evaluation,
        costs,
        search,
        budget,
        listen,
        WinnerClass.REDUCED_PRECISION if is_reduced else WinnerClass.SAME_PRECISION,
        # the user's own guidelines are listened to as earlier studies are, with a setting withheld
        guesses=guesses(plan, host) if request.guidelines is None else (),
    )


def with_noted_bound(store: Store, plan: Plan, request: Request) -> Plan:
    """Return a plan with the latency bound of an earlier session, if there is one.

    Recorded arrivals are where the request names them: their file may have been moved.
    """
    fixed = store.all(SloFixed)
    if not fixed or plan.objective.slo is not None:
        return plan
    slo = msgspec.structs.replace(fixed[-1].slo, trace=trace_of(request))
    objective = msgspec.structs.replace(plan.objective, slo=slo)
    return msgspec.structs.replace(plan, objective=objective)


def bounded(
    study: Study, plan: Plan, request: Request, host: Host, session: int, testbed: Testbed
) -> Plan:
    """Return a plan with a latency bound derived from the default.

    Raises NothingMeasured if the default cannot be measured.
    """
    card = msgspec.structs.replace(plan.workload.card, reference_batch=1, batches=(1,))
    alone = msgspec.structs.replace(plan.workload, scenario="single-stream", card=card)
    bench = bench_on(
        testbed,
        study.store,
        host,
        alone,
        plan.facts,
        plan.objective,
        study.listen,
        session=session,
        seed=request.seed,
        seconds_left=study.budget.left_s,
        waiting_s=0.0,
    )
    try:
        slo = fix_bound(study.store, bench, trace_of(request), plan.stand_in())
    finally:
        bench.close()
    text = f"{slo.name} within {1000 * slo.seconds:.3g} ms"
    study.notes.warn(f"no --slo was given: {text}, {slo.asked}")
    return with_noted_bound(study.store, plan, request)


def tell_losses(study: Study, folder: Path) -> None:
    """Note what the folder has lost, and whether it is made again."""
    store = study.store
    for loss in store.losses:
        store.add(loss)
        if loss.text:
            study.notes.warn(loss.text)
    if study.search.was_damaged:
        study.notes.warn(
            "study.db was damaged or missing and is made again from study.jsonl; nothing is lost"
        )
    compiled = folder / "compiled"
    is_used = any(record.built for record in store.launches.values())
    if is_used and not compiled.is_dir() and not store.is_finished:
        if compiled.exists():
            compiled.replace(folder / f"broken-{compiled.name}")
        study.notes.warn("compiled/ was lost: what a launch compiles is compiled once more")


def warn_about_the_environment(study: Study, plan: Plan, request: Request) -> None:
    """Tell which tuning variables are set, and whether they were others when it was begun."""
    if plan.environment:  # no warning that is noted: the result has a field for it
        study.listen(Warned(removal(plan.environment, named(plan.baselines))))
    if changed := environment_changed(study.store, request):
        study.notes.warn(changed)


def environment_changed(store: Store, request: Request) -> str:
    """Say that this shell's tuning variables differ from the first session's; empty if not."""
    first = store.opened.environment if store.opened else None
    if first is None or request.environment is None:
        return ""
    return change(first, request.environment)


def warn_about_the_host(study: Study, plan: Plan, host: Host, testbed: Testbed) -> None:
    """Warn of a profile for another host, and of what is unreliable on this one."""
    if not plan.profile_matches:
        study.notes.warn(
            f"--hw {plan.profile.name} names {plan.profile.title}; this host is "
            f"{host.processor.model} ({host.processor.vendor}, {host.processor.arch}): its "
            "formulas are resolved for what is here"
        )
    if plan.profile.caution:
        study.notes.warn(plan.profile.caution)
    for finding in examine(look_around(host, plan.folder, look=testbed.watch_idle)):
        if finding.severity == "shaky" or finding.id == "smt":
            study.notes.warn(f"{finding.message} (tune-framework doctor)")


def open_study(store: Store, plan: Plan, command: str) -> bool:
    """Begin the folder's study, or make sure that it is this one; tell whether it was begun."""
    opened = store.opened
    if opened is None:
        store.add(
            StudyOpened(
                plan.identity,
                plan.identity_parts,
                utc_now(),
                __version__,
                plan.environment,
                command,
            )
        )
        return True
    if opened.identity == plan.identity:
        return False
    raise StudyConflict(
        f"{plan.folder} holds another study: {difference(opened, plan)} changed since it was "
        "begun; name another folder with --out, or move this one away"
    )
