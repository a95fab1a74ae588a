"""Put a study's result together: everything in it is computed from the store."""

from __future__ import annotations

import msgspec

from tuner.analysis.baselines import baseline_section, over_as_run, over_best_baseline
from tuner.analysis.seconds import seconds, seconds_by_phase, shares
from tuner.analysis.sections import (
    confirmation_section,
    designed_section,
    learnt_from,
    noise_section,
    timeline,
    trials,
    unexplored_bound,
)
from tuner.analysis.serving import default_meets, without_speedups
from tuner.analysis.warnings import study_warnings
from tuner.analysis.winners import (
    default_section,
    faster_not_shipped,
    recommended_class,
    winner_section,
)
from tuner.host.identity import Host
from tuner.record.journal import Phase, PhaseDone, SessionOpened, StudyOpened
from tuner.record.numerics import Numerics
from tuner.record.result import (
    SCHEMA_VERSION,
    HostSection,
    ModelInput,
    ModelSection,
    Result,
)
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import ModelFacts, Workload
from tuner.space.overrides import warnings_of
from tuner.study.confirm import make_claims
from tuner.study.study import Study
from tuner.version import __version__


class Context(msgspec.Struct, frozen=True):
    """What the result states about the run besides the study itself."""

    host: Host
    profile: str
    profile_matches: bool
    workload: Workload
    facts: ModelFacts
    numerics: Numerics
    goal: str
    session: SessionOpened
    """The last that measured."""
    command: str
    """The options that the study was begun with."""
    environment: dict[str, str] = {}
    """The tuning variables that were set when it was begun."""
    price_per_hour: float | None = None


def assemble(study: Study, context: Context) -> Result:
    """Return the result of a study, complete or as far as it got."""
    store, evaluation = study.store, study.evaluation
    claims = make_claims(study)
    winner_class = recommended_class(claims, context.numerics)
    recommended = claims.claim(winner_class)
    winners = {k: winner_section(study, claims, k) for k in WinnerClass}
    best, over_best = over_best_baseline(study, claims, recommended)
    opened = store.opened
    assert opened is not None
    card = context.workload.card
    wall_s = study.budget.used_s()
    phases = {str(note.phase): note.reason for note in store.all(PhaseDone)}
    meets = default_meets(claims, is_silent=evaluation.default_is_silent)
    found = Result(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        created=context.session.started,
        identity=opened.identity,
        model=context.workload.model.label(),
        model_title=card.title,
        n_parameters=context.facts.n_parameters,
        framework=context.workload.framework,
        scenario=context.workload.scenario,
        reference_batch=card.reference_batch,
        batches=list(evaluation.batches),
        objective=evaluation.objective,
        host=_host(context, opened),
        versions={**context.host.versions, **context.facts.versions},
        numerics=context.numerics,
        goal=context.goal,
        seed=context.workload.seed,
        recommended_class=winner_class,
        verdict=recommended.verdict,
        speedup=recommended.speedup,
        speedup_over_best_baseline=over_best,
        best_baseline=best,
        default=default_section(store, claims, evaluation),
        winners=winners,
        baselines=[baseline_section(study, claims, b) for b in study.baselines],
        noise_floor=claims.noise_floor(winner_class),
        noise=noise_section(store, claims, winner_class),
        confirmation=confirmation_section(store, claims),
        trials=trials(store, evaluation),
        contributions=winners[winner_class].contributions,
        seconds=seconds(store, wall_s),
        seconds_by_phase=seconds_by_phase(store, wall_s),
        designed=designed_section(store, evaluation.objective),
        budget_s=context.session.budget_s,
        budget_shares=shares(store),
        phases=phases,
        convergence_reason=phases.get(str(Phase.EXPLORE), ""),
        left=unexplored_bound(evaluation),
        learnt_from=learnt_from(store),
        warnings=[*warnings_of(context.facts), *study_warnings(study, claims, winner_class)],
        command=context.command,
        tolerance=card.tolerance,
        accuracy_loss=card.accuracy_loss,
        timeline=timeline(store),
        source_sha256=card.source_sha256,
        environment=context.environment,
        speedup_over_as_run=over_as_run(study, claims, recommended),
        device=context.workload.device,
        model_facts=_model(context),
        callers=context.workload.callers,
        default_meets_slo=meets,
        default_silence=context.facts.silence if evaluation.default_is_silent else "",
        ahead=faster_not_shipped(study, claims, winner_class),
        price_per_hour=context.price_per_hour,
    )
    return without_speedups(found) if meets is False else found


def _model(context: Context) -> ModelSection:
    card, facts = context.workload.card, context.facts
    inputs = zip(facts.input_shapes, facts.input_types, strict=True)
    return ModelSection(
        kind=card.kind,
        form=card.form,
        inputs=[ModelInput(list(shape), type_) for shape, type_ in inputs],
        parameter_bytes=facts.parameter_bytes,
        parameters_sha256=facts.parameters_sha256,
        graph_width=None if facts.graph_fault else facts.graph_width,
        macs=facts.macs,
        macs_by=facts.macs_by,
        family=card.family,
        item=card.item,
        differs=card.differs,
        learns=facts.learns,
        step_memory=facts.step_memory,
        has_target=facts.has_target,
    )


def _host(context: Context, opened: StudyOpened) -> HostSection:
    return HostSection(
        fingerprint=context.host.fingerprint(),
        profile=context.profile,
        profile_matches=context.profile_matches,
        identity=context.host.identity(),
        observations=msgspec.to_builtins(context.host.observations),
    )
