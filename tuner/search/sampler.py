"""A portfolio of proposals as an Optuna sampler: never a configuration that was tried before.

Plain TPE proposes 9-25 % of its configurations twice. Here every proposal is canonical, feasible,
in the winner class that is asked about, and new; its source takes turns:

neighbour   one knob away from the best of the class: values first that need this very class and
            were in no trial, then the most promising; what is nearly additive in the logarithm
            (as runtime settings are) is climbed in few steps
tpe         Optuna's multivariate TPE, with the knobs outside the class fixed; asked again while it
            proposes what is known
random      uniform over what is left: keeps an eye on what the others would never try
"""

from __future__ import annotations

import math
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.record.configuration import Configuration, Value
from tuner.record.journal import WinnerClass
from tuner.space.knobs import winner_class
from tuner.space.resolve import Space

_SOURCES = ("neighbour", "tpe", "neighbour", "tpe", "random")
_TPE_ATTEMPTS = 12
_RANDOM_ATTEMPTS = 200
_STARTUP_TRIALS = 4
_SHRINKAGE = 0.1
"""Ridge penalty in units of trials: an effect that one trial shows is believed to nine tenths."""

Scores = Callable[[], Mapping[Configuration, float | None]]


class Exhausted(Exception):
    """Nothing new is left in the class that was asked about."""


class PortfolioSampler(BaseSampler):
    """Proposes for the class in `focus`; `scores` tells what was tried (None: without a score)."""

    def __init__(self, space: Space, scores: Scores, seed: int) -> None:
        self.space = space
        self._scores = scores
        self._seed = seed
        self._random = random.Random(seed)
        self._turns: dict[WinnerClass, int] = defaultdict(int)
        self.focus = WinnerClass.REDUCED
        self.source = ""
        """Who made the last proposal."""
        self._offered: Configuration | None = None
        # one trial at a time: nothing to lie about, and nothing to write into the storage
        self._tpe = TPESampler(n_startup_trials=_STARTUP_TRIALS, seed=seed, constant_liar=False)

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna's distributions: every knob is categorical.

        Thread counts too: what is best is often not monotone in them, and an index-coded integer
        can do worse than random on such a space (measurement notes, section 2.3).
        """
        return {knob.id: CategoricalDistribution(knob.choices) for knob in self.space.searched}

    def offer(self, configuration: Configuration) -> None:
        """Have the next trial of Optuna's study be this configuration."""
        self._offered = configuration

    def propose(self, study: Study) -> Configuration:
        """Return a new configuration of the class in focus; raises Exhausted."""
        tried = self._scores()
        for _ in _SOURCES:
            source = _SOURCES[self._turns[self.focus] % len(_SOURCES)]
            self._turns[self.focus] += 1
            proposal = {
                "neighbour": lambda: self._neighbour(tried),
                "tpe": lambda: self._by_tpe(study, tried),
                "random": lambda: self._at_random(tried),
            }[source]()
            if proposal is not None:
                self.source = source
                return proposal
        proposal = self._any_left(tried)
        if proposal is None:
            raise Exhausted(f"every configuration of class {self.focus} has been tried")
        self.source = "random"
        return proposal

    def _is_new(self, configuration: Configuration, tried: Mapping[Configuration, Any]) -> bool:
        order = list(WinnerClass)
        return (
            configuration not in tried
            and order.index(winner_class(configuration)) <= order.index(self.focus)
            and self.space.contains(configuration)
        )

    def incumbent(self, tried: Mapping[Configuration, float | None]) -> Configuration | None:
        """Return the best scored configuration that the class in focus allows."""
        order = list(WinnerClass)
        scored = {
            c: s
            for c, s in tried.items()
            if s is not None and order.index(winner_class(c)) <= order.index(self.focus)
        }
        return max(scored, key=scored.__getitem__) if scored else None

    def open_neighbours(self, tried: Mapping[Configuration, float | None]) -> list[Configuration]:
        """Return the untried configurations one knob away from the class's best."""
        best = self.incumbent(tried)
        if best is None:
            return []
        return [c for c in self.space.neighbours(best) if self._is_new(c, tried)]

    def _neighbour(self, tried: Mapping[Configuration, float | None]) -> Configuration | None:
        candidates = self.open_neighbours(tried)
        if not candidates:
            return None
        best = self.incumbent(tried)
        assert best is not None
        gains = self._gains(tried)
        seen = {pair for c in tried for pair in self.space.assignment(c).items()}
        self._random.shuffle(candidates)
        here = self.space.assignment(best)

        def promise(candidate: Configuration) -> tuple[bool, float]:
            there = self.space.assignment(candidate)
            changes = [(knob, value) for knob, value in there.items() if value != here[knob]]
            is_unseen = not seen.issuperset(changes)
            gain = sum(gains.get((k, v), 0.0) - gains.get((k, here[k]), 0.0) for k, v in changes)
            return is_unseen and winner_class(candidate) is self.focus, gain

        return max(candidates, key=promise)

    def _gains(self, tried: Mapping[Configuration, float | None]) -> dict[tuple[str, Value], float]:
        """Return each tried knob value's effect on the score, all of them estimated together.

        An additive model, shrunk a little (ridge): a value's mean over the trials that had it
        would blame it for the company it was tried in. What failed counts as half as fast as the
        slowest, so that its values come late unless other trials clear them.
        """
        failed = min(s for s in tried.values() if s is not None) - math.log(2)
        rows = [self.space.assignment(c) for c in tried]
        columns = list(dict.fromkeys(pair for row in rows for pair in row.items()))
        x = np.array([[row[knob] == value for knob, value in columns] for row in rows], dtype=float)
        y = np.array([failed if s is None else s for s in tried.values()])
        penalty = _SHRINKAGE * np.eye(len(columns))
        effects = np.linalg.solve(x.T @ x + penalty, x.T @ (y - y.mean()))
        return dict(zip(columns, effects.tolist(), strict=True))

    def _by_tpe(self, study: Study, tried: Mapping[Configuration, Any]) -> Configuration | None:
        allowed = self.space.choices_within(self.focus)
        fixed = {knob: choices[0] for knob, choices in allowed.items() if len(choices) == 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = PartialFixedSampler(dict(fixed), self._tpe)
        space = {k: d for k, d in self.distributions().items() if k not in fixed}
        nobody = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
        for _ in range(_TPE_ATTEMPTS):
            found = sampler.sample_relative(study, nobody, space)
            if not found:  # TPE's own start-up
                return self._at_random(tried)
            proposal = self.space.canonical({**self.fixed(), **fixed, **found})
            if self._is_new(proposal, tried):
                return proposal
        return None

    def fixed(self) -> dict[str, Value]:
        """Return the values of knobs that the user fixed."""
        return {k.id: k.choices[0] for k in self.space.knobs if len(k.choices) == 1}

    def _at_random(self, tried: Mapping[Configuration, Any]) -> Configuration | None:
        allowed = self.space.choices_within(self.focus)
        for _ in range(_RANDOM_ATTEMPTS):
            drawn = {knob: self._random.choice(choices) for knob, choices in allowed.items()}
            proposal = self.space.canonical({**self.fixed(), **drawn})
            if self._is_new(proposal, tried):
                return proposal
        return None

    def _any_left(self, tried: Mapping[Configuration, Any]) -> Configuration | None:
        return next((c for c in self.space.configurations() if self._is_new(c, tried)), None)

    # ---------------------------------------------------------------- Optuna's interface

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Everything is sampled jointly."""
        return self.distributions()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of what was offered."""
        if self._offered is None:
            return {}
        found, self._offered = self._offered, None
        values = self.space.assignment(found)
        return {knob: values[knob] for knob in search_space}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Never asked: every knob is in the relative space."""
        raise RuntimeError(f"{param_name} is not a knob of this space")
