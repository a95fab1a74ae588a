"""A portfolio of proposals as an Optuna sampler: never a configuration that was tried before.

Plain TPE proposes 9-25 % of its configurations twice. Here every proposal is canonical, feasible,
in the winner class that is asked about, and new; its source takes turns:

surrogate   what a Gaussian process over everything tried (search/surrogate.py) expects most of,
            among what a few steps of one knob each lead past from the best of the class
tpe         Optuna's multivariate TPE, with the knobs outside the class fixed; asked again while it
            proposes what is known
random      uniform over what is left: keeps an eye on what the others would never try
"""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.record.configuration import Configuration, Value
from tuner.record.journal import WinnerClass
from tuner.search.surrogate import Surrogate
from tuner.space.knobs import winner_class
from tuner.space.space import Space

_SOURCES = (*("surrogate",) * 7, "tpe", *("surrogate",) * 6, "random")
_STEPS = 4
"""Knobs that one proposal of the surrogate may change, from the best that was tried."""
_OWN_CLASS = 2.0
"""By how much an expected gain counts more in the only class that allows it: what narrower classes
allow is proposed in their own turns."""
_LITTLE = 0.002
"""Expected gain of the log rate below which the best is compared with its neighbours: once all of
them are tried, the search may end."""
_TPE_ATTEMPTS = 12
_RANDOM_ATTEMPTS = 200
_ENUMERATED = 10_000
"""Combinations looked through, once everything else proposes what is known, before giving up."""
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
        self._surrogate = Surrogate(space)
        self._known_pairs: dict[Configuration, tuple[tuple[str, Value], ...]] = {}
        self.source = ""
        """Who made the last proposal."""
        # one trial at a time: nothing to lie about, and nothing to write into the storage
        self._tpe = TPESampler(n_startup_trials=_STARTUP_TRIALS, seed=seed, constant_liar=False)

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna's distributions: every knob is categorical.

        Thread counts too: what is best is often not monotone in them, and an index-coded integer
        can do worse than random on such a space (measurement notes, section 2.3).
        """
        return {knob.id: CategoricalDistribution(knob.choices) for knob in self.space.searched}

    def propose(self, study: Study) -> Configuration:
        """Return a new configuration of the class in focus; raises Exhausted."""
        tried = self._scores()
        for source in self._in_turn():
            proposal = {
                "surrogate": lambda: self._by_surrogate(tried),
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

    def _in_turn(self) -> Iterator[str]:
        """Yield the source whose turn it is, then each other one: the first that has something."""
        source = _SOURCES[self._turns[self.focus] % len(_SOURCES)]
        self._turns[self.focus] += 1
        yield source
        yield from dict.fromkeys(other for other in _SOURCES if other != source)

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

    def _by_surrogate(self, tried: Mapping[Configuration, float | None]) -> Configuration | None:
        """Return the most promising configuration that a few steps from the best lead past."""
        here = self.incumbent(tried)
        if here is None:
            return None
        self._surrogate.fit(_with_failures(tried))
        found: dict[Configuration, float] = {}
        near: dict[Configuration, float] = {}
        looked: set[Configuration] = set()
        for _ in range(_STEPS):
            looked.add(here)
            around = [c for c in self._allowed_neighbours(here) if c not in looked]
            if not around:
                break
            gains = self._surrogate.expected_gains(around)
            found |= {
                c: float(gain) * (_OWN_CLASS if winner_class(c) is self.focus else 1.0)
                for c, gain in zip(around, gains, strict=True)
                if c not in tried
            }
            near = near or dict(found)  # around the best itself, while any is untried
            here = around[int(np.argmax(gains))]
        if near and max(found.values()) < _LITTLE:
            found = near
        return max(found, key=found.__getitem__) if found else None

    def _allowed_neighbours(self, configuration: Configuration) -> list[Configuration]:
        """Return a configuration's neighbours that the class in focus allows."""
        order = list(WinnerClass)
        most = order.index(self.focus)
        return [
            c for c in self.space.neighbours(configuration) if order.index(winner_class(c)) <= most
        ]

    def _is_late(
        self, candidate: Configuration, tried: Mapping[Configuration, float | None]
    ) -> bool:
        """Tell whether a neighbour of the best changes a knob of which little is expected."""
        best = self.incumbent(tried)
        assert best is not None
        here, there = self.space.assignment(best), self.space.assignment(candidate)
        return any(self.space.is_late(k) for k, value in there.items() if value != here[k])

    def _allowed(self, tried: Mapping[Configuration, float | None]) -> dict[str, tuple[Value, ...]]:
        """Return the choices of the class in focus; late knobs stay as the best has them at first.

        Their turn comes when the other knobs have no untried neighbour of the best left.
        """
        allowed = self.space.choices_within(self.focus)
        best = self.incumbent(tried)
        if best is None or all(self._is_late(c, tried) for c in self.open_neighbours(tried)):
            return allowed
        here = self.space.assignment(best)
        return {
            knob: (here[knob],) if self.space.is_late(knob) else choices
            for knob, choices in allowed.items()
        }

    def _gains(self, tried: Mapping[Configuration, float | None]) -> dict[tuple[str, Value], float]:
        """Return each tried knob value's effect on the score, all of them estimated together.

        An additive model, shrunk a little (ridge): a value's mean over the trials that had it
        would blame it for the company it was tried in. What failed counts as half as fast as the
        slowest, so that its values come late unless other trials clear them.
        """
        rates = _with_failures(tried)
        rows = [self._pairs(c) for c in tried]
        columns = {pair: k for k, pair in enumerate(dict.fromkeys(itertools.chain(*rows)))}
        x = np.zeros((len(rows), len(columns)))
        for i, row in enumerate(rows):
            x[i, [columns[pair] for pair in row]] = 1.0
        y = np.array(list(rates.values()))
        penalty = _SHRINKAGE * np.eye(len(columns))
        effects = np.linalg.solve(x.T @ x + penalty, x.T @ (y - y.mean()))
        return dict(zip(columns, effects.tolist(), strict=True))

    def _pairs(self, configuration: Configuration) -> tuple[tuple[str, Value], ...]:
        """Return every knob's value, kept: they are asked for at each proposal."""
        if configuration not in self._known_pairs:
            pairs = tuple(self.space.assignment(configuration).items())
            self._known_pairs[configuration] = pairs
        return self._known_pairs[configuration]

    def gains(self, configuration: Configuration) -> dict[str, float]:
        """Return what each setting gains over the default's value, by all trials so far (log rate).

        A guess from the additive model; no proof of anything. Settings of which the default has no
        value (they only exist beside another setting) are left out, and all before any score.
        """
        tried = self._scores()
        if all(score is None for score in tried.values()):
            return {}
        gains = self._gains(tried)
        default = self.space.assignment(Configuration())
        return {
            knob: gains.get((knob, value), 0.0) - gains.get((knob, default[knob]), 0.0)
            for knob, value in configuration.settings
            if knob in default
        }

    def _by_tpe(self, study: Study, tried: Mapping[Configuration, Any]) -> Configuration | None:
        allowed = self._allowed(tried)
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
        allowed = self._allowed(tried)
        for _ in range(_RANDOM_ATTEMPTS):
            drawn = {knob: self._random.choice(choices) for knob, choices in allowed.items()}
            proposal = self.space.canonical({**self.fixed(), **drawn})
            if self._is_new(proposal, tried):
                return proposal
        return None

    def _any_left(self, tried: Mapping[Configuration, Any]) -> Configuration | None:
        """Return the first new configuration of the class in a bounded look through all of them."""
        allowed = self.space.choices_within(self.focus)
        everything = itertools.product(*allowed.values())
        for values in itertools.islice(everything, _ENUMERATED):
            proposal = self.space.canonical(
                {**self.fixed(), **dict(zip(allowed, values, strict=True))}
            )
            if self._is_new(proposal, tried):
                return proposal
        return None

    # ---------------------------------------------------------------- Optuna's interface

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Everything is sampled jointly."""
        return self.distributions()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose on behalf of whoever asks the study; raises Exhausted."""
        values = self.space.assignment(self.propose(study))
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


def _with_failures(tried: Mapping[Configuration, float | None]) -> dict[Configuration, float]:
    """Return a score for each: what failed counts as half as fast as the slowest."""
    failed = min(s for s in tried.values() if s is not None) - math.log(2)
    return {c: failed if s is None else s for c, s in tried.items()}
