"""Short studies of real models in a space of settings that change nothing (nothing.toml).

The whole tool on real processes: what such a study calls faster, it calls so falsely. From the same
launches, what plain habits would have called faster.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from scipy import stats

from tuner.app.request import Request
from tuner.app.tune import tune
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.journal import RoundDone, TrialNoted
from tuner.record.launch import LaunchRecord
from tuner.record.result import Result
from tuner.record.store import Store

SPACE = Path(__file__).parent / "nothing.toml"
BATCHES = {"fc": 64, "ncf": 64}
"""The models, which take turns, with their batch: large products, and lookups in tables."""


class RealStudy(msgspec.Struct, frozen=True):
    """What came of one study in which nothing is faster."""

    model: str
    verdicts: dict[str, str]
    """By winner class."""
    recommended: str
    interval: Interval | None
    """Of the recommended class: the truth is 1."""
    n_trials: int
    n_rounds: int
    one_run_each: bool
    """Whether any configuration's first slice was faster than the default's first."""
    repeats: bool | None
    """Whether a t test at 5 % calls the candidate's slices in one process faster than those of the
    default in one; None without a round."""
    best_trial: bool
    """Whether the best trial's launch was faster than the default's."""
    seconds: float


def study(model: str, budget_s: float, seed: int) -> RealStudy:
    """Carry out one study and look at it in every way."""
    with tempfile.TemporaryDirectory() as folder:
        (finished,) = tune(
            Request(
                model=model,
                hardware=str(SPACE),
                frameworks=("torch",),
                budget_s=budget_s,
                out=Path(folder) / "study",
                batch=BATCHES[model],
                seed=seed,
            ),
            lambda _: None,
        )
        if finished.result is None:
            sys.exit(f"study {seed} of {model}: {finished.error}")
        result: Result = finished.result
        with Store(finished.folder) as store:
            default, others = _trials(store)
            rounds = store.all(RoundDone)
            repeats = _differ([store.launches[i] for i in rounds[0].launches]) if rounds else None
    winner = result.winners[result.recommended_class]
    return RealStudy(
        model=model,
        verdicts={name: str(winner.verdict) for name, winner in result.winners.items()},
        recommended=result.recommended_class,
        interval=winner.speedup,
        n_trials=len(result.trials),
        n_rounds=len(rounds),
        one_run_each=any(r.slices[0].rate > default.slices[0].rate for r in others),
        repeats=repeats,
        best_trial=any(_median_rate(r) > _median_rate(default) for r in others),
        seconds=result.seconds.wall,
    )


def _trials(store: Store) -> tuple[LaunchRecord, list[LaunchRecord]]:
    """Return the default's first launch, and those of all other trials."""
    first = {t.configuration: store.launches[t.launches[0]] for t in store.all(TrialNoted)}
    default = first.pop(Configuration())
    return default, [record for record in first.values() if record.slices]


def _median_rate(record: LaunchRecord) -> float:
    return statistics.median(s.rate for s in record.slices)


def _differ(arms: list[LaunchRecord]) -> bool:
    """Tell whether any arm's slices are faster than the default's by a t test at 5 %."""
    default, *others = ([s.rate for s in arm.slices] for arm in arms)
    return any(
        stats.ttest_ind(rates, default, equal_var=False).pvalue < 0.05
        and statistics.fmean(rates) > statistics.fmean(default)
        for rates in others
    )


def real_studies(
    n_studies: int, budget_s: float, told: Callable[[int], None] = lambda _: None
) -> list[RealStudy]:
    """Carry out so many, the models in turn."""
    models = list(BATCHES)
    found = []
    for number in range(n_studies):
        found.append(study(models[number % len(models)], budget_s, seed=number))
        told(number + 1)
    return found
