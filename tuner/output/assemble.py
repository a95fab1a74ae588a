"""Put a study's result together: everything in it is computed from the store."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

import msgspec

from tuner import __version__
from tuner.host.identity import Host
from tuner.host.interference import n_disturbed
from tuner.measurement.confirmation import ALPHA
from tuner.measurement.estimates import clean_slices
from tuner.output.compiling import compile_seconds
from tuner.output.launches import call_times, check_of, launches_of, memory_peak, profile_of
from tuner.output.remarks import remarks
from tuner.output.timeline import timeline
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    FinalistNamed,
    Phase,
    PhaseDone,
    RoundDone,
    SessionOpened,
    StudyOpened,
    TransferNoted,
    Waited,
    WinnerClass,
)
from tuner.record.launch import LaunchRecord, Purpose, ReadBack
from tuner.record.outcome import Outcome
from tuner.record.result import (
    SCHEMA_VERSION,
    BaselineSection,
    ConfirmationRound,
    ConfirmationSection,
    DefaultSection,
    HostSection,
    Interval,
    LearntFrom,
    Noise,
    Objective,
    Result,
    Seconds,
    TrialSection,
    Verdict,
    WinnerSection,
)
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.baselines import Baseline
from tuner.space.catalogue import BATCH
from tuner.space.restrictions import Numerics
from tuner.study.claims import Claim, Claims
from tuner.study.compared import configuration_as_run
from tuner.study.confirm import make_claims
from tuner.study.explain import contributions
from tuner.study.ledger import Ledger
from tuner.study.neighbours import beside_neighbour
from tuner.study.study import Study


class Context(msgspec.Struct, frozen=True):
    """What the result states about the run beside the study itself."""

    host: Host
    profile: str
    profile_matches: bool
    workload: Workload
    facts: ModelFacts
    numerics: Numerics
    session: SessionOpened
    """The last that measured."""
    command: str
    """What repeats the study."""
    environment: dict[str, str] = {}
    """The tuning variables that were set when it was begun."""


def recommended_class(claims: Claims, numerics: Numerics) -> WinnerClass:
    """Return the class whose winner ships: the widest that may and holds something better.

    `reduced` may only on request; where nothing is better in any, it is the widest's verdict.
    """
    order = [WinnerClass.SAME, WinnerClass.LAUNCH_ONLY]
    if numerics == "reduced":
        order.insert(0, WinnerClass.REDUCED)
    return next((k for k in order if claims.claim(k).verdict == "faster"), order[0])


def assemble(study: Study, context: Context) -> Result:
    """Return the result of a study, complete or as far as it got."""
    store, ledger = study.store, study.ledger
    claims = make_claims(study)
    klass = recommended_class(claims, context.numerics)
    recommended = claims.claim(klass)
    winners = {str(k): _winner(study, claims, k) for k in WinnerClass}
    best_baseline, over_best = _best_baseline(study, claims, recommended)
    opened = store.opened
    assert opened is not None
    card = context.workload.card
    return Result(
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
        batches=list(ledger.batches),
        objective=Objective("throughput", "items/s", "maximize"),
        host=_host(context, opened),
        versions={**context.host.versions, **context.facts.versions},
        numerics=context.numerics,
        goal=study.goal,
        seed=context.workload.seed,
        recommended_class=str(klass),
        verdict=recommended.verdict,
        speedup=recommended.speedup,
        speedup_over_best_baseline=over_best,
        best_baseline=best_baseline,
        default=_default(store, claims, card.reference_batch),
        winners=winners,
        baselines=[_baseline(study, claims, b) for b in study.baselines],
        noise_floor=claims.noise_floor(klass),
        noise=_noise(store, claims, klass),
        confirmation=_confirmation(store, claims),
        trials=_trials(ledger),
        contributions=winners[str(klass)].contributions,
        seconds=_seconds(store, study.budget.used_s()),
        budget_s=context.session.budget_s,
        budget_shares=_shares(store),
        phases={str(note.phase): note.reason for note in store.all(PhaseDone)},
        convergence_reason=next(
            (n.reason for n in store.all(PhaseDone) if n.phase is Phase.EXPLORE), ""
        ),
        learnt_from=_learnt_from(store),
        warnings=remarks(study, claims, klass),
        command=context.command,
        tolerance=card.tolerance,
        accuracy_loss=card.accuracy_loss,
        timeline=timeline(store),
        source_sha256=card.source_sha256,
        environment=context.environment,
        speedup_over_as_run=_over_as_run(study, claims, recommended),
    )


def _best_baseline(
    study: Study, claims: Claims, recommended: Claim
) -> tuple[str | None, Interval | None]:
    """Return the best baseline's name, and the recommended winner's gain over it where measured.

    The default is a baseline as well: the best one, where the rounds show no other above it.
    """
    best = claims.best_baseline or study.best_baseline()
    is_faster = recommended.verdict == "faster"
    differences = claims.differences(best) if best is not None else []
    if best is not None and not (differences and statistics.fmean(differences) <= 0):
        is_another = best != recommended.configuration
        gain = claims.against(recommended.configuration, best) if is_faster and is_another else None
        return study.baseline_name(best), gain
    if best is None and not study.is_done(Phase.BASELINES):
        return None, None
    name = next((b.name for b in study.baselines if b.same_as == "default"), None)
    return name, recommended.speedup if is_faster else None


def _over_as_run(study: Study, claims: Claims, recommended: Claim) -> Interval | None:
    """Return what the study recommends, else the default, over how the user runs it."""
    own = configuration_as_run(study)
    arm = None if own is None else _confirmed_arm(study, claims, own)
    best = recommended.configuration if recommended.verdict == "faster" else claims.default
    return None if arm is None or arm == best else claims.against(best, arm)


def _confirmed_arm(study: Study, claims: Claims, bare: Configuration) -> Configuration | None:
    """Return a baseline at the batch at which rounds hold it; at its best one, if at several."""
    ledger = study.ledger
    at_batches = [ledger.at_batch(bare, batch) for batch in ledger.batches]
    confirmed = [c for c in at_batches if len(claims.differences(c)) >= 1]
    best = ledger.best(at_batches)
    if best is not None and best[0] in confirmed:
        return best[0]
    return confirmed[0] if confirmed else None


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


def _trials(ledger: Ledger) -> list[TrialSection]:
    return [
        TrialSection(
            number=trial.number,
            configuration=trial.configuration.as_dict(),
            source=trial.source,
            outcome=trial.ending.outcome,
            reason=trial.ending.reason,
            launches=list(trial.launches),
            search_ratio=_rounded(ledger.ratio(trial.configuration)),
        )
        for trial in ledger.trials()
    ]


def _learnt_from(store: Store) -> LearntFrom | None:
    noted = store.all(TransferNoted)
    if not noted:
        return None
    last = noted[-1]
    return LearntFrom(
        list(last.studies), last.n_configurations, _rounded(last.rank_correlation), last.is_dropped
    )


def _host(context: Context, opened: StudyOpened) -> HostSection:
    return HostSection(
        fingerprint=context.host.fingerprint(),
        profile=context.profile,
        profile_matches=context.profile_matches,
        identity=context.host.identity(),
        observations=msgspec.to_builtins(context.host.observations),
    )


def _read_back(records: list[LaunchRecord]) -> list[ReadBack]:
    return list(records[-1].prepared.read_back) if records and records[-1].prepared else []


def _default(store: Store, claims: Claims, reference_batch: int) -> DefaultSection:
    records = launches_of(store, claims.default)
    at_reference = claims.series(Configuration()).known()
    return DefaultSection(
        batch=int(claims.default.get(BATCH) or reference_batch),
        rate=claims.default_rate(),
        rate_at_reference_batch=(
            math.exp(statistics.fmean(at_reference)) if at_reference else None
        ),
        memory_peak_bytes=memory_peak(records),
        read_back=_read_back(records),
        beside_neighbour=beside_neighbour(claims, claims.default),
        call=call_times(records),
        profile=profile_of(records),
    )


def _winner(study: Study, claims: Claims, klass: WinnerClass) -> WinnerSection:
    claim = claims.claim(klass)
    records = launches_of(study.store, claim.configuration)
    read_back = _read_back(records)
    named = [note for note in study.store.all(FinalistNamed) if note.klass is klass]
    return WinnerSection(
        configuration=claim.configuration.as_dict(),
        verdict=claim.verdict,
        reason=claim.reason,
        n_rounds=claim.n_rounds,
        rate=claim.rate,
        speedup=claim.speedup,
        speedup_at_reference_batch=claim.at_reference_batch,
        batch_gain=claim.batch_gain,
        output_drift=check_of(records),
        compile_seconds=compile_seconds(study.store, claims, claim),
        memory_peak_bytes=memory_peak(records),
        call=call_times(records),
        profile=profile_of(records),
        read_back=read_back,
        not_in_force=[item.knob for item in read_back if not item.in_force],
        removed=[
            knob
            for note in named[-1:]
            if note.configuration == claim.configuration
            for knob in note.removed
        ],
        contributions=(
            contributions(study, claim.configuration) if claim.verdict == "faster" else []
        ),
        beside_neighbour=beside_neighbour(claims, claim.configuration),
        disturbed=claim.disturbed,
        noise_floor=claims.noise_floor(klass),
    )


def _baseline(study: Study, claims: Claims, baseline: Baseline) -> BaselineSection:
    ledger = study.ledger
    speedup = ratio = fared = None
    reason = baseline.reason
    if baseline.is_applicable:
        at_batches = [ledger.at_batch(baseline.configuration, batch) for batch in ledger.batches]
        best = ledger.best(at_batches)
        ratio = ledger.ratio(best[0]) if best else None
        arm = _confirmed_arm(study, claims, baseline.configuration)
        if arm is not None and baseline.same_as != "default":
            speedup = claims.against_default(arm)
            fared = beside_neighbour(claims, arm)
        if ratio is None:
            endings = [t.ending for t in ledger.trials() if t.configuration in at_batches]
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
        search_ratio=_rounded(ratio),
        beside_neighbour=fared,
    )


def _noise(store: Store, claims: Claims, klass: WinnerClass) -> Noise:
    slices = [s for record in store.launches.values() for s in record.slices]
    return Noise(
        floor=claims.noise_floor(klass),
        launch_sd=round(claims.noise.launch_sd, 6),
        dirty_slices=n_disturbed(slices),
        slices=len(slices),
        disturbances=claims.disturbances(),
    )


def _confirmation(store: Store, claims: Claims) -> ConfirmationSection:
    """Return the raw comparison: rounds x arms, None where an arm was decided already."""
    arms = list(
        dict.fromkeys(
            store.launches[i].request.configuration
            for done in store.all(RoundDone)
            for i in done.launches
        )
    )
    series = [claims.series(arm).values for arm in arms]
    chosen = store.all(ArmsChosen)
    return ConfirmationSection(
        arms=[arm.as_dict() for arm in arms],
        rounds=[
            ConfirmationRound(done.number, list(row))
            for done, row in zip(store.all(RoundDone), zip(*series, strict=True), strict=True)
        ],
        looks=list(chosen[-1].looks) if chosen else [],
        alpha=ALPHA,
    )


def _seconds(store: Store, wall_s: float) -> Seconds:
    """Split the used time by what it was used for."""
    sums: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        is_pacer = record.request.purpose is Purpose.PACER
        sums["start_up"] += record.start_up_s
        if record.built is not None:
            sums["start_up"] += record.built.import_s + record.built.build_s
        sums["compile"] += record.compile_s
        sums["warm_up"] += (record.prepared.warm_up_s if record.prepared else 0) + record.check_s
        sums["warm_up"] += sum(s.seconds for s in record.beside)
        sums["warm_up"] += record.profile.seconds if record.profile else 0.0
        counted = clean_slices(record)
        for s in record.slices:
            if is_pacer:
                sums["pacer"] += s.seconds
            else:
                sums["scored" if s in counted else "waiting"] += s.seconds
        discarded_s = record.slicing_s - sum(s.seconds for s in record.slices)
        sums["pacer" if is_pacer else "warm_up"] += max(0.0, discarded_s)
    sums["waiting"] += sum(note.seconds for note in store.all(Waited))
    return Seconds(
        wall=wall_s,
        scored=sums["scored"],
        warm_up=sums["warm_up"],
        pacer=sums["pacer"],
        compile=sums["compile"],
        start_up=sums["start_up"],
        waiting=sums["waiting"],
    )


def _shares(store: Store) -> dict[str, float]:
    """Return the share of the launches' busy time per purpose."""
    totals: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        totals[str(record.request.purpose)] += record.total_s
    whole = sum(totals.values()) or 1.0
    return {purpose: total / whole for purpose, total in totals.items()}


def outcome_counts(result: Result) -> dict[Outcome, int]:
    """Count the trials by outcome."""
    counts: dict[Outcome, int] = defaultdict(int)
    for trial in result.trials:
        counts[trial.outcome] += 1
    return dict(counts)


def verdict_line(verdict: Verdict) -> str:
    """Say a verdict in words."""
    return {
        "faster": "faster than the default",
        "keep_default": "keep the default",
        "ambiguous": "not decided",
    }[verdict]
