"""A recommendation with no search: what a study found on such a host, or what the rules expect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.errors import StudyConflict, UsageError
from tuner.findings.recommendation import placement_of, portable, setting_of
from tuner.galleries import GUIDELINES
from tuner.host.identity import Host, probe
from tuner.insight.combining import best_combination
from tuner.insight.facts import HOST_FACTS, facts_of, host_in_words
from tuner.insight.predict import (
    SURE,
    Known,
    known_by_itself,
    known_of,
    settable,
)
from tuner.output.guidelines import measured_elsewhere, sentence, where_it_failed
from tuner.output.recommended import write_recommendations
from tuner.plan import Plan, plan
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.files import make_folder
from tuner.record.guidelines import Fact, Found, Guidelines, StudyOf, read_guidelines
from tuner.record.interval import Interval
from tuner.record.journal import WinnerClass
from tuner.record.lines import opened_in
from tuner.record.output_check import MAX_DRIFT_REDUCED, MAX_DRIFT_SAME
from tuner.record.recommendation import (
    RECOMMENDATION_VERSION,
    Expected,
    Recommendation,
    RecommendedHost,
    RecommendedWorkload,
    ShippedClaim,
    Tolerances,
)
from tuner.request import Request, check_request
from tuner.space.baselines import resolve_one
from tuner.space.catalogue import allowed_in, describe, fault_of_value, is_known
from tuner.space.design import Factors
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import plan_launch

PATIENCE_S = 600.0
"""In which a model must have loaded."""
_NOTHING_GAINS = f"nothing that can be set here gains with a probability of {SURE:.0%}"


class Advised(msgspec.Struct, frozen=True):
    """What is to be set in a class of winners, and what is expected of it."""

    verdict: Expected
    configuration: Configuration
    speedup: Interval | None
    rests_on: list[str]
    """In words: rules, or a study."""
    studies: list[str] = []
    """The names of those behind it."""


class Recommended(msgspec.Struct, frozen=True):
    """What one framework's folder holds."""

    framework: str
    folder: Path
    shipped: WinnerClass
    advised: dict[WinnerClass, Advised]
    notes: list[str]
    """What whoever uses it should know."""


def read_rules(path: Path | None) -> Guidelines:
    """Read a guidelines.json, or that of a folder; the shipped one for None.

    Raises UsageError where there is none.
    """
    if path is None and not GUIDELINES.exists():
        raise UsageError(
            "no guidelines ship with this version: distil your own studies with tune-framework "
            "guidelines DIR..., and name their folder with --guidelines"
        )
    return read_guidelines(path or GUIDELINES)


def recommend(request: Request, guidelines: Guidelines, listen: Listener) -> list[Recommended]:
    """Build the model, ask the guidelines, and write what they say, for every framework.

    Raises UsageError where they say nothing of a framework, else as plan does.
    """
    check_request(request)
    host = probe()
    _check_frameworks(request.frameworks, guidelines)  # before a model is built
    plans = plan(request, host, listen)
    _check_frameworks([each.workload.framework for each in plans], guidelines)
    is_reduced = request.restrictions.numerics == "reduced"
    shipped = WinnerClass.REDUCED if is_reduced else WinnerClass.SAME
    folders = [_folder(each, is_given=request.out is not None) for each in plans]
    return [
        _recommend_one(each, folder, guidelines, host, shipped)
        for each, folder in zip(plans, folders, strict=True)
    ]


def _check_frameworks(frameworks: Iterable[str], guidelines: Guidelines) -> None:
    known = {study.framework for study in guidelines.studies}
    for framework in frameworks:
        if framework not in known:
            told = ", ".join(sorted(known)) or "no framework"
            raise UsageError(
                f"the guidelines are of {told}, and say nothing of {framework}: tune it, or leave "
                "it out with --framework"
            )


def _folder(plan: Plan, *, is_given: bool) -> Path:
    """Return where a recommendation goes: beside the folder that a study would have."""
    if not is_given:
        return plan.folder.with_name(f"{plan.folder.name}-recommended")
    if opened_in(plan.folder) is not None:
        raise StudyConflict(
            f"{plan.folder} holds a study, which is worth more: name another folder with --out"
        )
    return plan.folder


def _recommend_one(
    plan: Plan, folder: Path, guidelines: Guidelines, host: Host, shipped: WinnerClass
) -> Recommended:
    workload = plan.workload
    facts = facts_of(workload.card, plan.facts, host.identity())
    known = known_of(guidelines, workload.framework, facts)
    notes = []
    if unlike := [name for name in known.strange if name not in HOST_FACTS]:
        told = ", ".join(f"{name} {facts[name]}" for name in unlike)
        notes.append(f"unlike all that was measured ({told}): only what holds of every kind is set")
    here = host_in_words(host.identity())
    if here not in guidelines.hosts:
        notes.append(
            f"measured on {'; '.join(guidelines.hosts)}: what it gains on {here} is not known"
        )
    factors = Factors(plan.profile, host, workload, plan.facts, plan.space)
    notes += [f"{name} cannot be set here: {why}" for name, why in factors.left_out.items()
              if name in known.rules]  # fmt: skip
    untold = {entry.name for entry in factors.here} - set(settable(known, factors.here))
    if cut := sorted(untold & known.rules.keys()):
        notes.append(f"{', '.join(cut)}: how the cores are shared out was measured on hosts with "
                     "other numbers of them: tune it")  # fmt: skip
    settable_here = {entry.name for entry in factors.here}
    for there in dict.fromkeys(known.elsewhere.values()):
        names = [n for n, host in known.elsewhere.items() if host == there and n in settable_here]
        if names:
            notes.append(f"{', '.join(names)}: measured on {there} alone, so not set on {here}: "
                         "tune it")  # fmt: skip
    same = [study for study in guidelines.studies if _is_same(study, plan, facts, host)]
    same.sort(key=lambda study: study.created, reverse=True)
    failed = [each for study in same for each in study.failed]
    advised = {
        klass: _looked_up(same, klass, plan, host)
        or _by_its_effects(same, klass, factors, known, guidelines, failed)
        or _predicted(factors, known, klass, guidelines, here, failed)
        for klass in WinnerClass
    }
    ready = {klass: _to_ship(plan, host, klass, advised[klass], notes) for klass in WinnerClass}
    make_folder(folder)
    write_recommendations(folder, ready, shipped)
    return Recommended(workload.framework, folder, shipped, advised, notes)


def _is_same(study: StudyOf, plan: Plan, facts: Mapping[str, Fact], host: Host) -> bool:
    """Tell whether a study was of this very model, at this batch, on such a host."""
    workload = plan.workload
    is_model = (study.model, study.parameters_sha256) == (
        workload.model.label(),
        plan.facts.parameters_sha256,
    )
    alike = all(study.facts.get(name) == facts.get(name) for name in ("batch", "macs_per_call"))
    is_kind = (study.framework, study.family) == (workload.framework, workload.card.family)
    return is_model and alike and is_kind and study.host == host_in_words(host.identity())


def _looked_up(
    studies: Iterable[StudyOf], klass: WinnerClass, plan: Plan, host: Host
) -> Advised | None:
    """Return what the first study that decided found; None if none did, or it cannot be here.

    Where none decided on this class, the surest winner of a narrower one.
    """
    narrower: list[tuple[float, Advised]] = []
    for study in studies:
        framework = plan.workload.framework
        there = f"the study {study.name} of {study.created[:10]} on {study.host}"
        confirmed = (
            f"{there}, with {framework} {study.versions.get(framework, '')}: confirmed there"
        )
        own = study.winners.get(klass)
        if own is not None and own.verdict == "keep_default":
            told = f"{there}: nothing that was tried is faster"
            return Advised("looked_up", Configuration(), None, [told], [study.name])
        for name, found in study.winners.items():
            made = _same_here(found, klass, plan, host) if found.verdict == "faster" else None
            if made is None or found.speedup is None:
                continue
            if name == klass:
                return Advised("looked_up", made, found.speedup, [confirmed], [study.name])
            told = f"{confirmed} as {name}; of {klass} it decided nothing more"
            less = Advised("looked_up", made, found.speedup, [told], [study.name])
            narrower.append((found.speedup.low, less))
    is_open = all(s.winners[klass].verdict == "ambiguous" for s in studies if klass in s.winners)
    return max(narrower, key=lambda each: each[0])[1] if narrower and is_open else None


def _same_here(found: Found, klass: WinnerClass, plan: Plan, host: Host) -> Configuration | None:
    """Return what a study's winner is here; None where it is not the same, or is none."""
    values = found.configuration.items()
    if found.speedup is None or any(not is_known(k) or fault_of_value(k, v) for k, v in values):
        return None
    made = resolve_one("", "", dict(found.configuration), host, plan.workload, plan.space, ())
    is_as_there = made.is_applicable and not made.dead_settings and not made.substituted
    return made.configuration if is_as_there and allowed_in(klass, made.configuration) else None


def _by_its_effects(
    studies: Sequence[StudyOf],
    klass: WinnerClass,
    factors: Factors,
    known: Known,
    guidelines: Guidelines,
    failed: Sequence[Sequence[str]],
) -> Advised | None:
    """Return what the designed part of a study of this very model, on such a host, makes sure.

    But for what failed there, or holds it. None where there is no such study.
    """
    study = next((study for study in studies if study.effects), None)
    if study is None:
        return None
    freedom = guidelines.launch_freedom[study.fingerprint]
    there = f"the study {study.name} of {study.created[:10]} on {study.host}"
    told = [f"{there}, by the effects in its designed part:"]
    best = best_combination(factors, known_by_itself(study, freedom, known), klass, failed)
    if best is None:
        return Advised("looked_up", Configuration(), None, [*told, _NOTHING_GAINS], [study.name])
    configuration, prediction = best
    told += [sentence(rule).partition(" on average")[0] for rule in prediction.rules]
    return Advised("looked_up", configuration, prediction.speedup, told, [study.name])


def _predicted(
    factors: Factors,
    known: Known,
    klass: WinnerClass,
    guidelines: Guidelines,
    here: str,
    failed: Sequence[Sequence[str]],
) -> Advised:
    """Return the combination that is expected to be fastest of those that can be set here.

    here: the host, in words.
    """
    best = best_combination(factors, known, klass, failed)
    if best is None:
        why = "no rule about such a model has families enough behind it"
        if known.elsewhere:
            why = "all that is known of such a model was measured on one other host"
        return Advised("predicted", Configuration(), None, [_NOTHING_GAINS if known.rules else why])
    configuration, prediction = best
    told = [sentence(r) + measured_elsewhere(r, guidelines, here) for r in prediction.rules]
    told += [
        f"{each.setting} failed in {where_it_failed(each)}"
        for each in guidelines.failures
        if each.framework == factors.framework and each.setting in prediction.factors
    ]
    studies = sorted({name for rule in prediction.rules for name in rule.studies})
    return Advised("predicted", configuration, prediction.speedup, told, studies)


def _to_ship(
    plan: Plan, host: Host, klass: WinnerClass, advised: Advised, notes: Iterable[str]
) -> Recommendation:
    configuration, workload = advised.configuration, plan.workload
    plans = plan_launch(configuration, host, workload.device)
    environment, packages = portable(plans[0].environment, host)
    reference = workload.card.reference_batch
    reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
    return Recommendation(
        schema_version=RECOMMENDATION_VERSION,
        winner_class=str(klass),
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
            rests_on=[*advised.rests_on, *(f"note: {note}" for note in notes)],
            studies=advised.studies,
        ),
        tolerances=Tolerances("reduced", MAX_DRIFT_REDUCED)
        if reduced
        else Tolerances("same", MAX_DRIFT_SAME),
        versions={**host.versions, **plan.facts.versions},
        environment=environment,
        settings=[setting_of(knob, value) for knob, value in configuration.settings],
        placements=[placement_of(each) for each in plans],
        packages=packages,
    )
