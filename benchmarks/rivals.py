"""The searches that this one is compared with, each as its users run it, on a recorded table.

random          each configuration once, in random order; the fastest seen is recommended
                (IPEX hypertune's random strategy, without its duplicates)
grid            every combination once, in the order of the settings (IPEX hypertune's default)
five-repeats    random order, five launches each, the best mean (huggingface/tune, HyperTune style)
tpe             Optuna 5's default sampler over categorical settings, a launch a trial, best_trial
gp              Optuna's GPSampler, likewise
smac            SMAC3's hyperparameter optimisation facade with its racing intensifier (at most
                three launches a configuration), its incumbent
nelder-mead     over the positions of the values, from random starts (TensorTuner, arXiv:1812.01665)
kt-vndx, kt-genetic   Kernel Tuner's hybrid_vndx (the best of those generated for it in "Automated
                Algorithm Design For Auto-Tuning Optimizers") and genetic_algorithm, each
                configuration once

They see the same launches as the tool's own search, with the same recorded seconds, and no pacer.
What they compute costs them nothing. Kernel Tuner's and Nelder-Mead's ask for a known configuration
is answered from memory, at no cost, as those tools do.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from benchmarks.deck import Deck
from benchmarks.score import Run, Step
from benchmarks.table import Table
from tuner.record.configuration import Configuration, Value
from tuner.record.outcome import Outcome

_IDLE = 3000
"""Answers from memory in a row after which a search is taken to have come to its end."""
_IDLE_PER_ROW = 10
"""The same for each configuration of a small table."""


class Meter:
    """Launches configurations for one search, and keeps its clock and what it recommends."""

    def __init__(self, table: Table, deck: Deck, budget_s: float, most: int) -> None:
        self.table = table
        self._deck = deck
        self._budget_s = budget_s
        self._most = most
        self._steps: list[Step] = []
        self.seconds = 0.0
        self.n_launches = self.n_duplicates = 0
        self.seen: dict[Configuration, list[float | None]] = {}

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or so many launches were made as are allowed."""
        return self.seconds >= self._budget_s or self.n_launches >= self._most

    @property
    def spent(self) -> float:
        """Share of the time that is used up, at most 1."""
        return min(1.0, self.seconds / self._budget_s)

    def row(self, values: tuple[Value, ...]) -> Configuration | None:
        """Return the canonical configuration with these values; None if the table lacks it."""
        return self.table.same_as.get(values)

    def launch(self, row: Configuration, *, on_purpose: bool = False) -> float | None:
        """Launch a configuration; return its log rate, None if it fails."""
        dealt = self._deck.deal(row)
        taken = dealt.taken
        self.seconds += taken.total_s
        self.n_launches += 1
        self.n_duplicates += row in self.seen and not on_purpose
        level = dealt.log_rate if taken.outcome == Outcome.MEASURED and taken.slices else None
        self.seen.setdefault(row, []).append(level)
        return level

    def recommend(self, row: Configuration) -> None:
        """Recommend a configuration from now on."""
        if not self._steps or self._steps[-1].row != row:
            self._steps.append(Step(self.seconds, row))

    @property
    def n_affordable(self) -> int:
        """Launches that the budget is about enough for: what its user would expect."""
        launches = [taken for each in self.table.launches.values() for taken in each]
        mean_s = statistics.fmean(taken.total_s for taken in launches)
        return max(1, min(self._most, round(self._budget_s / mean_s)))

    def run(self) -> Run:
        """Return what came of it."""
        return Run(tuple(self._steps), self.seconds, self.n_launches, self.n_duplicates,
                   self.seconds)  # fmt: skip


def _rows(meter: Meter, seed: int) -> Iterator[Configuration]:
    """Yield the table's configurations in random order."""
    rows = list(meter.table.launches)
    yield from random.Random(seed).sample(rows, len(rows))


class _Best:
    """Keeps the best of values that are told one by one."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._best = -math.inf

    def tell(self, row: Configuration, level: float | None) -> None:
        if level is not None and level > self._best:
            self._best = level
            self._meter.recommend(row)


def at_random(meter: Meter, seed: int) -> None:
    best = _Best(meter)
    for row in _rows(meter, seed):
        if meter.is_over:
            return
        best.tell(row, meter.launch(row))


def grid(meter: Meter, seed: int) -> None:
    best = _Best(meter)
    for values in itertools.product(*meter.table.choices.values()):
        if meter.is_over:
            return
        if (row := meter.row(values)) is not None:
            best.tell(row, meter.launch(row))


def five_repeats(meter: Meter, seed: int) -> None:
    best = _Best(meter)
    for row in _rows(meter, seed):
        levels: list[float | None] = []
        while len(levels) < 5 and (not levels or levels[-1] is not None):
            if meter.is_over:
                return
            levels.append(meter.launch(row, on_purpose=bool(levels)))
        working = [level for level in levels if level is not None]
        best.tell(row, statistics.fmean(working) if len(working) == 5 else None)


def _optuna(
    meter: Meter, sampler: optuna.samplers.BaseSampler, *, is_told_worst: bool = False
) -> None:
    """Ask and tell; a failure is told as pruned, of which TPE learns, or as the worst."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    best = _Best(meter)
    n_asked, slowest = 0, 0.0
    while not meter.is_over and n_asked < 10 * meter.n_launches + _IDLE:
        trial = study.ask()
        n_asked += 1
        values: Any = tuple(
            trial.suggest_categorical(knob, choices)
            for knob, choices in meter.table.choices.items()
        )
        row = meter.row(values)
        level = None if row is None else meter.launch(row)
        if row is None or level is None:
            if is_told_worst:
                study.tell(trial, slowest - 1)
            else:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        slowest = min(slowest, level)
        study.tell(trial, level)
        best.tell(row, level)


def tpe(meter: Meter, seed: int) -> None:
    _optuna(meter, optuna.samplers.TPESampler(seed=seed))


def gp(meter: Meter, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _optuna(meter, optuna.samplers.GPSampler(seed=seed), is_told_worst=True)


def nelder_mead(meter: Meter, seed: int) -> None:
    from scipy.optimize import minimize

    random_ = np.random.default_rng(seed)
    choices = list(meter.table.choices.values())
    most = np.array([len(values) - 1 for values in choices], dtype=float)
    best = _Best(meter)
    slowest = 0.0
    n_idle = 0

    class Over(Exception):
        pass

    def cost(x: np.ndarray) -> float:
        nonlocal slowest, n_idle
        where = np.clip(np.rint(x), 0, most).astype(int)
        row = meter.row(tuple(values[k] for values, k in zip(choices, where, strict=True)))
        if row is None or row in meter.seen:
            n_idle += 1
            if n_idle > _IDLE:
                raise Over
            known = None if row is None else meter.seen[row][0]
            return slowest + 1 if known is None else -known
        if meter.is_over:
            raise Over
        n_idle = 0
        level = meter.launch(row)
        best.tell(row, level)
        if level is None:
            return slowest + 1
        slowest = max(slowest, -level)
        return -level

    try:
        while True:
            start = random_.uniform(0, most)
            simplex = [start]
            for k, length in enumerate(most):
                corner = start.copy()
                corner[k] += max(1.0, length / 2) * (1 if start[k] <= length / 2 else -1)
                simplex.append(corner)
            minimize(cost, start, method="Nelder-Mead",
                     options={"initial_simplex": np.array(simplex), "xatol": 0.5,
                              "fatol": 1e-4, "maxfev": 200})  # fmt: skip
    except Over:
        pass


def smac(meter: Meter, seed: int) -> None:
    from ConfigSpace import Categorical, ConfigurationSpace
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.main.exceptions import ConfigurationSpaceExhaustedException
    from smac.runhistory import StatusType, TrialValue

    logging.getLogger("smac").setLevel(logging.ERROR)
    space = ConfigurationSpace(seed=seed)
    indices = {
        knob: list(range(len(values)))
        for knob, values in meter.table.choices.items()
        if len(values) > 1
    }
    space.add([Categorical(knob, places) for knob, places in indices.items()])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scenario = Scenario(space, deterministic=False, n_trials=meter.n_affordable, seed=seed,
                            output_directory=Path(folder))  # fmt: skip
        search: Any = HyperparameterOptimizationFacade(
            scenario,
            lambda config, seed: 0.0,
            intensifier=HyperparameterOptimizationFacade.get_intensifier(
                scenario, max_config_calls=3
            ),
            overwrite=True,
            logging_level=False,
        )
        slowest, launched, n_asked = 0.0, set(), 0
        while not meter.is_over and n_asked < 10 * meter.n_launches + _IDLE:
            try:
                info = search.ask()
            except ConfigurationSpaceExhaustedException:
                return
            n_asked += 1
            row = meter.row(_values(meter, info.config))
            level = None
            if row is not None:
                level = meter.launch(row, on_purpose=info.config in launched)
                launched.add(info.config)
            if level is None:
                search.tell(info, TrialValue(cost=slowest + 1, status=StatusType.CRASHED))
            else:
                slowest = max(slowest, -level)
                search.tell(info, TrialValue(cost=-level, status=StatusType.SUCCESS))
            incumbent = search.intensifier.get_incumbent()
            if incumbent is not None and (found := meter.row(_values(meter, incumbent))):
                meter.recommend(found)


def _values(meter: Meter, config: Any) -> tuple[Value, ...]:
    return tuple(
        values[int(config[knob])] if len(values) > 1 else values[0]
        for knob, values in meter.table.choices.items()
    )


def _most_idle(meter: Meter) -> int:
    return min(_IDLE, _IDLE_PER_ROW * len(meter.table.launches))


def kt_vndx(meter: Meter, seed: int) -> None:
    from benchmarks.kernel_tuner_rival import tune

    tune(meter, _Best(meter).tell, "hybrid_vndx", seed, _most_idle(meter))


def kt_genetic(meter: Meter, seed: int) -> None:
    from benchmarks.kernel_tuner_rival import tune

    tune(meter, _Best(meter).tell, "genetic_algorithm", seed, _most_idle(meter))


RIVALS: dict[str, Callable[[Meter, int], None]] = {
    "random": at_random,
    "grid": grid,
    "five-repeats": five_repeats,
    "tpe": tpe,
    "gp": gp,
    "smac": smac,
    "nelder-mead": nelder_mead,
    "kt-vndx": kt_vndx,
    "kt-genetic": kt_genetic,
}


def rival_on(
    name: str, table: Table, noise: float, budget_s: float, seed: int, most: int = 1_000_000
) -> Run:
    """Carry out one search of a rival; `most` bounds its launches where it computes for long."""
    meter = Meter(table, Deck(table, noise, seed), budget_s, most)
    RIVALS[name](meter, seed)
    return meter.run()
