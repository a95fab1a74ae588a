"""The covariance of configurations: what one tells about another.

It is a sum of four parts: for each setting by itself (settings are often nearly additive in the
score), for placements (instances, cores and CPUs depend on each other, so they count together), for
whole configurations (Matern 5/2), and for what a configuration shares only with itself.

Theta, the parameters, holds logarithms: lengths, then the SDs of the parts, in the order additive,
placed, whole, own. Each feature (search/features.py) has a length; those of placement share one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tuner.search.features import Encoded

PARTS = 4
"""Parts of the covariance: additive, placed, whole, own."""
JITTER = 1e-6
"""Added to the diagonal, so that the matrix can be factorised."""
_SQRT5 = math.sqrt(5)
"""Of the Matern 5/2 covariance."""


class Kernel:
    """The covariance over a space's features. is_placement: per feature, whether it is one."""

    def __init__(self, is_placement: np.ndarray) -> None:
        n = len(is_placement)
        self._is_placement = is_placement
        self._placed = np.flatnonzero(is_placement)
        self._single = np.flatnonzero(~is_placement)
        self.n_lengths = len(self._single) + bool(len(self._placed))
        self.length_of = np.where(is_placement, self.n_lengths - 1, np.cumsum(~is_placement) - 1)
        """Per feature, its length's place in theta."""
        # as if each part had one feature of a length that does not grow with their number
        self._by_itself = float(n)
        self._together = n / max(1, len(self._placed))

    def variance(self, theta: np.ndarray) -> float:
        """Return the variance of a configuration before anything was seen."""
        additive, placed, whole, own = self._parts(theta)
        return additive + placed + whole + own

    def _parts(self, theta: np.ndarray) -> tuple[float, float, float, float]:
        additive, placed, whole, own = np.exp(2 * theta[-PARTS:])
        return (
            additive if len(self._single) else 0.0,
            placed if len(self._placed) else 0.0,
            whole,
            own,
        )

    def covariance(self, theta: np.ndarray, a: Encoded, b: Encoded) -> np.ndarray:
        """Return the covariance of two lists, without what each shares only with itself."""
        weights = np.exp(-2 * theta[self.length_of])
        additive, placed, whole, _ = self._parts(theta)
        n_axes = a.axes.shape[1]
        near = squares(np.where(self._is_placement, weights, 0.0), a, b)
        apart = near + squares(np.where(self._is_placement, 0.0, weights), a, b)
        found = whole * _matern(apart)[0]
        if placed:
            found += placed * np.exp(-0.5 * self._together * near)
        if not additive:
            return found
        each = additive / len(self._single)
        for k in self._single[self._single < n_axes]:
            scaled = weights[k] * (a.axes[:, k, None] - b.axes[None, :, k]) ** 2
            found += each * np.exp(-0.5 * self._by_itself * scaled)
        # a mark is alike, for 1, or not, for exp(-n w / 2)
        is_single = ~self._is_placement[n_axes:]
        unlike = np.exp(-0.5 * self._by_itself * weights[n_axes:])
        gained = np.where(is_single, 1 - unlike, 0.0)
        found += each * (_alike(gained, a.marks, b.marks) + unlike[is_single].sum())
        return found

    def apart(self, a: Encoded) -> np.ndarray:
        """Return the squared distances within a list, per feature: (n_features, n, n)."""
        axes = (a.axes.T[:, :, None] - a.axes.T[:, None, :]) ** 2
        marks = a.marks.T[:, :, None] != a.marks.T[:, None, :]
        return np.concatenate([axes, marks.astype(float)])

    def likelihood(
        self, theta: np.ndarray, apart: np.ndarray, y: np.ndarray, known: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return minus the log likelihood of y, and its gradient by theta.

        known: added to the covariance for every theta.
        """
        weights = np.exp(-2 * theta[self.length_of])
        additive, placed, whole, own = self._parts(theta)
        each = additive / max(1, len(self._single))
        scaled = weights[:, None, None] * apart
        terms = np.exp(-0.5 * self._by_itself * scaled[self._single])
        near = np.exp(-0.5 * self._together * scaled[self._placed].sum(axis=0))
        matern, slope = _matern(scaled.sum(axis=0))
        sums = terms.sum(axis=0)
        covariance = each * sums + placed * near + whole * matern + known
        covariance[np.diag_indices_from(covariance)] += own + JITTER
        factor = cho_factor(covariance, lower=True, check_finite=False)
        solved = cho_solve(factor, y, check_finite=False)
        value = 0.5 * float(y @ solved) + float(np.log(np.diag(factor[0])).sum())
        inverse = cho_solve(factor, np.eye(len(y)), check_finite=False)
        inner = 0.5 * (inverse - np.outer(solved, solved))  # d value / d covariance
        gradient = np.zeros_like(theta)
        by_square = inner * whole * slope
        by_near = by_square - inner * (0.5 * self._together * placed * near)
        for k in self._placed:
            gradient[self.length_of[k]] -= 2 * float(np.vdot(by_near, scaled[k]))
        for i, k in enumerate(self._single):
            by_own = by_square - inner * (0.5 * self._by_itself * each * terms[i])
            gradient[self.length_of[k]] -= 2 * float(np.vdot(by_own, scaled[k]))
        gradient[-4] = 2 * each * float(np.vdot(inner, sums))
        gradient[-3] = 2 * placed * float(np.vdot(inner, near))
        gradient[-2] = 2 * whole * float(np.vdot(inner, matern))
        gradient[-1] = 2 * own * float(np.trace(inner))
        return value, gradient


def squares(weights: np.ndarray, a: Encoded, b: Encoded) -> np.ndarray:
    """Return the weighted squared distances of two lists: (n_a, n_b). weights: per feature."""
    n_axes = a.axes.shape[1]
    roots, marks = np.sqrt(weights[:n_axes]), weights[n_axes:]
    left, right = a.axes * roots, b.axes * roots
    axes = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2 * left @ right.T
    unlike = marks.sum() - _alike(marks, a.marks, b.marks)
    found: np.ndarray = np.maximum(axes, 0.0) + np.maximum(unlike, 0.0)
    return found


def _alike(weights: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the summed weights of the marks that are alike: (n_a, n_b), as one product."""
    if not a.shape[1]:
        return np.zeros((len(a), len(b)))
    width = int(max(a.max(initial=0), b.max(initial=0))) + 1
    left, right = np.zeros((len(a), width)), np.zeros((len(b), width))
    np.put_along_axis(left, a, np.broadcast_to(weights, a.shape), axis=1)
    np.put_along_axis(right, b, 1.0, axis=1)
    found: np.ndarray = left @ right.T
    return found


def _matern(apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Matern 5/2 at squared distances, and its derivative by these."""
    distance = _SQRT5 * np.sqrt(apart)
    decay = np.exp(-distance)
    return (1 + distance + distance**2 / 3) * decay, -5 / 6 * (1 + distance) * decay
