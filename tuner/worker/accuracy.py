"""The loss of accuracy under reduced precision, and how much it may be.

A user's function returns one number for all samples, or for each whether it is right. The loss then
has an upper bound. Samples are paired: those count that are right in one of the two outputs alone.
The bound is that of Tango's score interval (1998, Statistics in Medicine 17: 891-908).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError

Scores = npt.NDArray[np.float64]
"""One number for all samples (no axis), or 1 or 0 for each: right or wrong."""
_ONE_SIDED = 1.6449
"""Standard normal quantile: the loss is below its bound with 95 % confidence."""
_MOST_NEEDED = 10**6
"""Samples: a larger number is no advice."""


def scores_of(returned: Any, n_samples: int) -> Scores:
    """Return what a user's accuracy function returned as scores.

    Raises UsageError if it is neither one finite number nor right or wrong for each sample.
    """
    wanted = f"it must return one number, or true or false for each of the {n_samples} samples"
    try:
        scores = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"accuracy() returned {type(returned).__name__}; {wanted}") from error
    if scores.size == 1 and n_samples != 1:
        scores = scores.reshape(())
    if scores.shape not in ((), (n_samples,)):
        raise UsageError(f"accuracy() returned an array of shape {scores.shape}; {wanted}")
    if not np.isfinite(scores).all():
        raise UsageError(f"accuracy() returned a number that is not finite; {wanted}")
    if scores.ndim and not np.isin(scores, (0.0, 1.0)).all():
        other = scores[~np.isin(scores, (0.0, 1.0))][0]
        raise UsageError(f"accuracy() returned {other:.4g} for a sample; {wanted}")
    return scores


class LossOfAccuracy(msgspec.Struct, frozen=True):
    """How many samples are right in one of the two outputs alone."""

    n_samples: int
    n_lost: int
    """Right in the default's outputs alone."""
    n_gained: int
    """Right in the others alone."""

    @property
    def most(self) -> float:
        """The upper bound of the loss, a share of the samples, with 95 % confidence."""
        return _upper_bound(self.n_lost, self.n_gained, self.n_samples)

    def n_needed(self, allowed: float) -> int:
        """Return how many samples with such shares would show that a loss is allowed; 0 if none."""

        def shows(n: int) -> bool:
            scale = n / self.n_samples
            return _upper_bound(scale * self.n_lost, scale * self.n_gained, n) <= allowed

        if not shows(_MOST_NEEDED):
            return 0
        low, high = 0, _MOST_NEEDED
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if shows(middle) else (middle, high)
        return high


def loss_of_accuracy(own: Scores, default: Scores) -> LossOfAccuracy | None:
    """Compare scores of the same samples; None if they are one number for all."""
    if not default.ndim or not own.ndim:
        return None
    return LossOfAccuracy(len(own), int((default > own).sum()), int((own > default).sum()))


def _upper_bound(n_lost: float, n_gained: float, n: int) -> float:
    """Return the largest loss that Tango's score test does not reject."""
    low, high = (n_lost - n_gained) / n, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        if _score(n_lost, n_gained, n, middle) > -_ONE_SIDED:
            low = middle
        else:
            high = middle
    return high


def _score(n_lost: float, n_gained: float, n: int, loss: float) -> float:
    """Return the statistic of a loss: how many standard errors what was seen is above it.

    The share of gained samples is the most likely one if that loss is true.
    """
    b = -n_lost - n_gained + (2 * n - n_lost + n_gained) * loss
    c = -n_gained * loss * (1 - loss)
    gained = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    variance = n * (2 * gained + loss * (1 - loss))
    return (n_lost - n_gained - n * loss) / math.sqrt(variance) if variance > 0 else 0.0
