"""The sections of a result that list measurements: rounds, trials, slices, designed cells."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from tuner.analysis.launches import call_times, launches_of, memory_held
from tuner.host.interference import disturbances, n_disturbed
from tuner.measurement.confirmation import ALPHA
from tuner.measurement.passes import passes_of
from tuner.record.designed import DesignedCell, DesignedSection
from tuner.record.journal import ArmsChosen, Cell, DesignFixed, TransferNoted, TrialNoted
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.objective import Objective
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.record.study_stats import (
    ConfirmationRound,
    ConfirmationSection,
    LearntFrom,
    LeftToFind,
    Moment,
    NoiseSection,
    TrialSection,
)
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import RANDOM
from tuner.space.catalogue import narrowest_class
from tuner.study.claims import Claims
from tuner.study.designed import whole_rounds
from tuner.study.evaluation import Evaluation


def confirmation_section(store: Store, claims: Claims) -> ConfirmationSection:
    """Return the raw comparison: rounds x arms, None where an arm took no part."""
    arms = list(dict.fromkeys(arm for launched in claims.rounds.launches for arm in launched))
    series = [claims.rounds.series(arm).values for arm in arms]
    chosen = store.all(ArmsChosen)
    return ConfirmationSection(
        arms=[arm.as_dict() for arm in arms],
        rounds=[
            ConfirmationRound(number, list(row))
            for number, row in enumerate(zip(*series, strict=True), start=1)
        ],
        looks=list(chosen[-1].looks) if chosen else [],
        alpha=ALPHA,
        n_early=claims.rounds.n_early,
    )


def noise_section(store: Store, claims: Claims, winner_class: WinnerClass) -> NoiseSection:
    """Return the noise over all slices; the floor is that of a class."""
    slices = [s for record in store.launches.values() for s in record.slices]
    return NoiseSection(
        floor=claims.noise_floor(winner_class),
        launch_sd=round(claims.noise.launch_sd, 6),
        dirty_slices=n_disturbed(slices),
        slices=len(slices),
        disturbances=disturbances([s.interference for s in slices]),
    )


def trials(store: Store, evaluation: Evaluation) -> list[TrialSection]:
    """Return every trial, in the order in which they were noted."""
    return [_trial(store, evaluation, trial) for trial in evaluation.trials()]


def _trial(store: Store, evaluation: Evaluation, trial: TrialNoted) -> TrialSection:
    configuration = trial.configuration
    ratio = rounded(evaluation.ratio(configuration))
    over = evaluation.row(configuration).over_bound
    records = launches_of(store, configuration)
    call = call_times(records, evaluation.objective)
    return TrialSection(
        number=trial.number,
        configuration=configuration.as_dict(),
        source=trial.source,
        outcome=Outcome.OVER_BOUND if over else trial.ending.outcome,
        reason=over or trial.ending.reason,
        launches=list(trial.launches),
        search_ratio=ratio,
        search_sd=None if ratio is None else rounded(evaluation.score_sd(configuration)),
        call_p50_s=None if call is None else call.p50_s,
        memory_bytes=memory_held(records),
    )


def learnt_from(store: Store) -> LearntFrom | None:
    """Return how earlier studies influenced the search; None if there were none."""
    noted = store.all(TransferNoted)
    if not noted:
        return None
    last = noted[-1]
    return LearntFrom(
        list(last.studies), last.n_configurations, rounded(last.rank_correlation), last.is_dropped
    )


def rounded(ratio: float | None) -> float | None:
    """Return a ratio with no more digits than a search's figure has."""
    return None if ratio is None else round(ratio, 4)


def timeline(store: Store) -> list[Moment]:
    """Return every slice of a study in the order of time.

    Clocks of different sessions are unrelated: each starts where the last one ended.
    """
    sessions: dict[int, list[tuple[Slice, float | None]]] = defaultdict(list)
    for record in store.launches.values():
        mean = _pacer_mean(record)
        for s in record.slices:
            sessions[record.request.session].append((s, s.rate / mean if mean else None))
    moments, ended_s = [], 0.0
    for _, slices in sorted(sessions.items()):
        slices.sort(key=lambda pair: pair[0].at)
        first = slices[0][0]
        began = first.at - first.seconds / 2
        moments += [_moment(s, ended_s + s.at - began, pacer) for s, pacer in slices]
        last = slices[-1][0]
        ended_s += last.at + last.seconds / 2 - began
    return moments


def _pacer_mean(record: LaunchRecord) -> float | None:
    if record.request.purpose is not Purpose.PACER or not record.slices:
        return None
    return statistics.fmean(s.rate for s in record.slices)


def _moment(s: Slice, at_s: float, pacer: float | None) -> Moment:
    return Moment(
        at_s=round(at_s, 1),
        foreign=round(s.interference.foreign + s.interference.steal, 3),
        dirty=list(s.interference.dirty),
        pacer=None if pacer is None else round(pacer, 4),
    )


def designed_section(store: Store, objective: Objective) -> DesignedSection | None:
    """Return every cell with its outcome; None if there was no designed part."""
    fixed = store.all(DesignFixed)
    if not fixed:
        return None
    measured: dict[int, _Launched] = {}
    for number, done in enumerate(whole_rounds(store), 1):
        default, *others = [store.launches[launch] for launch in done.launches]
        measured |= {
            cell: _Launched(number, default, own)
            for cell, own in zip(done.cells, others, strict=True)
        }
    design = fixed[0]
    cells = [_cell(cell, measured, objective) for cell in design.cells]
    of_default = {each.default.request.id: each.default for each in measured.values()}
    calls_s = [s.seconds / s.calls for r in of_default.values() for s in r.slices]
    return DesignedSection(
        cells,
        design.left_out,
        list(design.pairs),
        statistics.median(calls_s) if calls_s else None,
    )


class _Launched(NamedTuple):
    round: int
    default: LaunchRecord
    own: LaunchRecord


def _cell(cell: Cell, measured: Mapping[int, _Launched], objective: Objective) -> DesignedCell:
    outcome, reason, ratio, n_passes = None, cell.fault, None, 0
    twin = f"as cell {cell.same_as}" if cell.same_as else ""
    if cell.same_as == 0:
        reason, ratio = "the default", 0.0
    launched = measured.get(cell.same_as or cell.number)
    if launched is not None:
        ending = launched.own.ending
        assert ending is not None
        outcome, reason = ending.outcome, ending.reason or twin
        of_default = launched.default.ending
        assert of_default is not None
        passes = passes_of([launched.default, launched.own], objective)
        if of_default.outcome is not Outcome.MEASURED:
            reason = f"the default failed beside it: {of_default.reason}"
        elif outcome is Outcome.MEASURED and passes.n_taken:
            log_score_of_default, log_score = passes.values()
            ratio, n_passes = log_score - log_score_of_default, len(passes.log_scores)
    elif not reason:
        reason = "no time"
    return DesignedCell(
        number=cell.number,
        factors=list(cell.factors),
        configuration=cell.configuration.as_dict(),
        idle=list(cell.idle),
        same_as=cell.same_as,
        outcome=None if outcome is None else str(outcome),
        reason=reason,
        log_ratio=ratio,
        n_passes=n_passes,
        round=launched.round if launched else None,
    )


_MISSED = 0.05
"""The probability that more of the space is better than stated, at most."""


def unexplored_bound(evaluation: Evaluation) -> dict[WinnerClass, LeftToFind]:
    """Return, per class with random draws, how much of the class may still be better.

    If a share p of a class is better than the best of m independent draws, all of them missed it:
    with probability (1 - p)^m. So at most 1 - 0.05^(1/m) is better, with 95 % confidence. Other
    proposals can only have raised the best. Draws count if they did not depend on any measurement
    (search/sampler.py), and if no narrower class allows the configuration. They are uniform over
    the configurations of a listed space, otherwise over the values of its settings. Failures count
    as draws: they are no better. "Better" rests on the noisy launches of the search.
    """
    drawn = [narrowest_class(t.configuration) for t in evaluation.trials() if t.source == RANDOM]
    counts = {winner_class: drawn.count(winner_class) for winner_class in WinnerClass}
    return {
        winner_class: LeftToFind(n, round(1 - _MISSED ** (1 / n), 4))
        for winner_class, n in counts.items()
        if n
    }
