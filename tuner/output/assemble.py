"""Put a study's result together: everything in it is computed from the store."""

from __future__ import annotations

import datetime
import math
import statistics
from collections import defaultdict

import msgspec

from tuner import __version__
from tuner.host.identity import Host
from tuner.measurement.confirmation import ALPHA
from tuner.measurement.estimates import launch_value
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    FinalistNamed,
    PhaseDone,
    RoundDone,
    StudyOpened,
    WarningNoted,
    WinnerClass,
)
from tuner.record.launch import LaunchRecord, OutputCheck, Prepared, Purpose, ReadBack
from tuner.record.outcome import Outcome
from tuner.record.result import (
    SCHEMA_VERSION,
    BaselineSection,
    CompileSeconds,
    ConfirmationRound,
    ConfirmationSection,
    DefaultSection,
    HostSection,
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
from tuner.space.knobs import BATCH
from tuner.space.restrictions import Numerics
from tuner.study.claims import Claim, Claims
from tuner.study.confirm import make_claims
from tuner.study.study import Study


class Context(msgspec.Struct, frozen=True):
    """What the result states about the run beside the study itself."""

    host: Host
    profile: str
    profile_matches: bool
    workload: Workload
    facts: ModelFacts
    numerics: Numerics
    budget_s: float
    command: str


def recommended_class(claims: Claims, numerics: Numerics) -> WinnerClass:
    """Return the class whose winner ships: `same`, unless it holds nothing better than launch_only.

    `reduced` ships only on request.
    """
    if numerics == "reduced":
        return WinnerClass.REDUCED
    same, launch_only = claims.claim(WinnerClass.SAME), claims.claim(WinnerClass.LAUNCH_ONLY)
    if same.verdict != "faster" and launch_only.verdict == "faster":
        return WinnerClass.LAUNCH_ONLY
    return WinnerClass.SAME


def assemble(study: Study, context: Context) -> Result:
    """Return the result of a study, complete or as far as it got."""
    store, ledger = study.store, study.ledger
    claims = make_claims(study)
    klass = recommended_class(claims, context.numerics)
    recommended = claims.claim(klass)
    best = claims.best_baseline
    over_best = None
    if best is not None and recommended.verdict == "faster":
        over_best = claims.against(recommended.configuration, best)
    names = {b.configuration: b.name for b in study.baselines if b.is_applicable}
    opened = store.opened
    assert opened is not None
    card = context.workload.card
    return Result(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
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
        seed=context.workload.seed,
        recommended_class=str(klass),
        verdict=recommended.verdict,
        speedup=recommended.speedup,
        speedup_over_best_baseline=over_best,
        best_baseline=names.get(best.without(BATCH)) if best is not None else None,
        default=_default(store, claims, ledger.reference_batch),
        winners={str(k): _winner(study, claims.claim(k), k) for k in WinnerClass},
        baselines=[_baseline(study, claims, b) for b in study.baselines],
        noise_floor=claims.noise.floor,
        noise=_noise(store, claims),
        confirmation=_confirmation(store, claims),
        trials=[
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
        ],
        contributions=None,
        seconds=_seconds(store, study.budget.used_s()),
        budget_s=context.budget_s,
        budget_shares=_shares(store),
        phases={str(note.phase): note.reason for note in store.all(PhaseDone)},
        warnings=_warnings(store, claims),
        command=context.command,
    )


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


def _host(context: Context, opened: StudyOpened) -> HostSection:
    return HostSection(
        fingerprint=context.host.fingerprint(),
        profile=context.profile,
        profile_matches=context.profile_matches,
        identity=context.host.identity(),
        observations=msgspec.to_builtins(context.host.observations),
    )


def _prepared(store: Store, configuration: Configuration, batch: int) -> list[Prepared]:
    """Return every preparation of a configuration at a batch, oldest first."""
    bare = configuration.without(BATCH)
    return [
        prepared
        for record in store.launches.values()
        if record.request.configuration == bare
        for prepared in record.prepared
        if prepared.batch == batch
    ]


def _default(store: Store, claims: Claims, reference_batch: int) -> DefaultSection:
    batch = claims.default_batch
    prepared = _prepared(store, Configuration(), batch)
    at_reference = claims.series(Configuration(), reference_batch).known()
    return DefaultSection(
        batch=batch,
        rate=claims.default_rate(),
        rate_at_reference_batch=(
            math.exp(statistics.fmean(at_reference)) if at_reference else None
        ),
        memory_peak_bytes=max((p.memory_peak_bytes for p in prepared), default=None),
        read_back=list(prepared[-1].read_back) if prepared else [],
    )


def _winner(study: Study, claim: Claim, klass: WinnerClass) -> WinnerSection:
    store, ledger = study.store, study.ledger
    arm = ledger.arm(claim.configuration)
    prepared = _prepared(store, claim.configuration, arm.batches[0])
    checks: list[OutputCheck] = [p.check for p in prepared if p.check is not None]
    read_back: list[ReadBack] = list(prepared[-1].read_back) if prepared else []
    named = [note for note in store.all(FinalistNamed) if note.klass is klass]
    return WinnerSection(
        configuration=claim.configuration.as_dict(),
        verdict=claim.verdict,
        reason=claim.reason,
        n_rounds=claim.n_rounds,
        rate=claim.rate,
        speedup=claim.speedup,
        speedup_at_reference_batch=claim.at_reference_batch,
        batch_gain=claim.batch_gain,
        output_drift=checks[0] if checks else None,
        compile_seconds=_compile_seconds(store, claim.configuration),
        memory_peak_bytes=max((p.memory_peak_bytes for p in prepared), default=None),
        read_back=read_back,
        not_in_force=[item.knob for item in read_back if not item.in_force],
        removed=list(named[-1].removed) if named else [],
    )


def _compile_seconds(store: Store, configuration: Configuration) -> CompileSeconds:
    """Return what compiling cost the first time, and what it costs with the cache there.

    The compiler's cache is kept per study and depends on the model knobs and threads, so the first
    launch with these model knobs was the cold one.
    """
    bare = configuration.without(BATCH)
    launches = [
        record
        for record in store.launches.values()
        if _compiles_alike(record.request.configuration, bare) and record.prepared
    ]
    if not launches:
        return CompileSeconds(None, None)
    each = [record.compile_s / len(record.prepared) for record in launches]
    return CompileSeconds(each[0], statistics.median(each[1:]) if len(each) > 1 else None)


def _compiles_alike(a: Configuration, b: Configuration) -> bool:
    def model_knobs(c: Configuration) -> dict[str, object]:
        return {k: v for k, v in c.settings if not k.startswith("launch.")}

    return model_knobs(a) == model_knobs(b)


def _baseline(study: Study, claims: Claims, baseline: Baseline) -> BaselineSection:
    ledger = study.ledger
    speedup = ratio = None
    if baseline.is_applicable:
        at_batches = [ledger.at_batch(baseline.configuration, batch) for batch in ledger.batches]
        confirmed = [c for c in at_batches if len(claims.differences(c)) >= 1]
        best = ledger.best(at_batches)
        ratio = ledger.ratio(best[0]) if best else None
        if confirmed and baseline.same_as != "default":
            speedup = claims.against_default(best[0] if best else confirmed[0])
    return BaselineSection(
        name=baseline.name,
        source=baseline.source,
        applicable=baseline.is_applicable,
        reason=baseline.reason,
        same_as=baseline.same_as,
        dead_settings=list(baseline.dead_settings),
        substituted=list(baseline.substituted),
        configuration=baseline.configuration.as_dict(),
        speedup=speedup,
        search_ratio=_rounded(ratio),
    )


def _noise(store: Store, claims: Claims) -> Noise:
    slices = [s for record in store.launches.values() for s in record.slices]
    sd = claims.noise.launch_sd
    return Noise(
        floor=claims.noise.floor,
        launch_sd=None if math.isnan(sd) else sd,
        dirty_slices=sum(bool(s.interference.dirty) for s in slices),
        slices=len(slices),
    )


def _confirmation(store: Store, claims: Claims) -> ConfirmationSection:
    """Return the raw comparison: rounds x (arm, batch), None where an arm was decided already."""
    columns: dict[tuple[Configuration, int], None] = {}
    for done in store.all(RoundDone):
        for launch in done.launches:
            request = store.launches[launch].request
            for batch in request.batches:
                columns[request.configuration, batch] = None
    rounds = []
    for done in store.all(RoundDone):
        by_arm: dict[Configuration, LaunchRecord] = {
            store.launches[i].request.configuration: store.launches[i] for i in done.launches
        }
        values = [
            launch_value(by_arm[c], batch) if c in by_arm else None for c, batch in columns
        ]
        rounds.append(ConfirmationRound(done.number, values))
    chosen = store.all(ArmsChosen)
    return ConfirmationSection(
        arms=[{**c.as_dict(), BATCH: batch} for c, batch in columns],
        rounds=rounds,
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
        sums["warm_up"] += sum(p.warm_up_s + p.check_s for p in record.prepared)
        for s in record.slices:
            if is_pacer:
                sums["pacer"] += s.seconds
            else:
                sums["waiting" if s.interference.dirty else "scored"] += s.seconds
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
    """Return the share of launch time per purpose (the pacer runs beside the others)."""
    totals: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        if record.request.purpose is not Purpose.PACER:
            totals[str(record.request.purpose)] += record.total_s
    whole = sum(totals.values()) or 1.0
    return {purpose: total / whole for purpose, total in totals.items()}


def _warnings(store: Store, claims: Claims) -> list[str]:
    texts = [note.text for note in store.all(WarningNoted)]
    slices = [s for record in store.launches.values() for s in record.slices]
    dirty = sum(bool(s.interference.dirty) for s in slices)
    if slices and dirty > 0.1 * len(slices):
        reasons = sorted({r.split("%")[-1].strip() for s in slices for r in s.interference.dirty})
        texts.append(
            f"{dirty} of {len(slices)} slices were disturbed ({'; '.join(reasons)}): the host was "
            "not quiet"
        )
    for record in store.launches.values():
        unsteady = [p.batch for p in record.prepared if not p.is_steady]
        if unsteady and record.request.purpose is Purpose.CONFIRM:
            label = record.request.configuration.label()
            text = f"{label} was not steady after its warm-up in the confirmation"
            if text not in texts:
                texts.append(text)
    for note in store.all(FinalistNamed):
        checks = [
            p.check for p in _prepared(store, note.configuration, _batch(store, note.configuration))
        ]
        for check in checks:
            if check and check.top1_agreement is not None and not check.top1_informative:
                text = (
                    f"top-1 agreement of {note.configuration.label()} says little: only "
                    f"{check.top1_inputs} clear inputs in {check.top1_classes} classes"
                )
                if text not in texts and claims.claim(note.klass).configuration == note.configuration:
                    texts.append(text)
    return texts


def _batch(store: Store, configuration: Configuration) -> int:
    value = configuration.get(BATCH)
    if value is not None:
        return int(value)
    bare = configuration.without(BATCH)
    return next(
        (
            record.request.batches[0]
            for record in store.launches.values()
            if record.request.configuration == bare
        ),
        0,
    )


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
