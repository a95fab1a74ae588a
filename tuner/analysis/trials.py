"""The trials, and the influence of earlier studies."""

from __future__ import annotations

from tuner.record.journal import TransferNoted
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.record.study_stats import LearntFrom, TrialSection
from tuner.study.evaluation import Evaluation


def trials(evaluation: Evaluation) -> list[TrialSection]:
    """Return every trial, in the order in which they were noted."""
    ratios = {t.number: rounded(evaluation.ratio(t.configuration)) for t in evaluation.trials()}
    over = {t.number: evaluation.row(t.configuration).over_bound for t in evaluation.trials()}
    return [
        TrialSection(
            number=trial.number,
            configuration=trial.configuration.as_dict(),
            source=trial.source,
            outcome=Outcome.OVER_BOUND if over[trial.number] else trial.ending.outcome,
            reason=over[trial.number] or trial.ending.reason,
            launches=list(trial.launches),
            search_ratio=ratios[trial.number],
            search_sd=(
                None
                if ratios[trial.number] is None
                else rounded(evaluation.score_sd(trial.configuration))
            ),
        )
        for trial in evaluation.trials()
    ]


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
