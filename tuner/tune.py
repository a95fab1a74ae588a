"""The run, as a list of verbs: probe, load, resolve, then each phase of the study, then write."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import msgspec

from tuner import __version__
from tuner.errors import Interrupted, StudyConflict, TuneError, UsageError
from tuner.galleries import MODELS, SEARCH_SPACES
from tuner.host.identity import Host, fingerprint, probe
from tuner.host.libraries import installed_frameworks, missing_framework
from tuner.measurement.bench import CONFIRM_PASSES, Bench, n_slices
from tuner.measurement.describe import describe_model, find_model, find_program, make_reference
from tuner.output.assemble import Context, assemble
from tuner.output.recommended import write_recommendations
from tuner.output.report import write_reports
from tuner.record.events import Listener, StudyBegins, StudyEnds, Warned
from tuner.record.files import write_result
from tuner.record.journal import SessionOpened, StudyFinished, StudyOpened, WinnerClass
from tuner.record.result import Result
from tuner.record.store import Store, opened_in
from tuner.record.workload import ModelCard, ModelFacts, ModelRef, Workload
from tuner.search.trials import Trials
from tuner.space.baselines import Baseline, resolve_baselines
from tuner.space.catalogue import BATCH
from tuner.space.profile import Profile, gallery, load_profile
from tuner.space.resolve import knob_ids, profile_matches, resolve_space, without_effect
from tuner.space.restrictions import Restrictions, check_known
from tuner.space.space import Space
from tuner.study.baselines import measure_baselines
from tuner.study.budget import Budget
from tuner.study.confirm import confirm
from tuner.study.explore import explore
from tuner.study.ledger import Ledger
from tuner.study.minimise import minimise
from tuner.study.race import race
from tuner.study.study import Study

METHOD = 1
"""Part of the identity: raise it when studies of two versions must not be mixed."""


class Request(msgspec.Struct, frozen=True):
    """What is to be tuned, as typed."""

    model: str
    """Empty where a whole program is tuned."""
    program: str | None = None
    hardware: str = "auto"
    frameworks: tuple[str, ...] = ()
    budget_s: float = 600.0
    out: Path | None = None
    batch: int | None = None
    inputs: Path | None = None
    tolerance: float | None = None
    allows_pickle: bool = False
    seed: int = 0
    restrictions: Restrictions = Restrictions()
    command: str = ""


class Plan(msgspec.Struct, frozen=True):
    """One framework's study, resolved and not yet begun: what --dry-run shows."""

    workload: Workload
    facts: ModelFacts
    profile: Profile
    profile_matches: bool
    space: Space
    baselines: list[Baseline]
    identity: str
    identity_parts: dict[str, str]
    folder: Path


class Finished(msgspec.Struct, frozen=True):
    """What came of one framework: a result, or the error that ended its study."""

    framework: str
    folder: Path
    result: Result | None
    error: str = ""
    exit_code: int = 0


def plan(request: Request, host: Host) -> list[Plan]:
    """Load the model and resolve the space, for every framework that is asked for.

    Raises UsageError for anything that cannot be carried out as written.
    """
    profile = choose_profile(request.hardware, host)
    if request.program is not None:
        ref, card = find_program(request.program)
    else:
        ref, card = find_model(
            request.model, MODELS, inputs=request.inputs, allows_pickle=request.allows_pickle
        )
    if request.tolerance is not None:
        if card.accuracy_loss is not None:
            raise UsageError(
                f"--tolerance {request.tolerance}: the accuracy() of {ref.name} decides over "
                "reduced precision; set accuracy_loss in its Model"
            )
        card = msgspec.structs.replace(card, tolerance=request.tolerance)
    frameworks = _frameworks(request, card)
    check_known(request.restrictions, knob_ids(profile, frameworks, card.form))
    if request.batch is not None:
        card = _at_batch(card, request.batch, request.restrictions)
    several = len(frameworks) > 1
    plans = [
        _plan_one(request, host, profile, ref, card, framework, several=several)
        for framework in frameworks
    ]
    _refuse_without_effect(plans, request.restrictions)
    return plans


def _refuse_without_effect(plans: list[Plan], restrictions: Restrictions) -> None:
    """Raise UsageError for what was asked for and has no effect in any of the frameworks."""
    found = [without_effect(plan.space, restrictions) for plan in plans]
    for asked, why in found[0].items():
        if all(asked in other for other in found):
            raise UsageError(f"{asked} has no effect here: {why}")


def choose_profile(name: str, host: Host) -> Profile:
    """Load a hardware profile; "auto" is the shipped one that names this host."""
    if name == "auto":
        for candidate in gallery(SEARCH_SPACES):
            profile = load_profile(candidate, SEARCH_SPACES)
            if profile.matches and profile_matches(profile, host):
                return profile
    return load_profile(name, SEARCH_SPACES)


def _frameworks(request: Request, card: ModelCard) -> tuple[str, ...]:
    """Return the frameworks to tune: those asked for, else every installed one with the model."""
    installed = installed_frameworks()
    for name in request.frameworks:
        if name not in card.frameworks:
            raise UsageError(
                f"{request.model or request.program} is not there for {name}; it is there for "
                f"{', '.join(card.frameworks)}"
            )
        if name not in installed:
            raise missing_framework(name)
    found = request.frameworks or tuple(f for f in card.frameworks if f in installed)
    if not found:
        raise missing_framework(card.frameworks[0])
    return found


def _at_batch(card: ModelCard, batch: int, restrictions: Restrictions) -> ModelCard:
    """Return the card of a model that is tuned at one batch size only."""
    fixed = restrictions.fixed.get(BATCH, batch)
    if fixed != batch:
        raise UsageError(f"--batch {batch} contradicts --fix {BATCH}={fixed}; give one of them")
    return msgspec.structs.replace(card, reference_batch=batch, batches=(batch,))


def _plan_one(
    request: Request,
    host: Host,
    profile: Profile,
    ref: ModelRef,
    card: ModelCard,
    framework: str,
    *,
    several: bool,
) -> Plan:
    workload = Workload(ref, framework, "offline", card, request.seed)
    facts = describe_model(ref, framework, request.seed)
    space = resolve_space(profile, host, workload, facts, request.restrictions)
    baselines = resolve_baselines(profile, host, workload, facts, space)
    parts = {
        "method": str(METHOD),
        "hardware": fingerprint({k: v for k, v in host.identity().items() if k != "versions"}),
        "versions": fingerprint({**host.versions, **facts.versions}),
        "workload": fingerprint(msgspec.to_builtins(workload)),
        "space": fingerprint([space.describe(), [msgspec.to_builtins(b) for b in baselines]]),
    }
    identity = hashlib.sha256("".join(f"{k}={v}\n" for k, v in parts.items()).encode()).hexdigest()
    folder = request.out / framework if request.out and several else request.out
    return Plan(
        workload=workload,
        facts=facts,
        profile=profile,
        profile_matches=profile_matches(profile, host),
        space=space,
        baselines=baselines,
        identity=identity,
        identity_parts=parts,
        folder=folder or Path("reports") / f"{_safe(workload.label())}-{identity[:8]}",
    )


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


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
        started = time.monotonic()
        # what the earlier ones took, in all their sessions: a resumed study has the same share
        budget_s = max(1.0, (request.budget_s - spent_s) / (len(plans) - i))
        try:
            result = run_study(each, request, host, budget_s, overhead_s, listen)
            finished.append(Finished(each.workload.framework, each.folder, result))
            spent_s += result.seconds.wall
        except Interrupted:
            raise
        except TuneError as error:
            finished.append(
                Finished(each.workload.framework, each.folder, None, str(error), error.exit_code)
            )
            spent_s += time.monotonic() - started
    return finished


def run_study(
    plan: Plan, request: Request, host: Host, budget_s: float, overhead_s: float, listen: Listener
) -> Result:
    """Carry out one study, or go on with it, and write what it found."""
    with Store(plan.folder) as store:
        _open(store, plan)
        session = len(store.all(SessionOpened)) + 1
        is_finished = bool(store.all(StudyFinished))
        budget = Budget(budget_s, store.used_before_s + (0.0 if is_finished else overhead_s))
        store.used_s = budget.used_s
        listen(
            StudyBegins(
                workload=plan.workload.label(),
                folder=str(plan.folder),
                budget_s=budget_s,
                resumed_s=store.used_before_s,
                n_configurations=plan.space.upper_size(),
            )
        )
        if is_finished and budget_s > 1.01 * store.all(SessionOpened)[-1].budget_s:
            listen(
                Warned(
                    "this study is finished and is rendered again; to measure longer, name another "
                    "folder with --out"
                )
            )
        study = _assemble_study(store, plan, request, host, budget, session, listen)
        context = Context(
            host=host,
            profile=plan.profile.name,
            profile_matches=plan.profile_matches,
            workload=plan.workload,
            facts=plan.facts,
            numerics=request.restrictions.numerics,
            budget_s=budget_s,
            command=request.command,
        )
        if not is_finished:
            store.add(SessionOpened(session, _now(), budget_s))
            try:
                _measure(study, plan, host)
            finally:
                study.bench.close()
        result = assemble(study, context)
        write_result(plan.folder / "result.json", result)
        write_recommendations(plan.folder, result, host)
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
    passes = n_slices(CONFIRM_PASSES, plan.workload.card)
    ledger = Ledger(store, reference, batches, passes)
    bench = Bench(
        store,
        host,
        plan.workload,
        plan.facts,
        listen,
        session=session,
        seed=request.seed,
        seconds_left=budget.left_s,
    )
    trials = Trials(plan.folder / "study.db", plan.space, ledger.tried, request.seed)
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
    )


def _measure(study: Study, plan: Plan, host: Host) -> None:
    """The phases, in their order; each knows what an earlier session has done."""
    _warn_about_the_host(study, plan, host)
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


def _warn_about_the_host(study: Study, plan: Plan, host: Host) -> None:
    if not plan.profile_matches:
        study.warn(
            f"--hw {plan.profile.name} names {plan.profile.title}; this host is "
            f"{host.processor.model} ({host.processor.vendor}, {host.processor.arch}): its "
            "formulas are resolved for what is here"
        )
    if plan.profile.name == "cuda":
        study.warn("the knobs of the GPU are not searched by this version: the CPU side is tuned")
    quota = host.limits.quota_cores
    if quota is not None and quota < len(host.cpus):
        study.warn(
            f"the cgroup grants {quota:g} cores of {len(host.cpus)} CPUs: more threads than that "
            "are throttled"
        )


def _open(store: Store, plan: Plan) -> None:
    """Begin the folder's study, or make sure that it is this one."""
    opened = store.opened
    if opened is None:
        store.add(StudyOpened(plan.identity, plan.identity_parts, _now(), __version__))
        return
    if opened.identity == plan.identity:
        return
    raise StudyConflict(
        f"{plan.folder} holds another study: {_difference(opened, plan)} changed since it was "
        "begun; name another folder with --out, or move this one away"
    )


def _difference(opened: StudyOpened, plan: Plan) -> str:
    """Name the parts of the identity in which a begun study differs from a plan."""
    differs = [
        name
        for name, value in plan.identity_parts.items()
        if opened.identity_parts.get(name) != value
    ]
    return ", ".join(differs) or "its identity"


def outlook(plan: Plan) -> str:
    """Say what the plan's folder holds and what running the same command would do there."""
    opened = opened_in(plan.folder)
    if opened is None:
        return f"the study would lie in {plan.folder}"
    if opened.identity == plan.identity:
        return (
            f"{plan.folder} holds this study already: the same command goes on with it, or renders "
            "it again"
        )
    return (
        f"{plan.folder} holds another study ({_difference(opened, plan)} changed): "
        "name another folder with --out"
    )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
