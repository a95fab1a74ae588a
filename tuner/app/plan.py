"""The plan: what is tuned, resolved for this host and not yet begun; shown by --dry-run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tuner.app.compatibility import (
    AUTO,
    candidate_frameworks,
    check_device,
    check_memory,
    choose_profile,
    frameworks_for,
    frameworks_meant,
    in_training,
    left_out,
    on_device,
)
from tuner.app.request import Request, callers_of, check_request, given_in, objective_of, trace_of
from tuner.errors import UsageError
from tuner.frameworks import FRAMEWORKS, OFFERED
from tuner.galleries import MODELS
from tuner.guidelines.prior import as_earlier
from tuner.host.identity import Host, fingerprint
from tuner.launchers.asking import Deadline
from tuner.launchers.describe import describe_model, find_model, find_program, find_service
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.record.configuration import Configuration
from tuner.record.events import Listener, Warned, unheard
from tuner.record.files import read_result, results_below
from tuner.record.guidelines import read_guidelines
from tuner.record.headers import without_names
from tuner.record.journal import DesignFixed, StudyOpened
from tuner.record.lines import check_folder, opened_in
from tuner.record.load import SCENARIOS, TRAINING, served_batches
from tuner.record.numerics import admitted
from tuner.record.objective import Objective
from tuner.record.outcome import Outcome
from tuner.record.result import Result
from tuner.record.workload import CPU, ModelCard, ModelFacts, ModelRef, Workload
from tuner.search.transfer import Earlier
from tuner.space.as_run import as_run
from tuner.space.baselines import Baseline, resolve_baselines
from tuner.space.design import Factors, resolve_design
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import gpu_of
from tuner.space.listing import describe
from tuner.space.overrides import warnings_of
from tuner.space.profile import Profile
from tuner.space.resolve import knob_ids, profile_matches, resolve_space, without_effect
from tuner.space.restrictions import Restrictions, check_known
from tuner.space.space import Space

_LONGEST_NAME = 120
METHOD = 3
"""Part of the identity: raise it when studies of two versions must not be mixed."""


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
    objective: Objective
    earlier: list[Earlier] = []
    environment: dict[str, str] = {}
    """The tuning variables that were set when the study was begun, or are set now if it was not."""
    design: DesignFixed | None = None
    """The designed part, if it was requested."""

    def launch_s(self) -> float:
        """Estimate the seconds of a launch without compilation, from the describing child."""
        facts = self.facts
        return 1.0 + facts.import_s + facts.build_s + 12 * facts.call_s + 3.0

    def least_launch_s(self) -> float:
        """Return the least seconds of a launch of the default: with its shortest slices.

        For a program that runs for 15 s, 45: one run to fill caches, and two that count.
        """
        facts = self.facts
        return facts.import_s + facts.build_s + 3 * facts.call_s

    def stand_in(self) -> Configuration | None:
        """Return settings under which a silent server answers; None if it answers without."""
        return Configuration.of(self.facts.answers_with) if self.facts.answers_with else None


def plan(
    request: Request,
    host: Host,
    listen: Listener = unheard,
    *,
    is_strict: bool = False,
    testbed: Testbed = THIS_HOST,
) -> list[Plan]:
    """Load the model and resolve the space, for every requested framework.

    listen: notified if a model takes long. is_strict: it must never take more than the budget.

    Raises UsageError for anything that cannot be carried out as written, and NothingMeasured if the
    model does not load within the budget.
    """
    check_request(request)
    began_s = testbed.clock.now_s()

    def waiting() -> Deadline:
        passed_s = testbed.clock.now_s() - began_s
        return Deadline(request.budget_s - passed_s, listen, is_strict, passed_s)

    if request.hardware != AUTO:  # what cannot be is said before a model is loaded
        check_device(choose_profile(request.hardware, host), host)
    if not is_strict and (request.program is not None or request.service is not None):
        least_s = max(FRAMEWORKS[name].least_budget_s for name in OFFERED)
        _check_seconds(request.budget_s, least_s, "a framework takes", given_in(request))
    ref, card, facts = _find(request, waiting(), testbed)
    if SCENARIOS[request.scenario].mode == TRAINING:
        card = in_training(card)
    if request.tolerance is not None:
        card = _with_tolerance(card, request.tolerance)
    in_question = candidate_frameworks(request, card)
    profile = choose_profile(request.hardware, host, request.device, in_question)
    check_device(profile, host)
    is_chosen = request.hardware == AUTO and request.device is None
    if is_chosen and (reason := left_out(profile, host, in_question)):
        listen(Warned(reason))
    card = on_device(card, profile.device)
    check_memory(card, host, profile.device)
    frameworks = frameworks_for(request, card, profile.device)
    if not is_strict:
        check_budget(request.budget_s, frameworks, given_in(request))
    meant = frameworks_meant(request, card, frameworks)
    scenario = SCENARIOS[request.scenario]
    known = knob_ids(profile, meant, card.form, scenario.mode, is_served=scenario.is_served)
    check_known(request.restrictions, known)
    batch = _only_batch(request, card)
    if batch is not None:
        card = _at_batch(card, batch, request.restrictions)
        ref = msgspec.structs.replace(ref, batch=batch)  # whatever else it states is never called
    elif scenario.is_served:  # a request is one sample, however many are answered together
        batches = served_batches(max(card.batches))
        card = msgspec.structs.replace(card, reference_batch=1, batches=batches)
    several = len(frameworks) > 1
    plans = [
        _plan_one(
            request,
            host,
            profile,
            ref,
            card,
            framework,
            waiting(),
            facts.get(framework),
            listen,
            testbed,
            several=several,
        )
        for framework in frameworks
    ]
    _refuse_without_effect(plans, request.restrictions)
    return plans


def _find(
    request: Request, waiting: Deadline, testbed: Testbed
) -> tuple[ModelRef, ModelCard, dict[str, ModelFacts]]:
    """Find what is tuned; facts by framework, if something was started to examine it."""
    if request.program is not None:
        return find_program(request.program, waiting, testbed)
    if (served := request.service) is not None:
        return find_service(
            served.command, served.url, served.requests, served.headers, waiting, testbed
        )
    ref, card = find_model(
        request.model,
        MODELS,
        inputs=request.inputs,
        allows_pickle=request.allows_pickle,
        batch_dim=request.batch_dim,
        waiting=waiting,
        testbed=testbed,
    )
    return ref, card, {}


def check_budget(budget_s: float, frameworks: Iterable[str], given: str = "--budget") -> None:
    """Raise UsageError for a budget that ends before each framework has measured something.

    given: the option that grants it.
    """
    entries = [FRAMEWORKS[name] for name in frameworks]
    names = " and ".join(entry.title for entry in entries if entry.least_budget_s)
    names += " takes" if len(entries) == 1 else " takes, for each,"
    _check_seconds(budget_s, sum(entry.least_budget_s for entry in entries), names, given)


def _check_seconds(budget_s: float, least_s: float, import_takes: str, given: str) -> None:
    if budget_s < least_s:
        raise UsageError(
            f"{given} {budget_s:g}s is too short to measure anything: to import {import_takes} up "
            f"to 20 s, and the default is launched after that; give at least {least_s:.0f}s, and "
            "some minutes for a verdict"
        )


def _refuse_without_effect(plans: list[Plan], restrictions: Restrictions) -> None:
    """Raise UsageError for options that have no effect in any of the frameworks."""
    found = [without_effect(plan.space, restrictions) for plan in plans]
    for wanted, why in found[0].items():
        if all(wanted in other for other in found):
            raise UsageError(f"{wanted} has no effect here: {why}")


def _with_tolerance(card: ModelCard, tolerance: float) -> ModelCard:
    """Return the card of a model with another drift allowed to reduced precision."""
    if card.accuracy_loss is not None:
        raise UsageError(
            f"--tolerance {tolerance}: the accuracy() of {card.name} decides over reduced "
            "precision; set accuracy_loss in its Model"
        )
    return msgspec.structs.replace(card, tolerance=tolerance)


def _only_batch(request: Request, card: ModelCard) -> int | None:
    """Return the one batch size that is tuned; None if the batch is a setting."""
    scenario, fixed = SCENARIOS[request.scenario], request.restrictions.fixed.get(BATCH)
    if request.batch is not None or scenario.mode != TRAINING:
        return scenario.batch if request.batch is None else request.batch
    return fixed if isinstance(fixed, int) else max(card.batches)


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
    waiting: Deadline,
    facts: ModelFacts | None,
    listen: Listener,
    testbed: Testbed,
    *,
    several: bool,
) -> Plan:
    """Resolve one framework's study. facts: None of a model that has to be described first."""
    workload = Workload(
        ref,
        framework,
        request.scenario,
        card,
        request.seed,
        device=profile.device,
        mode=SCENARIOS[request.scenario].mode,
        callers=callers_of(request),
    )
    objective = objective_of(request)
    gpu = gpu_of(profile.device, host)
    if facts is None:
        facts = describe_model(ref, framework, request.seed, waiting, gpu, testbed, workload.mode)
    for text in warnings_of(facts):
        listen(Warned(text))
    space = resolve_space(profile, host, workload, facts, request.restrictions)
    baselines = resolve_baselines(
        profile, host, workload, facts, space, admitted(request.restrictions.numerics)
    )
    factors = Factors(profile, host, workload, facts, space)
    parts = {
        "method": str(METHOD),
        "objective": fingerprint(objective.identity()),
        "hardware": fingerprint(_hardware(host, profile.device)),
        "versions": fingerprint({**host.versions, **facts.versions}),
        "workload": fingerprint(_identity(workload)),
        "space": fingerprint([describe(space), [msgspec.to_builtins(b) for b in baselines]]),
    }
    design = None
    if (trace := trace_of(request)) is not None:
        parts["trace"] = trace.sha256
    if request.designed:  # else studies are what they were
        design = resolve_design(profile, factors, space)
        parts["design"] = fingerprint(msgspec.to_builtins(design))
    identity = hashlib.sha256("".join(f"{k}={v}\n" for k, v in parts.items()).encode()).hexdigest()
    folder = request.out / framework if request.out and several else request.out
    below = request.below or Path("reports")
    folder = folder or below / f"{safe_name(workload.label())}-{identity[:8]}"
    environment = _begun_in(request, folder, identity)
    own = as_run(environment, host, workload, space, baselines)
    return Plan(
        workload=workload,
        facts=facts,
        profile=profile,
        profile_matches=profile_matches(profile, host),
        space=space,
        baselines=[*baselines, own] if own else baselines,
        identity=identity,
        identity_parts=parts,
        folder=folder,
        objective=objective,
        earlier=[
            *earlier_studies(request.learn_from, workload, objective.metric, folder),
            *_by_rules(request.guidelines, workload, facts, host, factors, identity),
        ],
        environment=environment,
        design=design,
    )


def _by_rules(
    path: Path | None,
    workload: Workload,
    facts: ModelFacts,
    host: Host,
    factors: Factors,
    identity: str,
) -> list[Earlier]:
    """Return the prediction of a file's rules, in the form of an earlier study."""
    if path is None:
        return []
    found = as_earlier(read_guidelines(path), workload, facts, host, factors, identity)
    return [] if found is None else [found]


def _hardware(host: Host, device: str) -> dict[str, Any]:
    """Return the hardware that changes results: without its cards if the CPU computes."""
    identity = {k: v for k, v in host.identity().items() if k != "versions"}
    return identity if device != CPU else {**identity, "gpus": []}


_ADDED = ("batch", "batch_dim")
"""Fields that older versions did not have: their meaning was None."""


def _identity(workload: Workload) -> dict[str, Any]:
    """Return what distinguishes two workloads; as older versions wrote it if nothing is new."""
    found: dict[str, Any] = msgspec.to_builtins(workload)
    headers = workload.model.headers
    found["model"].pop("headers")
    for part in (found["model"], found["card"]):
        for name in _ADDED:
            if part.get(name) is None:
                part.pop(name, None)
    return {**found, "headers": without_names(headers)} if headers else found


def _begun_in(request: Request, folder: Path, identity: str) -> dict[str, str]:
    """Return the tuning variables of a study's first session, measured as a baseline.

    They are not part of the identity: the same command from another shell continues the study.
    """
    opened = opened_in(folder) if request.environment is not None else None
    if opened is None or opened.identity != identity:
        return request.environment or {}
    return opened.environment or {}


def earlier_studies(
    folders: Iterable[Path], workload: Workload, metric: str, own: Path
) -> list[Earlier]:
    """Return every other study of the same kind below some folders, each once.

    Of the same framework, metric and load; of servers, those whose default was in time.

    Raises UsageError for a folder without any, or with none that can be read.
    """
    found: dict[Path, Earlier] = {}
    for folder in folders:
        readable, why = 0, ""
        for path in results_below(folder, "--learn-from "):
            place = path.parent.resolve()
            if place == own.resolve():
                readable += 1
                continue
            try:
                result = read_result(path)
            except UsageError as error:
                why = str(error)
                continue
            readable += 1
            found_for = (result.framework, result.objective.metric, result.scenario, result.callers)
            wanted = (workload.framework, metric, workload.scenario, workload.callers)
            if found_for == wanted and result.default_meets_slo is not False:
                name = f"{result.model} ({path.parent})"
                found[place] = Earlier(name, _log_ratios(result))
        if not readable:
            raise UsageError(f"--learn-from {folder}: {why}")
    return list(found.values())


def _log_ratios(result: Result) -> dict[Configuration, float]:
    return {
        Configuration.of(trial.configuration): math.log(trial.search_ratio)
        for trial in result.trials
        if trial.search_ratio and trial.search_ratio > 0 and trial.outcome is Outcome.MEASURED
    }


def safe_name(name: str) -> str:
    """Return a name as that of a folder."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:_LONGEST_NAME]


def difference(opened: StudyOpened, plan: Plan) -> str:
    """Name the parts of the identity in which a begun study differs from a plan."""
    if opened.identity_parts.get("method") != plan.identity_parts["method"]:
        return f"how this tool measures (the study is of version {opened.tool_version})"
    differs = [
        name
        for name, value in plan.identity_parts.items()
        if opened.identity_parts.get(name) != value
    ]
    return ", ".join(differs) or "its identity"


def outlook(plan: Plan) -> str:
    """Say what the plan's folder holds and what the same command would do there.

    Raises UsageError for a folder in which no study can be.
    """
    check_folder(plan.folder)
    opened = opened_in(plan.folder)
    if opened is None:
        return f"the study would lie in {plan.folder}"
    if opened.identity == plan.identity:
        return (
            f"{plan.folder} holds this study already: the same command resumes it, or renders "
            "it again; --extend and a larger --budget continue a finished one"
        )
    return (
        f"{plan.folder} holds another study ({difference(opened, plan)} changed): "
        "name another folder with --out"
    )
