"""What the tried configurations say of one that was not: a Gaussian process over the space.

Runtime settings are nearly additive in the logarithm of the rate, except for those that place
threads: how many instances, cores and threads are best depends on each other, and neighbouring
numbers do about as well. So the covariance of two configurations is a sum: what their placement has
in common (a squared exponential over its logarithms), what each other setting has in common (all or
nothing), and a small part that only whole configurations share. How much each of these parts is
worth is chosen by the likelihood of what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from tuner.record.configuration import Configuration
from tuner.space.placement import PLACING
from tuner.space.space import Space

_NOISE = 0.015
"""SD of the log rate of one launch: what hosts show (measurement notes, section 1)."""
_SCALES = (1.0, 2.0, 4.0)
"""Length scales of placement, in doublings of what is counted."""
_EFFECTS = (0.03, 0.1, 0.3)
"""SD of what a setting that is not about placement does to the log rate."""
_LATE = 0.5
"""Of that, for settings of which little is expected: the space tries them late."""
_WHOLE = 0.02
"""SD of the log rate that only whole configurations share."""
_LEAST_SD = 0.1
"""Of the log rate, that placements may be apart."""
_MOST_BELIEVED = 120
"""Configurations that are learnt from: the best half of these and the latest; what they take grows
with their cube."""


class Surrogate:
    """Predicts log rates from tried configurations; what failed is taken for a low rate."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._features: dict[Configuration, tuple[np.ndarray, np.ndarray]] = {}
        self._codes: dict[tuple[str, object], int] = {}
        self._ordered = [
            knob.id
            for knob in space.searched
            if knob.id not in PLACING
            and len(knob.choices) > 2
            and all(isinstance(v, int) and not isinstance(v, bool) for v in knob.choices)
        ]
        """Settings that count something, in several values."""
        self._named = [
            k for k in space.searched if k.id not in PLACING and k.id not in self._ordered
        ]
        self._variances = np.array([_LATE**2 if k.is_late else 1.0 for k in self._named])
        self._most = np.array([1.0, self._variances.sum(), 1.0])

    def fit(self, rates: Mapping[Configuration, float]) -> None:
        """Take the log rates of configurations, at least one, in the order of their trials."""
        rates = _telling(rates)
        self._tried = list(rates)
        y = np.array(list(rates.values()))
        self._mean = float(y.mean())
        y = y - self._mean
        spread = max(float(y.var()), _LEAST_SD**2)
        placed, settings = self._encoded(self._tried)
        likely = -math.inf
        common = _Common(placed, settings, placed, settings, self._variances)
        for scale in _SCALES:
            parts = common.parts(scale)
            for effect in _EFFECTS:
                weights = np.array([spread, effect**2, _WHOLE**2])
                covariance = np.tensordot(weights, parts, 1)
                covariance[np.diag_indices_from(covariance)] += _NOISE**2
                factor = cho_factor(covariance, lower=True, check_finite=False)
                solved = cho_solve(factor, y, check_finite=False)
                likelihood = -0.5 * y @ solved - np.log(np.diag(factor[0])).sum()
                if likelihood > likely:
                    likely = likelihood
                    self._scale, self._weights = scale, weights
                    self._factor, self._solved = factor, solved
                    believed = y - _NOISE**2 * solved
        self._placed, self._settings = placed, settings
        self._best = self._mean + float(believed.max())

    def expected_gains(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Return by how much each may be expected to beat the best so far (log rate, at least 0).

        The expected improvement over the best of what the tried ones are believed to do: not over
        the highest score, which was lucky.
        """
        placed, settings = self._encoded(configurations)
        common = _Common(placed, settings, self._placed, self._settings, self._variances)
        covariance = np.tensordot(self._weights, common.parts(self._scale), 1)
        mean = self._mean + covariance @ self._solved
        known = cho_solve(self._factor, covariance.T, check_finite=False)
        variance = self._weights @ self._most - np.einsum("ij,ji->i", covariance, known)
        sd = np.sqrt(np.maximum(variance, 1e-12))
        z = (mean - self._best) / sd
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        gains: np.ndarray = sd * (z * ndtr(z) + density)
        return gains

    def _encoded(self, configurations: Sequence[Configuration]) -> tuple[np.ndarray, np.ndarray]:
        """Return placements (n, n_numbers) and settings (n, n_knobs) as numbers."""
        for configuration in configurations:
            if configuration not in self._features:
                self._features[configuration] = self._encode(configuration)
        both = [self._features[configuration] for configuration in configurations]
        return np.array([p for p, _ in both]), np.array([s for _, s in both])

    def _encode(self, configuration: Configuration) -> tuple[np.ndarray, np.ndarray]:
        values, placed = self._space.in_force(configuration), self._space.placed(configuration)
        numbers = []
        if placed is not None and not placed.instances:  # it names a node that is not there
            placed = self._space.placed(Configuration())
        if placed is not None:
            first = placed.instances[0]
            counts = (len(placed.instances), first.n_cores, len(first.cpus), len(first.nodes))
            numbers += [math.log2(count) for count in counts]
            numbers += [float(placed.is_pinned), math.log2(len(placed.instances) * first.n_cores)]
        numbers += [math.log2(max(1, int(values[knob]))) for knob in self._ordered]
        codes = [
            self._codes.setdefault((knob.id, values[knob.id]), len(self._codes))
            for knob in self._named
        ]
        return np.array(numbers), np.array(codes)


class _Common:
    """What two lists of configurations have in common, two by two."""

    def __init__(
        self,
        placed_a: np.ndarray,
        settings_a: np.ndarray,
        placed_b: np.ndarray,
        settings_b: np.ndarray,
        variances: np.ndarray,
    ) -> None:
        squares = (placed_a**2).sum(axis=1)[:, None] + (placed_b**2).sum(axis=1)[None, :]
        self._distance = np.maximum(squares - 2 * placed_a @ placed_b.T, 0.0)
        equal = (settings_a[:, None, :] == settings_b[None, :, :]).astype(float)
        self._alike = equal @ variances
        self._whole = np.exp(equal.sum(axis=2) - settings_a.shape[1])

    def parts(self, scale: float) -> np.ndarray:
        """Return the parts of the covariance in units of their variances: (3, n_a, n_b)."""
        near = np.exp(-0.5 * self._distance / scale**2)
        return np.stack([near, self._alike, near * self._whole])


def _telling(rates: Mapping[Configuration, float]) -> Mapping[Configuration, float]:
    """Return what is worth learning from, in the same order."""
    if len(rates) <= _MOST_BELIEVED:
        return rates
    best = sorted(rates, key=rates.__getitem__, reverse=True)[: _MOST_BELIEVED // 2]
    latest = [c for c in rates if c not in set(best)][-(_MOST_BELIEVED - len(best)) :]
    kept = {*best, *latest}
    return {c: rate for c, rate in rates.items() if c in kept}
