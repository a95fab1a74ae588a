"""The surrogate: a Gaussian process over a space's features, from the tried configurations.

Its covariance is that of search/kernel.py. The weight of each setting, and of each part of the
covariance, is chosen by the likelihood of the data, with priors that make it sensible from the
first trials on (maximum a posteriori).

Far below the best, differences count for less: a search needs to know the top, not by how much the
bottom is worse. Failures show where failures are, and nothing about scores.

A hint (the expectation from other studies) is half believed: its factor is learned from the data
like the rest. If the two do not rank alike, the hint is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr

from tuner.record.configuration import Configuration
from tuner.search.features import Encoded, Features
from tuner.search.kernel import JITTER, PARTS, Kernel, squares
from tuner.search.proposals import Belief
from tuner.space.space import Space

_MOST_BELIEVED = 300
"""Configurations that are learnt from: the best half of these and the latest."""
_MOST_FITTED = 120
"""How many of these suffice to say how much each setting matters."""
_REFIT = 1.15
"""The settings' weights are learnt anew when this many times more has been seen."""
_LENGTH = 1.0
"""Prior median of a feature's length scale, in units of its range, for one feature; it grows with
the square root of their number."""
_LENGTH_SD = 1.0
"""Prior SD of the logarithm of a length scale."""
_LATE = 2.0
"""Factor on the length scale of settings that promise little."""
_PART_SD = 1.0
"""Prior SD of the logarithm of a part's SD."""
_LEAST_SPREAD = 0.03
"""SD of scores that is assumed at least."""
_OWN = 0.1
"""Prior median of what a configuration shares only with itself, in units of the spread."""
_AT_ONCE = 2000
"""Configurations that are predicted together: memory, not time."""
_TRUST, _TRUST_SD = 0.5, 0.5
"""Factor on a hint that is believed in at first, and by how much it may be off (SD)."""
_JUDGED_FROM = 10
"""Scores from which on a hint is compared with them."""
LEAST_CORRELATION = 0.2
"""Spearman's, of a hint and the scores: below it, the hint is dropped."""

Hint: TypeAlias = Callable[[Sequence[Configuration]], np.ndarray]
"""Predicts scores of configurations, up to a constant."""


class Score(msgspec.Struct, frozen=True):
    """A measured configuration: its score, and the standard error."""

    log_score: float
    sd: float


class Surrogate:
    """Predicts scores, and where failures are, from tried configurations."""

    def __init__(self, space: Space, hint: Hint | None = None) -> None:
        self.features = Features(space)
        self._kernel = Kernel(self.features.is_placement)
        n = len(self.features.is_placement)
        late = np.where(self.features.is_late, math.log(_LATE), 0.0)
        self._prior_length = np.zeros(self._kernel.n_lengths)
        self._prior_length[self._kernel.length_of] = math.log(_LENGTH * math.sqrt(max(1, n))) + late
        self._theta = self._prior()
        self.n_learnt = 0
        """The number of fits so far."""
        self._fitted_on = 0
        self._tried: list[Configuration] = []
        self._scores: Mapping[Configuration, Score] = {}
        self._doubt = 1.0
        self._doubted_at = -1
        self._hint = hint
        self.hint_correlation: float | None = None
        """Spearman's, of the hint and the scores; None while there are too few of these."""
        self.is_misled = False
        """Whether the hint was dropped, for good."""

    def _prior(self) -> np.ndarray:
        """Return the logarithms: lengths, then the SDs of the parts (kernel.py names them)."""
        parts = np.log([0.7, 0.7, 0.7, _OWN])
        return np.concatenate([self._prior_length, parts])

    # ---------------------------------------------------------------- learning

    def fit(
        self,
        scores: Mapping[Configuration, Score],
        failed: Sequence[Configuration] = (),
        costs_s: Mapping[Configuration, float] | None = None,
    ) -> None:
        """Learn from what was tried, at least one score, in the order of the trials."""
        self._scores = scores
        kept = _telling(scores)
        self._tried = list(kept)
        log_scores = np.array([score.log_score for score in kept.values()])
        sds = np.array([score.sd for score in kept.values()])
        self._warp = ScoreTransform(log_scores)
        y = self._warp.of(log_scores)
        noise = sds * self._warp.slope(log_scores)
        self._mean = float(np.median(y))
        self._spread = max(float(y.std()), _LEAST_SPREAD)
        self._x = self.features.of(self._tried)
        self._y = (y - self._mean) / self._spread
        self._noise = (noise / self._spread) ** 2
        self._judge_hint(log_scores)
        if len(scores) >= _REFIT * self._fitted_on:
            self._fitted_on = len(scores)
            self.n_learnt += 1
            self._learn()
        self._condition()
        self._failed = list(failed)
        self._everything = [*self._tried, *self._failed]
        self._all_x = self.features.of(self._everything)
        self._costs = np.array([math.log((costs_s or {}).get(c, 1.0)) for c in self._everything])

    def _judge_hint(self, log_scores: np.ndarray) -> None:
        """Compare the hint with the scores, and put it into the units of y."""
        self._hinted = np.zeros(len(log_scores))
        if self._hint is None:
            return
        raw = self._hint(self._tried)
        if len(log_scores) >= _JUDGED_FROM:
            found = _rank_correlation(raw, log_scores)
            self.hint_correlation = found
            if found < LEAST_CORRELATION:
                self.is_misled = True
                self._hint = None
                self._fitted_on = 0  # what was learnt, was learnt beside it
                return
        self._best_hinted = float(raw.max())
        warped = self._warp.of_gaps(self._best_hinted - raw)
        self._hint_mean = float(np.median(warped))
        self._hinted = (warped - self._hint_mean) / self._spread

    def _hints(self, configurations: Sequence[Configuration]) -> np.ndarray:
        if self._hint is None:
            return np.zeros(len(configurations))
        warped = self._warp.of_gaps(self._best_hinted - self._hint(configurations))
        found: np.ndarray = (warped - self._hint_mean) / self._spread
        return found

    def _learn(self) -> None:
        """Find how much each setting and each part matters."""
        n = len(self._y)
        chosen = np.arange(n)
        if n > _MOST_FITTED:
            best = np.argsort(-self._y)[: _MOST_FITTED // 2]
            rest = np.setdiff1d(chosen, best)
            spaced = rest[np.linspace(0, len(rest) - 1, _MOST_FITTED - len(best)).astype(int)]
            chosen = np.union1d(best, spaced)
        apart = self._kernel.apart(self._x.of(chosen))
        hinted = self._hinted[chosen]
        y = self._y[chosen] - _TRUST * hinted
        known = np.diag(self._noise[chosen]) + _TRUST_SD**2 * np.outer(hinted, hinted)
        prior = self._prior()
        sds = np.full(len(prior), _LENGTH_SD)
        sds[-PARTS:] = _PART_SD

        def cost(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._kernel.likelihood(theta, apart, y, known)
            off = (theta - prior) / sds
            return value + 0.5 * float(off @ off), gradient + off / sds

        bounds = [(p - 3 * s, p + 3 * s) for p, s in zip(prior, sds, strict=True)]
        start = np.clip(self._theta, [low for low, _ in bounds], [high for _, high in bounds])
        found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds,
                         options={"maxiter": 30})  # fmt: skip
        self._theta = found.x

    def _condition(self) -> None:
        """Condition the process on the data."""
        covariance = self._kernel.covariance(self._theta, self._x, self._x)
        covariance += _TRUST_SD**2 * np.outer(self._hinted, self._hinted)
        covariance[np.diag_indices_from(covariance)] += (
            math.exp(2 * self._theta[-1]) + self._noise + JITTER
        )
        self._factor = cho_factor(covariance, lower=True, check_finite=False)
        off = self._y - _TRUST * self._hinted
        self._solved = cho_solve(self._factor, off, check_finite=False)
        if self._doubted_at != self.n_learnt:
            self._doubted_at = self.n_learnt
            self._doubt = self._misjudged()

    def _misjudged(self) -> float:
        """Return by how much more than believed the tried are off when each is left out; 1 or more.

        Leave-one-out residuals in units of their SDs (Rasmussen and Williams 2006, section 5.4.2).
        """
        inverse = cho_solve(self._factor, np.eye(len(self._y)), check_finite=False)
        off = self._solved / np.sqrt(np.diag(inverse))
        return max(1.0, float(np.sqrt(np.mean(off**2))))

    # ---------------------------------------------------------------- predicting

    def _predict(self, configurations: Sequence[Configuration]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and SD of the configurations' scores, in units of the spread."""
        encoded = self.features.of(configurations)
        cross = self._kernel.covariance(self._theta, encoded, self._x)
        hinted = self._hints(configurations)
        cross += _TRUST_SD**2 * np.outer(hinted, self._hinted)
        own = math.exp(2 * self._theta[-1])
        places = {c: j for j, c in enumerate(self._tried)}
        for i, c in enumerate(configurations):
            if c in places:  # what it shares with itself alone is known of it, too
                cross[i, places[c]] += own
        mean = _TRUST * hinted + cross @ self._solved
        solved = solve_triangular(self._factor[0], cross.T, lower=True, check_finite=False)
        variance = self._kernel.variance(self._theta) + (_TRUST_SD * hinted) ** 2
        variance -= np.einsum("ij,ij->j", solved, solved)
        return mean, np.sqrt(np.maximum(variance, 1e-10))

    def beliefs(self, configurations: Sequence[Configuration]) -> list[Belief]:
        """Return an estimate for each; for what was measured and not learned from, its score."""
        if not configurations:
            return []
        if len(self._scores) > len(self._tried):
            learnt = set(self._tried)
            apart = {c for c in configurations if c in self._scores and c not in learnt}
            if apart:
                others = iter(self.beliefs([c for c in configurations if c not in apart]))
                measured = {c: Belief(self._scores[c].log_score, self._scores[c].sd) for c in apart}
                return [measured[c] if c in apart else next(others) for c in configurations]
        mean, sd = self._predict(configurations)
        y = self._mean + self._spread * mean
        log_scores = self._warp.back(y)
        sds = self._spread * sd / self._warp.slope(log_scores)
        return [Belief(float(m), float(s)) for m, s in zip(log_scores, sds, strict=True)]

    def expected_gains(
        self, configurations: Sequence[Configuration], over: Sequence[Configuration]
    ) -> np.ndarray:
        """Return by how much each is expected to beat the best of `over` (>= 0).

        The expected improvement over the estimates of the tried ones, not over the highest score,
        which was lucky. Multiplied by the probability that the configuration works.
        """
        if not configurations:
            return np.zeros(0)
        found = [self._gains(configurations[i : i + _AT_ONCE], over)
                 for i in range(0, len(configurations), _AT_ONCE)]  # fmt: skip
        gains: np.ndarray = np.concatenate(found)
        return gains

    def _gains(
        self, configurations: Sequence[Configuration], over: Sequence[Configuration]
    ) -> np.ndarray:
        mean, sd = self._predict(configurations)
        sd *= self._doubt
        best, _ = self._predict(over)
        z = (mean - best.max()) / sd
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        gains: np.ndarray = self._spread * sd * (z * ndtr(z) + density)
        found: np.ndarray = gains * self.chances(configurations)
        return found

    def chances(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Return the probability of each that it does not fail.

        The share of successes among similar configurations. If a value of its settings is known
        only from failures, the share among configurations with that value.
        """
        if not self._failed:
            return np.ones(len(configurations))
        works = np.array([1.0] * len(self._tried) + [0.0] * len(self._failed))
        base = works.mean()
        encoded = self.features.of(configurations)
        alike = self._alike(encoded)
        found: np.ndarray = (alike @ works + base) / (alike.sum(axis=1) + 1)
        for mine, all_ in zip(encoded.columns(), self._all_x.columns(), strict=True):
            values, at = np.unique(all_, return_inverse=True)
            share = (np.bincount(at, works) + base) / (np.bincount(at) + 1)
            where = np.minimum(np.searchsorted(values, mine), len(values) - 1)
            found = np.minimum(found, np.where(values[where] == mine, share[where], base))
        return found

    def costs_s(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Return the seconds that a launch of each may take: as of those alike."""
        alike = self._alike(self.features.of(configurations))
        base = self._costs.mean()
        found: np.ndarray = np.exp((alike @ self._costs + base) / (alike.sum(axis=1) + 1))
        return found

    def _alike(self, encoded: Encoded) -> np.ndarray:
        """Return how alike each is to each that was tried: nearly nothing but for a few."""
        weights = 4 * np.exp(-2 * self._prior_length[self._kernel.length_of])
        found: np.ndarray = np.exp(-squares(weights, encoded, self._all_x))
        return found


def _rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's; of what does not differ, none."""
    if min(np.ptp(a), np.ptp(b)) < 1e-9:
        return 0.0
    from scipy.stats import spearmanr  # takes longer to import than all else that is used here

    return float(spearmanr(a, b).statistic)


def _telling(scores: Mapping[Configuration, Score]) -> Mapping[Configuration, Score]:
    """Return the configurations to learn from, in the same order."""
    if len(scores) <= _MOST_BELIEVED:
        return scores
    best = sorted(scores, key=lambda c: scores[c].log_score, reverse=True)[: _MOST_BELIEVED // 2]
    chosen = set(best)
    latest = [c for c in scores if c not in chosen][-(_MOST_BELIEVED - len(best)) :]
    kept = {*best, *latest}
    return {c: score for c, score in scores.items() if c in kept}


class ScoreTransform:
    """Differences count for less the further below the best: y = -t log(1 + gap / t)."""

    def __init__(self, log_scores: np.ndarray) -> None:
        self._best = float(log_scores.max())
        self._scale = max(float(np.median(self._best - log_scores)), 0.1)

    def of(self, log_scores: np.ndarray) -> np.ndarray:
        return self.of_gaps(np.maximum(self._best - log_scores, 0.0))

    def of_gaps(self, gaps: np.ndarray) -> np.ndarray:
        """Return y at gaps below the best; above it, where gaps are negative, y is as they are."""
        below = np.maximum(gaps, 0.0)
        found: np.ndarray = -self._scale * np.log1p(below / self._scale) - np.minimum(gaps, 0.0)
        return found

    def slope(self, log_scores: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._scale / (self._scale + np.maximum(self._best - log_scores, 0.0))
        return found

    def back(self, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._best - np.where(
            y < 0, self._scale * np.expm1(-np.minimum(y, 0) / self._scale), -y
        )
        return found
