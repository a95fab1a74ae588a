"""The run, as a list of verbs: probe, load, resolve, then each phase of the study, then write."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import msgspec
from threadpoolctl import threadpool_limits

from tuner import __version__
from tuner.errors import StudyConflict, TuneError
from tuner.host.checks import examine, look_around
from tuner.host.identity import Host, probe
from tuner.measurement.bench import Bench
from tuner.measurement.describe import make_reference
from tuner.measurement.quiet import WAITING_SHARE
from tuner.measurement.replication import CONFIRM, replication
from tuner.output.assemble import Context, assemble
from tuner.output.recommended import write_recommendations
from tuner.output.report import write_reports
from tuner.plan import Plan, Request, difference, plan
from tuner.record.events import FrameworkEnds, Listener, StudyBegins, StudyEnds, Warned
from tuner.record.files import write_result
from tuner.record.journal import (
    EarlierNoted,
    SessionOpened,
    StudyFinished,
    StudyOpened,
    WinnerClass,
)
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome, counts_as_measured
from tuner.record.result import Result
from tuner.record.store import Store
from tuner.search.transfer import Earlier
from tuner.search.trials import Trials
from tuner.space.catalogue import BATCH
from tuner.study.baselines import measure_baselines
from tuner.study.budget import Budget
from tuner.study.confirm import confirm
from tuner.study.explain import explain
from tuner.study.explore import explore
from tuner.study.ledger import Ledger
from tuner.study.minimise import minimise
from tuner.study.race import race
from tuner.study.study import Study


class Finished(msgspec.Struct, frozen=True):
    """What came of one framework: a result, or the error that ended its study."""

    framework: str
    folder: Path
    result: Result | None
    error: str = ""
    exit_code: int = 0


def tune(request: Request, listen: Listener) -> list[Finished]:
    """Tune a model on this host; the budget is shared by the frameworks.

    Raises UsageError before anything is measured, Interrupted (resumable) while measuring. What
    ends a single framework's study stands in its Finished.
    """
    began = time.monotonic()
    host = probe()
    plans = plan(request, host)
    for each in plans:  # an unwritable or foreign folder is refused before anything is measured
        with Store(each.folder) as store:
            _open(store, each)
    overhead_s = (time.monotonic() - began) / len(plans)
    finished = []
    spent_s = 0.0
    for i, each in enumerate(plans):
        # what the earlier ones took, in all their sessions: a resumed study has the same share
        budget_s = max(1.0, (request.budget_s - spent_s) / (len(plans) - i))
        outcome, taken_s = _finish(each, request, host, budget_s, overhead_s, listen)
        finished.append(outcome)
        spent_s += taken_s
    return finished


def _finish(
    plan: Plan, request: Request, host: Host, budget_s: float, overhead_s: float, listen: Listener
) -> tuple[Finished, float]:
    """Run a study; return what came of it, and the seconds that it has taken in all sessions."""
    began = time.monotonic()
    framework = plan.workload.framework
    try:
        result = run_study(plan, request, host, budget_s, overhead_s, listen)
        outcome, taken_s = Finished(framework, plan.folder, result), result.seconds.wall
    except TuneError as error:
        outcome = Finished(framework, plan.folder, None, str(error), error.exit_code)
        taken_s = time.monotonic() - began
    listen(
        FrameworkEnds(framework, str(plan.folder), outcome.exit_code, outcome.error, outcome.result)
    )
    return outcome, taken_s


def run_study(
    plan: Plan, request: Request, host: Host, budget_s: float, overhead_s: float, listen: Listener
) -> Result:
    """Carry out one study, or go on with it, and write what it found."""
    with Store(plan.folder) as store:
        _open(store, plan)
        sessions = store.all(SessionOpened)
        is_finished = bool(store.all(StudyFinished))
        session = SessionOpened(len(sessions) + 1, _now(), budget_s, request.command)
        if is_finished:  # rendered again: nothing of what was measured has changed
            session = sessions[-1]
            overhead_s = 0.0
        budget = Budget(session.budget_s, store.used_before_s + overhead_s)
        store.used_s = budget.used_s
        ended = [
            record.ending.outcome
            for record in store.launches.values()
            if record.ending is not None
            and record.ending.outcome is not Outcome.INTERRUPTED
            and record.request.purpose is not Purpose.PACER
        ]
        listen(
            StudyBegins(
                workload=plan.workload.label(),
                folder=str(plan.folder),
                budget_s=session.budget_s,
                resumed_s=store.used_before_s,
                n_configurations=plan.space.upper_size(),
                n_measured=sum(map(counts_as_measured, ended)),
                n_failed=len(ended) - sum(map(counts_as_measured, ended)),
            )
        )
        if is_finished and budget_s > 1.01 * session.budget_s:
            listen(
                Warned(
                    "this study is finished and is rendered again; to measure longer, name another "
                    "folder with --out"
                )
            )
        if not sessions and not store.all(EarlierNoted):  # a kill may have come in between
            for each in plan.earlier:
                ratios = each.log_ratios
                store.add(EarlierNoted(each.name, tuple(ratios), tuple(ratios.values())))
        study = _assemble_study(store, plan, request, host, budget, session.number, listen)
        context = Context(
            host=host,
            profile=plan.profile.name,
            profile_matches=plan.profile_matches,
            workload=plan.workload,
            facts=plan.facts,
            numerics=request.restrictions.numerics,
            session=session,
            command=session.command or request.command,
        )
        if not is_finished:
            store.add(session)
            try:
                # the surrogate's matrices are small: several BLAS threads only wait for each other
                with threadpool_limits(limits=1, user_api="blas"):
                    _measure(study, plan, request, host)
            finally:
                study.bench.close()
        result = assemble(study, context)
        write_result(plan.folder / "result.json", result)
        write_recommendations(plan.folder, result, host, plan.workload.card)
        write_reports(plan.folder, result)
        if not is_finished:
            store.add(StudyFinished(result.verdict))
        listen(StudyEnds(plan.workload.label(), result.verdict, str(plan.folder)))
        return result


def _assemble_study(
    store: Store,
    plan: Plan,
    request: Request,
    host: Host,
    budget: Budget,
    session: int,
    listen: Listener,
) -> Study:
    batch_knob = plan.space.by_id[BATCH]
    reference = plan.workload.card.reference_batch
    batches = tuple(sorted({int(b) for b in (*batch_knob.choices, reference)}))
    ledger = Ledger(store, reference, batches, replication(CONFIRM, plan.workload.card))
    bench = Bench(
        store,
        host,
        plan.workload,
        plan.facts,
        listen,
        session=session,
        seed=request.seed,
        seconds_left=budget.left_s,
        waiting_s=WAITING_SHARE * budget.total_s,
    )
    trials = Trials(
        plan.folder / "study.db",
        plan.space,
        ledger.tried,
        request.seed,
        ledger.trials(),
        [
            Earlier(n.name, dict(zip(n.configurations, n.log_ratios, strict=True)))
            for n in store.all(EarlierNoted)
        ],
        sd=ledger.score_sd,
        cost_s=ledger.cost_s,
    )
    is_reduced = request.restrictions.numerics == "reduced"
    return Study(
        store,
        plan.space,
        plan.baselines,
        bench,
        ledger,
        trials,
        budget,
        listen,
        WinnerClass.REDUCED if is_reduced else WinnerClass.SAME,
        goal=request.goal,
    )


def _measure(study: Study, plan: Plan, request: Request, host: Host) -> None:
    """The phases, in their order; each knows what an earlier session has done."""
    if study.trials.was_damaged:
        study.warn("study.db was damaged and is made again from study.jsonl; nothing is lost")
    if request.learn_from and not study.trials.sampler.transfer.studies:
        study.warn(
            f"of {len(plan.earlier)} earlier {plan.workload.framework} studies below "
            "--learn-from, none measured anything that exists here: nothing is learnt"
        )
    _warn_about_the_host(study, plan, host)
    study.store.check_room()
    if not study.store.reference_path.exists():
        workload = plan.workload
        make_reference(
            workload.model,
            workload.framework,
            workload.seed,
            study.store.reference_path,
            max(workload.card.n_check_inputs(changes_numerics=c) for c in (False, True)),
        )
    study.adopt_orphans()
    measure_baselines(study)
    explore(study)
    race(study)
    minimise(study)
    confirm(study)
    explain(study)


def _warn_about_the_host(study: Study, plan: Plan, host: Host) -> None:
    if not plan.profile_matches:
        study.warn(
            f"--hw {plan.profile.name} names {plan.profile.title}; this host is "
            f"{host.processor.model} ({host.processor.vendor}, {host.processor.arch}): its "
            "formulas are resolved for what is here"
        )
    if plan.profile.name == "cuda":
        study.warn("the knobs of the GPU are not searched by this version: the CPU side is tuned")
    for finding in examine(look_around(host, plan.folder)):
        if finding.severity == "shaky" or finding.id == "smt":
            study.warn(f"{finding.message} (tune-framework doctor)")


def _open(store: Store, plan: Plan) -> None:
    """Begin the folder's study, or make sure that it is this one."""
    opened = store.opened
    if opened is None:
        store.add(StudyOpened(plan.identity, plan.identity_parts, _now(), __version__))
        return
    if opened.identity == plan.identity:
        return
    raise StudyConflict(
        f"{plan.folder} holds another study: {difference(opened, plan)} changed since it was "
        "begun; name another folder with --out, or move this one away"
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
