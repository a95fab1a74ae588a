"""The winners of a result: claims, evidence, effects of settings, and what would decide more."""

from __future__ import annotations

import math
import statistics

from tuner.analysis.launches import (
    call_times,
    check_of,
    cpu_share,
    device_memory,
    joules_per_item,
    launches_of,
    loading,
    memory_peak,
    profile_of,
)
from tuner.analysis.neighbours import beside_neighbour
from tuner.analysis.sections import rounded
from tuner.analysis.serving import serving_of
from tuner.analysis.stability import is_unstable, stability
from tuner.measurement.confirmation import FIRST_LOOK, WORTH_HAVING, judge, plain_interval
from tuner.measurement.estimates import log_scores_of_rounds
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.journal import FinalistNamed
from tuner.record.launch import LaunchRecord, ReadBack
from tuner.record.numerics import Numerics, recommends_reduced
from tuner.record.result import (
    CompileSeconds,
    Contribution,
    DefaultSection,
    LeftOut,
    WinnerSection,
)
from tuner.record.store import Store
from tuner.record.study_stats import FasterNotShipped
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.study.ablation import without_costly
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.compared import EXPLAIN_ROUNDS, baseline_name
from tuner.study.confirm import make_claims
from tuner.study.deciding import rounds_s, rounds_to_decide
from tuner.study.evaluation import Evaluation
from tuner.study.explain import rounds_of
from tuner.study.minimise import why_unseen
from tuner.study.study import Study
from tuner.study.validate import validations_of


def recommended_class(claims: Claims, numerics: Numerics) -> WinnerClass:
    """Return the class that is recommended: the widest allowed one whose winner is better.

    Reduced precision only on request. If nothing is better in any class, the widest's verdict. An
    unstable winner is replaced by a stable one of a narrower class that is nearly as fast.
    """
    order = [WinnerClass.SAME_PRECISION, WinnerClass.NO_CODE]
    if recommends_reduced(numerics):
        order.insert(0, WinnerClass.REDUCED_PRECISION)
    faster = [k for k in order if claims.claim(k).verdict == "faster"]
    if not faster:
        return order[0]
    widest, *narrower = faster
    if not is_unstable(claims, claims.claim(widest)):
        return widest
    steady = (k for k in narrower if not is_unstable(claims, claims.claim(k)))
    return next((k for k in steady if _is_nearly_as_fast(claims, k, widest)), widest)


def _is_nearly_as_fast(claims: Claims, winner_class: WinnerClass, widest: WinnerClass) -> bool:
    """Tell whether a class's winner is behind the widest's by no more than the noise floor.

    At most by what is worth having: noise does not excuse a larger loss.
    """
    mine, other = claims.claim(winner_class).speedup, claims.claim(widest).speedup
    assert mine is not None and other is not None
    return mine.point * (1 + min(claims.noise_floor(widest), WORTH_HAVING)) >= other.point


def default_section(store: Store, claims: Claims, evaluation: Evaluation) -> DefaultSection:
    """Return the default at its best batch."""
    records = launches_of(store, claims.default)
    at_reference = claims.rounds.rate(Configuration())
    return DefaultSection(
        batch=int(claims.default.get(BATCH) or evaluation.reference_batch),
        value=claims.rounds.value(claims.default),
        value_undisturbed=claims.rounds.value_undisturbed(claims.default),
        rate=claims.rounds.rate(claims.default),
        rate_at_reference_batch=None if at_reference is None else at_reference.point,
        memory_peak_bytes=memory_peak(records),
        read_back=_read_back(records),
        beside_neighbour=beside_neighbour(claims, claims.default),
        call=call_times(records, claims.objective),
        profile=profile_of(records),
        over_bound=evaluation.default_exceeds,
        device_memory=device_memory(records),
        joules_per_item=joules_per_item(records),
        serving=serving_of(records, claims.objective.slo),
        validations=validations_of(store, claims.default),
        cpu_share=cpu_share(records),
        loading=loading(records),
        search_value=_value_in_search(claims, evaluation),
    )


def _value_in_search(claims: Claims, evaluation: Evaluation) -> float | None:
    """Return the default's value in the search, if fewer than two rounds show it."""
    objective, score = evaluation.objective, evaluation.score(claims.default)
    if score is None or claims.rounds.value(claims.default) is not None:
        return None
    return None if objective.searched_by else objective.value(score)


def winner_section(study: Study, claims: Claims, winner_class: WinnerClass) -> WinnerSection:
    """Return the winner of a class, with its evidence and costs."""
    claim = claims.claim(winner_class)
    records = launches_of(study.store, claim.configuration)
    read_back = _read_back(records)
    named = [note for note in study.store.all(FinalistNamed) if note.winner_class is winner_class]
    n_won, n_compared = rounds_won(claims, claim)
    return WinnerSection(
        configuration=claim.configuration.as_dict(),
        verdict=claim.verdict,
        reason=claim.reason,
        is_unjustified=claim.is_unjustified,
        n_rounds=claim.n_rounds,
        value=claim.value,
        value_undisturbed=claims.rounds.value_undisturbed(claim.configuration),
        rate=claim.rate,
        speedup=claim.speedup,
        speedup_at_reference_batch=claim.at_reference_batch,
        batch_gain=claim.batch_gain,
        output_drift=check_of(records),
        compile_seconds=compile_seconds(study.store, claims, claim),
        memory_peak_bytes=memory_peak(records),
        call=call_times(records, claims.objective),
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
        noise_floor=claims.noise_floor(winner_class),
        stability=stability(claims, claim),
        device_memory=device_memory(records),
        joules_per_item=joules_per_item(records),
        serving=serving_of(records, claims.objective.slo),
        validations=validations_of(study.store, claim.configuration),
        cpu_share=cpu_share(records),
        loading=loading(records),
        search_ratio=rounded(_hint(study.evaluation, claims, claim)),
        n_won=n_won,
        n_compared=n_compared,
        seconds_to_decide=seconds_to_decide(study, claims, claim),
        left_out=_left_out(study, claims, claim, winner_class),
    )


def _left_out(
    study: Study, claims: Claims, claim: Claim, winner_class: WinnerClass
) -> LeftOut | None:
    """Return the finalist that was in no round, if it led what won in the search."""
    finalist = claims.left_out(winner_class)
    if claim.verdict != "faster" or finalist is None or finalist == claim.configuration:
        return None
    ratio, won = (study.evaluation.ratio(c) for c in (finalist, claim.configuration))
    if (
        ratio is None
        or won is None
        or ratio <= max(won, claim.speedup.point if claim.speedup else 1)
    ):
        return None
    seconds = _start_s(study) + rounds_s(study, claims, [finalist], FIRST_LOOK)
    return LeftOut(finalist.as_dict(), round(ratio, 4), round(seconds, 1))


def _hint(evaluation: Evaluation, claims: Claims, claim: Claim) -> float | None:
    """Return a candidate's ratio in the search, if it was in no round; otherwise None."""
    candidate = claim.configuration
    is_compared = any(candidate in arms for arms in claims.rounds.launches)
    if is_compared or is_default(candidate) or not evaluation.may_win(candidate):
        return None
    return evaluation.ratio(candidate) if claim.verdict == "ambiguous" else None


def _read_back(records: list[LaunchRecord]) -> list[ReadBack]:
    """Return the last read-back, from launches that could observe the most."""
    prepared_ones = [record.prepared for record in records if record.prepared is not None]
    prepared_ones = [prepared for prepared in prepared_ones if prepared.is_traced] or prepared_ones
    return list(prepared_ones[-1].read_back) if prepared_ones else []


def contributions(study: Study, winner: Configuration) -> list[Contribution]:
    """Return the effect of each setting, the largest first, without those that are unknown.

    From the confirmation if it compared both, else from rounds of their own, else a hint.
    """
    shorter = study.removals(winner)
    found = []
    for knob, value in winner.settings:
        if knob not in shorter or knob == BATCH:  # the batch's gain is the default's too
            continue
        interval, n_rounds = log_score(study, winner, shorter[knob])
        ratio = interval.point if interval else _hinted_effect(study, winner, shorter[knob])
        if ratio is not None:
            left = dict(shorter[knob].settings)
            along = [k for k, _ in winner.settings if k not in left and k != knob]
            found.append(Contribution(knob, value, ratio, interval, n_rounds, along))
    return sorted(found, key=lambda c: -c.ratio)


def log_score(
    study: Study, winner: Configuration, shorter: Configuration
) -> tuple[Interval | None, int]:
    """Return the speedup of one over the other, and over how many rounds; None if too few."""
    claims = make_claims(study)
    confirmed = (
        claims.against_default(winner)
        if shorter == claims.default
        else claims.against(winner, shorter)
    )
    if confirmed is not None:
        return confirmed, len(claims.rounds.series(winner).against(claims.rounds.series(shorter)))
    differences = _differences(study, winner, shorter)
    if len(differences) >= EXPLAIN_ROUNDS:
        return plain_interval(differences), len(differences)
    return None, 0


def _hinted_effect(study: Study, winner: Configuration, shorter: Configuration) -> float | None:
    """Return the search's ratio. The winner was chosen by it, which flatters the winner."""
    score, less = study.evaluation.score(winner), study.evaluation.score(shorter)
    if score is None or less is None or not study.evaluation.may_win(shorter):
        return None
    return round(math.exp(score - less), 4)  # no more digits than a hint has


def _differences(study: Study, winner: Configuration, shorter: Configuration) -> list[float]:
    """Return the log ratios of the winner to the shorter configuration, round by round."""
    rounds = [[study.store.launches[i] for i in note.launches] for note in rounds_of(study, winner)]
    found = []
    for values in log_scores_of_rounds(rounds, study.evaluation.objective):
        full, less = values[winner], values.get(shorter)
        if full is not None and less is not None:
            found.append(full - less)
    return found


_BRIEF_S = 0.5
"""By less, first calls differ with the moment: nothing was compiled, or as fast."""


def compile_seconds(store: Store, claims: Claims, claim: Claim) -> CompileSeconds:
    """Return the cost of compiling the first time, and with a warm cache."""
    cold, warm, in_company = _cold_and_warm(store, claim.configuration)
    return CompileSeconds(cold, warm, _items_to_pay(store, claims, claim), in_company)


def _items_to_pay(store: Store, claims: Claims, claim: Claim) -> float | None:
    """Return after how many items a winner's longer start is paid back by its speed."""
    warm = _cold_and_warm(store, claim.configuration)[1]
    default_s = _cold_and_warm(store, claims.default)[1]
    default_rate = claims.rounds.rate(claims.default)
    if claim.verdict != "faster" or None in (warm, default_s, claim.rate, default_rate):
        return None
    assert warm is not None and default_s is not None and claim.rate and default_rate
    saved_s = 1 / default_rate.point - 1 / claim.rate.point
    return (warm - default_s) / saved_s if saved_s > 0 and warm - default_s > _BRIEF_S else None


def _cold_and_warm(
    store: Store, configuration: Configuration
) -> tuple[float | None, float | None, bool]:
    """Return the seconds of compiling a configuration without and with the compiler's cache.

    And whether others were prepared in parallel to a launch that they rest on. Launches that were
    prepared alone come first.

    The cache is kept per study. The compiled code depends on everything but the settings of the
    launch, so that the first launch with the same rest was the cold one. An allocator may double
    the time of compiling: the configuration's own launches come first, and a cold one under other
    launch settings is ignored if it took clearly less than the warm ones here. If the first launch,
    prepared alone, compiled nothing, later ones compile nothing either: those prepared in parallel
    are only slowed by others.
    """
    sharing = [
        record
        for record in store.launches.values()
        if record.prepared is not None
        and _compiled_settings(record.request.configuration) == _compiled_settings(configuration)
    ]
    if not sharing:
        return None, None, False
    first, *others = sharing
    own = [r for r in others if r.request.configuration == configuration]
    telling = [r for r in own if not r.request.n_companions] or own or others
    warm = statistics.median(r.compile_s for r in telling) if telling else None
    is_own = first.request.configuration == configuration
    says_nothing = not is_own and warm is not None and warm - first.compile_s > _BRIEF_S
    compiles_nothing = first.compile_s < _BRIEF_S and not first.request.n_companions
    if compiles_nothing and all(r.request.n_companions for r in telling):
        return first.compile_s, first.compile_s if telling else None, False
    shown = telling if says_nothing else [first, *telling]
    cold = None if says_nothing else first.compile_s
    return cold, warm, any(r.request.n_companions for r in shown)


def _compiled_settings(configuration: Configuration) -> list[tuple[str, object]]:
    return [(k, v) for k, v in configuration.settings if not k.startswith("launch.")]


def rounds_won(claims: Claims, claim: Claim) -> tuple[int | None, int]:
    """Return in how many rounds the configuration beat the default, and of how many.

    None if no round compared them. Rounds too few for a claim count as well, such as those of an
    early verdict that was stopped.
    """
    if is_default(claim.configuration):
        return None, 0
    differences = claims.differences(claim.configuration)
    return sum(d > 0 for d in differences) if differences else None, len(differences)


def seconds_to_decide(study: Study, claims: Claims, claim: Claim) -> float | None:
    """Estimate the seconds of an extension that would decide a class, its start included.

    The extension keeps them for rounds, which include everything else that is open. Returns None if
    the class is decided or rounds cannot decide it, if the candidate is not above the default so
    far, or if the rounds of an extension are not enough.
    """
    configuration, arms = claim.configuration, claims.open_arms()
    if claim.verdict != "ambiguous" or configuration not in arms:
        return None
    if claim.is_unjustified:
        compared = [*arms, *without_costly(study, configuration)]
        return round(_start_s(study) + rounds_s(study, claims, compared, FIRST_LOOK), 1)
    n = len(claims.differences(configuration))
    if n >= FIRST_LOOK and claim.speedup is None:  # rounds without a figure: a missed bound
        return None
    if claim.speedup is not None and judge(claim.speedup, claims.noise.floor(n)) != "ambiguous":
        return None  # something else than rounds is lacking
    needed = rounds_to_decide(study, claims, arms).get(configuration)
    if needed is None:
        return None
    return round(_start_s(study) + rounds_s(study, claims, arms, needed), 1)


def _start_s(study: Study) -> float:
    """Return what an extension takes besides its rounds: the model, the pacer, the report."""
    pacer_s = study.costs.own_s(Configuration())
    return study.costs.least_launch_s + pacer_s + study.budget.kept_s


def faster_not_shipped(
    study: Study, claims: Claims, winner_class: WinnerClass
) -> list[FasterNotShipped]:
    """Return the arms that are surely faster than the recommendation of a class."""
    claim, found = claims.claim(winner_class), []
    recommended = claim.configuration if claim.verdict == "faster" else claims.default
    for arm in claims.arms:
        if arm == recommended or not allowed_in(winner_class, arm):
            continue
        lead = claims.lead(arm, recommended)
        if lead is None or lead.low <= 1 or claims.claim_of(winner_class, arm).verdict != "faster":
            continue
        why = study.evaluation.row(arm).ship_fault
        why = why or why_unseen(study, arm) or claims.why_unjustified(arm)
        if not why and (echoed := study.evaluation.row(arm).unobservable):
            why = f"nothing shows that {', '.join(sorted(echoed))} took effect"
        if why:
            found.append(
                FasterNotShipped(arm.as_dict(), baseline_name(study, arm) or "", lead, why)
            )
    return found
