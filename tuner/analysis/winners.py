"""The default and the winner of each class, as confirmed, with all that their launches tell."""

from __future__ import annotations

from tuner.analysis.compiling import compile_seconds
from tuner.analysis.contributions import contributions
from tuner.analysis.launches import (
    call_times,
    check_of,
    cpu_share,
    device_memory,
    joules_per_item,
    launches_of,
    memory_peak,
    profile_of,
)
from tuner.analysis.neighbours import beside_neighbour
from tuner.analysis.outlook import rounds_won, seconds_to_decide
from tuner.analysis.serving import serving_of
from tuner.analysis.stability import is_unstable, stability
from tuner.analysis.trials import rounded
from tuner.measurement.confirmation import WORTH_HAVING
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed
from tuner.record.launch import LaunchRecord, ReadBack
from tuner.record.result import DefaultSection, WinnerSection
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.space.restrictions import Numerics
from tuner.study.claim import Claim
from tuner.study.claims import Claims
from tuner.study.evaluation import Evaluation
from tuner.study.study import Study
from tuner.study.validate import validations_of


def recommended_class(claims: Claims, numerics: Numerics) -> WinnerClass:
    """Return the class that is recommended: the widest allowed one whose winner is better.

    Reduced precision only on request. If nothing is better in any class, the widest's verdict. An
    unstable winner is replaced by a stable one of a narrower class that is nearly as fast.
    """
    order = [WinnerClass.SAME_PRECISION, WinnerClass.NO_CODE]
    if numerics == "reduced":
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
        search_ratio=rounded(_hint(study.evaluation, claims, claim)),
        n_won=n_won,
        n_compared=n_compared,
        seconds_to_decide=seconds_to_decide(study, claims, claim),
    )


def _hint(evaluation: Evaluation, claims: Claims, claim: Claim) -> float | None:
    """Return a candidate's ratio in the search, if it was in no round; otherwise None."""
    candidate = claim.configuration
    is_compared = any(candidate in arms for arms in claims.rounds.launches)
    if is_compared or is_default(candidate) or not evaluation.may_win(candidate):
        return None
    return evaluation.ratio(candidate) if claim.verdict == "ambiguous" else None


def _read_back(records: list[LaunchRecord]) -> list[ReadBack]:
    """Return the last read-back, from launches that could observe the most."""
    told = [record.prepared for record in records if record.prepared is not None]
    told = [prepared for prepared in told if prepared.is_traced] or told
    return list(told[-1].read_back) if told else []
