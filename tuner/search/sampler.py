"""A portfolio of proposals as an Optuna sampler: never a configuration that was tried before.

Plain TPE proposes 9-25 % of its configurations twice. Here every proposal is canonical, feasible,
in the requested winner class, and new. First come combinations of what a study was given, then
their leader with values that were not tried yet (search/combinations.py). After them these sources
take turns:

surrogate   the highest expected improvement per second, by a Gaussian process over everything
        tried (search/surrogate.py), in the whole class (search/pool.py)
nearby      the same, one knob away from the best few
tpe         Optuna's multivariate TPE, with the knobs outside the class fixed; asked again while it
        proposes known configurations
random      uniform over the rest: tries what the others never would
rest        the rest in its order, if none of them finds anything new
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.record.configuration import Configuration, Value
from tuner.record.winner_class import WinnerClass
from tuner.search.combinations import Unions
from tuner.search.pool import Pool
from tuner.search.proposals import RANDOM, UNION, Belief, Exhausted
from tuner.search.surrogate import Score, Surrogate
from tuner.search.transfer import Transfer
from tuner.space.catalogue import allowed_in, narrowest_class
from tuner.space.listing import choices_within
from tuner.space.space import Space

_PAIR = ("nearby", "surrogate")
_SOURCES = (*_PAIR * 4, "tpe", *_PAIR * 3, "random")
"""The order in which sources take turns: one proposal in 16 is random."""
_FOUR = ("nearby", "nearby", "nearby", "surrogate")
_SOURCES_OF_MANY = (*_FOUR * 2, "tpe", *_FOUR, "nearby", "random")
"""In a space that is not listed: a sample of it seldom holds anything as good as the neighbours."""
REST = "rest"
SOURCES = (UNION, "surrogate", "nearby", "tpe", RANDOM, REST)
"""Every name under which something is proposed here."""
UNGUIDED = ("tpe", RANDOM, REST)
"""Sources that do not ask the surrogate."""
_ELSEWHERE = ("tpe", RANDOM, "surrogate")
"""The sources when the surrogate expects nothing any more."""
_N_BEST = 5
"""Configurations around which `nearby` looks."""
_STEPS = 3
"""Steps of one knob each that are followed from the best, in a space that is not listed."""
_OWN_CLASS = 2.0
"""By how much an expected gain counts more in the only class that allows it: what narrower classes
allow is proposed in their own turns."""
_LATE = 0.5
"""By how much it counts for each late knob that is changed from the best."""
_TPE_ATTEMPTS, _RANDOM_ATTEMPTS, _STARTUP_TRIALS = 12, 200, 4
_ENUMERATED = 10_000
"""Combinations examined before giving up, when every source proposes known configurations."""
_LAUNCH_SD = 0.02
"""SD of a score whose own is unknown: a second launch on a quiet shared host differs by that."""

Scores = Callable[[], Mapping[Configuration, float | None]]


class PortfolioSampler(BaseSampler):
    """Proposes for the class in `focus`.

    scores: what was tried (None: without a score). sd: the standard error of a score (log). cost_s:
    the seconds that a tried configuration took. transfer: earlier studies.
    """

    def __init__(
        self,
        space: Space,
        scores: Scores,
        seed: int,
        *,
        sd: Callable[[Configuration], float] = lambda _: _LAUNCH_SD,
        cost_s: Callable[[Configuration], float] = lambda _: 1.0,
        transfer: Transfer | None = None,
    ) -> None:
        self.space = space
        self.transfer = transfer or Transfer(space)
        self._scores = scores
        self._sd = sd
        self._cost_s = cost_s
        self._seed = seed
        self._random = random.Random(seed)
        self._turns: dict[WinnerClass, int] = defaultdict(int)
        self.focus = WinnerClass.REDUCED_PRECISION
        self.surrogate = Surrogate(
            space, self.transfer.hints if self.transfer.tells_anything else None
        )
        self.unions = Unions(space)
        self._pool = Pool(space, self._random)
        self._fitted: Mapping[Configuration, Score | None] = {}
        self.source = ""
        """Who made the last proposal."""
        self.expected_gain: dict[WinnerClass, float] = {}
        """By class, of its most promising configuration at the surrogate's last turn (log)."""
        self.around: dict[WinnerClass, Configuration] = {}
        """By class: the configuration whose neighbours are all tried before anything else."""
        self.looks_elsewhere: set[WinnerClass] = set()
        """Classes where the surrogate expects no gain: other sources confirm or refute it."""
        # one trial at a time: nothing to lie about, and nothing to write into the storage
        self._tpe = TPESampler(n_startup_trials=_STARTUP_TRIALS, seed=seed, constant_liar=False)

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna's distributions: every knob is categorical.

        Thread counts too: the best is often not monotone in them, and an index-coded integer can do
        worse than random on such a space (measurement notes, section 2.3).
        """
        return {knob.id: CategoricalDistribution(knob.choices) for knob in self.space.searched}

    def propose(self, study: Study) -> Configuration:
        """Return a new configuration of the class in focus; raises Exhausted."""
        if (first := self.united()) is not None:
            self.source = UNION
            return first
        tried = self._scores()
        for source in self._in_turn():
            proposal = {
                "surrogate": lambda: self._by_surrogate(tried, is_nearby=False),
                "nearby": lambda: self._by_surrogate(tried, is_nearby=True),
                "tpe": lambda: self._by_tpe(study, tried),
                "random": lambda: self._at_random(tried),
            }[source]()
            if proposal is not None:
                self.source = source
                return proposal
        proposal = self._any_left(tried)
        if proposal is None:
            raise Exhausted(f"every configuration of class {self.focus} has been tried")
        self.source = REST
        return proposal

    def united(self) -> Configuration | None:
        """Return a combination of what gained, or its leader with an untried value."""
        tried = self._scores()
        best = self.best_few(tried)
        if not best:
            return None
        return self.unions.propose(
            best[0], self.focus, tried, self._sd, functools.partial(self._is_new, tried=tried)
        )

    def _in_turn(self) -> Iterator[str]:
        """Yield the source whose turn it is, then each other one: the first that has something."""
        sources: tuple[str, ...] = _SOURCES
        if self.focus in self.looks_elsewhere:
            sources = _ELSEWHERE
        elif self._pool.whole() is None:
            sources = _SOURCES_OF_MANY
        source = sources[self._turns[self.focus] % len(sources)]
        self._turns[self.focus] += 1
        yield source
        yield from dict.fromkeys(other for other in sources if other != source)

    def _is_new(self, configuration: Configuration, tried: Mapping[Configuration, Any]) -> bool:
        return (
            configuration not in tried
            and allowed_in(self.focus, configuration)
            and self.space.contains(configuration)
        )

    # ---------------------------------------------------------------- the surrogate

    def beliefs(self, configurations: Sequence[Configuration]) -> list[Belief]:
        """Estimate the scores of configurations from everything that was tried.

        Raises ValueError before anything has a score.
        """
        tried = self._scores()
        if all(score is None for score in tried.values()):
            raise ValueError("nothing has a score yet")
        self._learn_from(tried)
        return self.surrogate.beliefs(configurations)

    def _learn_from(self, tried: Mapping[Configuration, float | None]) -> None:
        scores = {
            c: None if log_score is None else Score(log_score, self._sd(c))
            for c, log_score in tried.items()
        }
        if scores == self._fitted:
            return
        self._fitted = scores
        self.surrogate.fit(
            {c: score for c, score in scores.items() if score is not None},
            [c for c, score in scores.items() if score is None],
            {c: self._cost_s(c) for c in scores},
        )

    def best_few(self, tried: Mapping[Configuration, float | None]) -> list[Configuration]:
        """Return the scored configurations of the class in focus, those believed the best first."""
        scored = [c for c, s in tried.items() if s is not None and allowed_in(self.focus, c)]
        if not scored:
            return []
        self._learn_from(tried)
        beliefs = dict(zip(scored, self.surrogate.beliefs(scored), strict=True))
        return sorted(scored, key=lambda c: -beliefs[c].mean)[:_N_BEST]

    def open_neighbours(
        self, configuration: Configuration, tried: Mapping[Configuration, float | None]
    ) -> list[Configuration]:
        """Return the untried configurations of the class in focus that are one knob away."""
        return [c for c in self.space.adjacent(configuration) if self._is_new(c, tried)]

    def n_left(self, tried: Mapping[Configuration, float | None]) -> float:
        """Return how many configurations of the class in focus are untried; of many, infinity."""
        found = self._pool.left(self.focus, lambda c: self._is_new(c, tried))
        return math.inf if found is None else len(found)

    def _by_surrogate(
        self, tried: Mapping[Configuration, float | None], *, is_nearby: bool
    ) -> Configuration | None:
        """Return the most promising for its seconds, of the class or near its best."""
        best = self.best_few(tried)
        if not best:
            return None

        is_new = functools.partial(self._is_new, tried=tried)
        gains = functools.partial(self.surrogate.expected_gains, over=best)
        last = self.around.get(self.focus)
        candidates = [] if last is None else self.open_neighbours(last, tried)
        is_whole = not candidates and not is_nearby
        if candidates:
            pass
        elif is_nearby:
            around = dict.fromkeys(c for b in best for c in self.space.adjacent(b))
            candidates = [c for c in around if is_new(c)]
        else:
            learnt = self.surrogate.n_learnt
            candidates = self._pool.candidates(self.focus, is_new, gains, learnt)
            if self._pool.whole() is None:
                candidates = list(
                    dict.fromkeys([*candidates, *self._walked(best[0], is_new, gains)])
                )
        if not candidates:
            return None
        expected = gains(candidates)
        if is_whole:
            self.expected_gain[self.focus] = float(expected.max())
        acquisition = expected * self._weights(candidates, best[0])
        acquisition /= np.sqrt(self.surrogate.costs_s(candidates))
        return candidates[int(np.argmax(acquisition))]

    def _walked(
        self,
        here: Configuration,
        is_new: Callable[[Configuration], bool],
        gains: Callable[[Sequence[Configuration]], np.ndarray],
    ) -> list[Configuration]:
        """Return what some steps of one knob each lead past, every time the most promising one."""
        found: dict[Configuration, None] = {}
        looked = set()
        for _ in range(_STEPS):
            looked.add(here)
            around = [c for c in self.space.adjacent(here) if c not in looked]
            around = [c for c in around if allowed_in(self.focus, c)]
            if not around:
                break
            found |= dict.fromkeys(c for c in around if is_new(c))
            here = around[int(np.argmax(gains(around)))]
        return list(found)

    def _weights(self, candidates: Sequence[Configuration], best: Configuration) -> np.ndarray:
        """Return by how much an expected gain counts: own class more, late knobs less."""
        own = np.array(
            [_OWN_CLASS if narrowest_class(c) is self.focus else 1.0 for c in candidates]
        )
        n_late = self.surrogate.features.n_late_apart(candidates, best)
        found: np.ndarray = own * _LATE**n_late
        return found

    # ---------------------------------------------------------------- TPE and chance

    def _by_tpe(self, study: Study, tried: Mapping[Configuration, Any]) -> Configuration | None:
        allowed = choices_within(self.space, self.focus)
        fixed = {knob: choices[0] for knob, choices in allowed.items() if len(choices) == 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = PartialFixedSampler(dict(fixed), self._tpe)
        space = {k: d for k, d in self.distributions().items() if k not in fixed}
        running = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
        for _ in range(_TPE_ATTEMPTS):
            found = sampler.sample_relative(study, running, space)
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
        for _ in range(_RANDOM_ATTEMPTS):
            proposal = self._pool.at_random(self.focus)
            if proposal is not None and self._is_new(proposal, tried):
                return proposal
        left = self._pool.left(self.focus, lambda c: self._is_new(c, tried))
        return self._random.choice(left) if left else None

    def _any_left(self, tried: Mapping[Configuration, Any]) -> Configuration | None:
        """Return the first new configuration of the class in a bounded look through all of them."""
        found = self._pool.left(self.focus, lambda c: self._is_new(c, tried))
        if found is not None:
            return next(iter(found), None)
        allowed = choices_within(self.space, self.focus)
        for values in itertools.islice(itertools.product(*allowed.values()), _ENUMERATED):
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
        """Propose for the caller of the Optuna study; raises Exhausted."""
        values = self.space.assignment(self.propose(study))
        return {knob: values[knob] for knob in search_space}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Never called: every knob is in the relative space."""
        raise RuntimeError(f"{param_name} is not a knob of this space")
