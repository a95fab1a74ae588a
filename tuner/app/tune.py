"""The run, as a list of verbs: probe, load, resolve, then each phase of the study, then write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from tuner.analysis.assemble import Context, assemble
from tuner.analysis.recommendation import recommendations
from tuner.app.grants import (
    Account,
    Shares,
    account_of,
    check_continued,
    check_round,
    grant,
)
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.app.study_setup import (
    bounded,
    environment_changed,
    open_study,
    study_of,
    tell_losses,
    warn_about_the_environment,
    warn_about_the_host,
    with_noted_bound,
)
from tuner.errors import NothingMeasured, TuneError, UsageError
from tuner.host.identity import Host, probe
from tuner.launchers.asking import Deadline
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output.continuing import going_on
from tuner.output.recommended import write_recommendations
from tuner.output.report import write_reports
from tuner.record.events import (
    FrameworkEnds,
    Listener,
    StudyBegins,
    StudyEnds,
    TimeLeft,
    TransferLoaded,
    Warned,
)
from tuner.record.files import read_result, write_result
from tuner.record.journal import (
    EarlierNoted,
    Extended,
    Phase,
    SessionOpened,
    StudyFailed,
    StudyFinished,
    WarningNoted,
)
from tuner.record.launch import Purpose
from tuner.record.moments import utc_now
from tuner.record.outcome import Outcome, counts_as_measured
from tuner.record.protocol import draft_of, weights_beside
from tuner.record.result import Result
from tuner.record.store import Store
from tuner.record.withdrawal import existing_parent, remove_empty_study
from tuner.space.baselines import what_apt_adds
from tuner.space.launching import gpu_of
from tuner.space.listing import upper_size
from tuner.space.overrides import warnings_of
from tuner.study.baselines import measure_baselines
from tuner.study.confirm import confirm
from tuner.study.costs import Budget
from tuner.study.designed import measure_design
from tuner.study.explain import explain
from tuner.study.explore import explore
from tuner.study.minimise import minimise
from tuner.study.planner import Planner
from tuner.study.race import race
from tuner.study.reference import provide_reference
from tuner.study.study import Study

_WRITING_SHARE = 0.1
"""Share of a budget that is kept for the report, at most."""


class Finished(msgspec.Struct, frozen=True):
    """What came of one framework: a result, or the error that ended its study."""

    framework: str
    folder: Path
    result: Result | None
    error: str = ""
    exit_code: int = 0


def tune(request: Request, listen: Listener, testbed: Testbed = THIS_HOST) -> list[Finished]:
    """Tune a model on this host, or go on with that; the budget is shared by the frameworks.

    Raises UsageError before anything is measured, Interrupted (resumable) while measuring. What
    ends a single framework's study stands in its Finished.
    """
    began_s = testbed.clock.began_s()
    host = probe()
    plans = plan(request, host, listen, testbed=testbed)
    check_continued(request, (each.folder for each in plans))
    grounds = {each.folder: existing_parent(each.folder) for each in plans}
    accounts = _open_all(plans, grounds, request, testbed.clock.now_s() - began_s)
    unfinished = [p for p, account in zip(plans, accounts, strict=True) if not account.is_finished]
    # once for all frameworks, before the first of them; the reports tell it baseline by baseline
    if lacking := what_apt_adds((b for each in unfinished for b in each.baselines), host):
        listen(Warned(lacking))
    overhead_s = (testbed.clock.now_s() - began_s) / len(plans)
    finished = []
    shares = Shares(request, accounts)
    for i, each in enumerate(plans):
        outcome, taken_s = finish(
            each,
            request,
            host,
            shares.total_s(i),
            overhead_s,
            listen,
            grounds[each.folder],
            testbed,
        )
        finished.append(outcome)
        before_s = accounts[i].used_s if outcome.result is None else 0.0
        shares.use(i, before_s + taken_s)
    return finished


def _open_all(
    plans: list[Plan], grounds: Mapping[Path, Path], request: Request, passed_s: float
) -> list[Account]:
    """Begin every study, or grant it more time; refuse what is invalid before measuring.

    That is an unwritable or foreign folder, and a time that is too short. passed_s: since the
    command was given. Returns the time that each has used and was granted.
    """
    begun: list[Plan] = []
    accounts: list[Account] = []
    try:
        for each in plans:
            with Store(each.folder) as store:
                if open_study(store, each, request.command):
                    begun.append(each)
                accounts.append(account_of(store))
        granted = grant(request, accounts)
        seconds = granted.seconds if isinstance(granted, Extended) else None
        opening = begun if seconds is None else plans
        check_round(request, seconds, passed_s, [each.least_launch_s() for each in opening])
        if granted is None:
            return accounts
        for i, each in enumerate(plans):
            with Store(each.folder) as store:
                store.add(granted)
                accounts[i] = account_of(store)
    except TuneError:
        for each in begun:
            with Store(each.folder) as store:
                remove_empty_study(store, grounds[each.folder])
        raise
    return accounts


def finish(
    plan: Plan,
    request: Request,
    host: Host,
    budget_s: float,
    overhead_s: float,
    listen: Listener,
    ground: Path,
    testbed: Testbed,
) -> tuple[Finished, float]:
    """Run a study; return its outcome, and the seconds that it has taken in all sessions.

    If it failed, in this session. An error that ends one study is stored in its Finished;
    Interrupted passes through.
    """
    began_s = testbed.clock.now_s()
    framework = plan.workload.framework
    try:
        result = run_study(plan, request, host, budget_s, overhead_s, listen, ground, testbed)
        outcome, taken_s = Finished(framework, plan.folder, result), result.seconds.wall
    except TuneError as error:
        outcome = Finished(framework, plan.folder, None, str(error), error.exit_code)
        taken_s = testbed.clock.now_s() - began_s
    listen(
        FrameworkEnds(framework, str(plan.folder), outcome.exit_code, outcome.error, outcome.result)
    )
    return outcome, taken_s


def run_study(
    plan: Plan,
    request: Request,
    host: Host,
    budget_s: float,
    overhead_s: float,
    listen: Listener,
    ground: Path,
    testbed: Testbed,
) -> Result:
    """Carry out or continue one study, and write its result.

    ground: the nearest folder that existed before; a study that is refused leaves nothing else.
    """
    with Store(plan.folder) as store:
        open_study(store, plan, request.command)
        sessions = store.all(SessionOpened)
        is_finished = store.is_finished
        session = SessionOpened(len(sessions) + 1, utc_now(), budget_s, request.command)
        if is_finished:  # rendered again: nothing of what was measured has changed
            session = sessions[-1]
            overhead_s = 0.0
        budget = Budget(
            session.budget_s,
            store.used_before_s + overhead_s,
            began_at_s=store.extended_at_s,
            kept_s=min(
                testbed.clock.writing_s, _WRITING_SHARE * (session.budget_s - store.extended_at_s)
            ),
            is_over=is_finished,
            clock=testbed.clock,
        )
        store.used_s = budget.used_s
        listen(_begins(store, plan, session))
        if not is_finished:  # describing the model has used some
            listen(TimeLeft(budget.left_s()))
        if is_finished:
            _say_again(store, plan, request, session, listen)
        elif not sessions and not store.all(EarlierNoted):  # a kill may have come in between
            for each in plan.earlier:
                ratios = each.log_ratios
                store.add(EarlierNoted(each.name, tuple(ratios), tuple(ratios.values())))
        plan = with_noted_bound(store, plan, request)
        study = study_of(store, plan, request, host, budget, session.number, listen, testbed)
        tell_losses(study, plan.folder)

        def write(study: Study) -> Result:
            """Write the result as far as it is known."""
            begun = sessions[0] if sessions else session
            context = _context(plan, request, host, session, begun.command)
            path = plan.folder / "result.json"
            result = msgspec.structs.replace(assemble(study, context), **_added(path))
            write_result(path, result)
            found = recommendations(result, host, plan.workload.card)
            write_recommendations(plan.folder, found, result.recommended_class)
            write_reports(plan.folder, result)
            return result

        if not is_finished:
            store.add(session)
            study = _measure_or_withdraw(
                study, plan, request, host, session.number, ground, testbed, write
            )
        result = write(study)
        if not is_finished:
            store.add(StudyFinished(result.verdict))
            _say_unsaid(store, plan, result, listen)
        listen(StudyEnds(plan.workload.label(), result.verdict, str(plan.folder)))
        return result


def _added(path: Path) -> dict[str, Any]:
    """Return what time-to-target and explain have added to a result that is written anew."""
    with contextlib.suppress(UsageError):  # their measurements are kept elsewhere, or made again
        known = read_result(path)
        return {"time_to_target": known.time_to_target, "why": known.why}
    return {}


def _begins(store: Store, plan: Plan, session: SessionOpened) -> StudyBegins:
    """Return the announcement of a study that is begun or continued."""
    ended = [
        record.ending.outcome
        for record in store.launches.values()
        if record.ending is not None
        and record.ending.outcome is not Outcome.INTERRUPTED
        and record.request.purpose is not Purpose.PACER
    ]
    return StudyBegins(
        workload=plan.workload.label(),
        folder=str(plan.folder),
        budget_s=session.budget_s,
        resumed_s=store.used_before_s,
        n_configurations=upper_size(plan.space),
        n_measured=sum(map(counts_as_measured, ended)),
        n_failed=len(ended) - sum(map(counts_as_measured, ended)),
    )


def _say_again(
    store: Store, plan: Plan, request: Request, session: SessionOpened, listen: Listener
) -> None:
    """Say that a finished study is rendered again, and how to go on with it."""
    command = request.command or session.command
    model, framework = plan.workload.model.label(), plan.workload.framework
    goes_on = going_on(command, model, framework, plan.folder, "10m")
    if not goes_on and not command.startswith("tune-framework"):
        goes_on = "the same call with extend='10m' in the place of budget"
    text = f"; to go on with it: {goes_on}" if goes_on else ""
    listen(Warned(f"this study is finished: nothing is measured{text}"))
    if changed := environment_changed(store, request):
        listen(Warned(changed))


def _say_unsaid(store: Store, plan: Plan, result: Result, listen: Listener) -> None:
    """Say the warnings that only the complete study shows; others were said when they came up.

    store: of a study that was measured in this session.
    """
    said = {*warnings_of(plan.facts), *(note.text for note in store.all(WarningNoted))}
    for text in result.warnings:
        if text not in said:
            listen(Warned(text))


def _context(
    plan: Plan, request: Request, host: Host, session: SessionOpened, begun_by: str
) -> Context:
    """begun_by: the command of the study's first session; empty in those of earlier versions."""
    return Context(
        host=host,
        profile=plan.profile.name,
        profile_matches=plan.profile_matches,
        workload=plan.workload,
        facts=plan.facts,
        numerics=request.restrictions.numerics,
        goal=request.goal,
        session=session,
        command=begun_by or session.command or request.command,
        environment=plan.environment,
        price_per_hour=request.price_per_hour,
    )


def _measure_or_withdraw(
    study: Study,
    plan: Plan,
    request: Request,
    host: Host,
    session: int,
    ground: Path,
    testbed: Testbed,
    publish: Callable[[Study], object],
) -> Study:
    """Measure; if the study is refused before anything was measured, remove it.

    publish: writes the result as far as it is known. Returns the study, which is another one if its
    latency bound had to be found first.
    """
    try:
        # the surrogate's matrices are small: several BLAS threads only wait for each other
        with threadpool_limits(limits=1, user_api="blas"):
            warn_about_the_environment(study, plan, request)
            _begin(study, plan, request, host, testbed)
            if plan.workload.means().is_served and plan.objective.slo is None:
                plan = bounded(study, plan, request, host, session, testbed)
                study = study_of(
                    study.store, plan, request, host, study.budget, session, study.listen, testbed
                )
            _measure(study, plan, publish)
            return study
    except NothingMeasured as error:
        study.store.add(StudyFailed(str(error)))
        raise
    except UsageError:
        if not study.store.launches:
            remove_empty_study(study.store, ground)
        raise
    finally:
        study.bench.close()
        _drop_weights(study)


def _drop_weights(study: Study) -> None:
    """Remove files that a session keeps for its own launches."""
    kept = weights_beside(study.store.reference_path)
    for path in (kept, draft_of(kept)):
        path.unlink(missing_ok=True)


def _begin(study: Study, plan: Plan, request: Request, host: Host, testbed: Testbed) -> None:
    """Warn of what is unreliable, and provide what every launch needs."""
    heard = study.search.heard()
    if heard.studies and not study.notes.is_done(Phase.EXPLORE):
        study.listen(TransferLoaded(heard.studies, heard.n_configurations))
    elif request.learn_from and not heard.studies:
        study.notes.warn(
            f"of {len(plan.earlier)} earlier {plan.workload.framework} studies below "
            "--learn-from, none measured anything that exists here: nothing is learnt"
        )
    warn_about_the_host(study, plan, host, testbed)
    study.store.check_room()
    _drop_weights(study)  # a session that was killed could not
    passed_s = study.budget.used_s() - study.store.used_before_s
    waiting = Deadline(study.budget.left_s(), study.listen, passed_s=passed_s)
    provide_reference(study, plan.workload, waiting, gpu_of(plan.workload.device, host), testbed)
    study.adopt_orphans()


def _measure(study: Study, plan: Plan, publish: Callable[[Study], object]) -> None:
    """The phases, in their order; each knows what an earlier session has done."""
    phases = [measure_baselines, explore, race, minimise, confirm, explain]
    if plan.design is not None:
        phases.insert(0, partial(measure_design, design=plan.design))
    Planner(study, lambda: publish(study)).run(phases)
