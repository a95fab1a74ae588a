"""One effect over many models: its average, and a prediction for a model not yet seen.

A multilevel meta-analysis: y_ij = mu + family_i + model_ij + error_ij, family and model normal with
variances of their own (restricted maximum likelihood), the errors' variances known. Models of a
family resemble each other. A claim about other models therefore rests on families, not models:
intervals are Student's with one degree of freedom less than there are families.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

_GRID = 21
_REFINED = 4
"""Times that the grid is narrowed around its best point, to a fifth of its width each time."""


class Observation(NamedTuple):
    """An effect in one model."""

    family: str
    value: float
    variance: float
    """Of its error."""


class Pooled(NamedTuple):
    """What several observations say together."""

    mean: float
    error: float
    """Standard error of the mean."""
    between: float
    """SD over families."""
    within: float
    """SD over the models of a family."""
    n_families: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval of the mean; infinite for one family."""
        return self._around(self.error, confidence)

    @property
    def spread(self) -> float:
        """SD of the effect in a model of another family."""
        return math.sqrt(self.error**2 + self.between**2 + self.within**2)

    def expected(self, confidence: float = 0.9, unexplained_sd: float = 0.0) -> tuple[float, float]:
        """Return the interval for a model of another family with this probability.

        unexplained_sd: the further error of such predictions (calibration.py).
        """
        return self._around(math.hypot(self.spread, unexplained_sd), confidence)

    def _around(self, sd: float, confidence: float) -> tuple[float, float]:
        if self.n_families < 2:
            return -math.inf, math.inf
        half = -float(stdtrit(self.n_families - 1, (1 - confidence) / 2)) * sd
        return self.mean - half, self.mean + half


def pool(observations: Sequence[Observation]) -> Pooled:
    """Pool observations of at least one model. Raises ValueError of none."""
    if not observations:
        raise ValueError("there is no observation to pool")
    families: dict[str, list[Observation]] = defaultdict(list)
    for each in observations:
        families[each.family].append(each)
    groups = _Groups(
        np.array([o.value for group in families.values() for o in group]),
        np.array([o.variance for group in families.values() for o in group]),
        np.cumsum([0, *(len(group) for group in families.values())])[:-1],
    )
    widest = float(np.ptp(groups.values)) or 1e-9
    has_siblings = len(observations) > len(families)
    low, high = np.zeros(2), np.array([widest, widest if has_siblings else 0.0])
    best = np.zeros(2)
    for _ in range(_REFINED):
        between = np.linspace(low[0], high[0], _GRID)
        within = np.linspace(low[1], high[1], _GRID) if has_siblings else np.zeros(1)
        points = np.stack([each.ravel() for each in np.meshgrid(between, within)])
        best = points[:, int(np.argmin(_fitted(groups, *points).criterion))]
        width = (high - low) / 10
        low, high = np.maximum(0.0, best - width), best + width
    found = _fitted(groups, best[:1], best[1:])
    return Pooled(
        mean=float(found.weighted[0] / found.weight[0]),
        error=math.sqrt(1 / found.weight[0]),
        between=float(best[0]),
        within=float(best[1]),
        n_families=len(families),
    )


class _Groups(NamedTuple):
    """Observations, those of a family together."""

    values: np.ndarray
    variances: np.ndarray
    starts: np.ndarray
    """Where each family begins."""


class _Fitted(NamedTuple):
    """Of pairs of both SDs, an array each."""

    weight: np.ndarray
    """1'V^-1 1 over all families."""
    weighted: np.ndarray
    """1'V^-1 y."""
    criterion: np.ndarray
    """-2 log restricted likelihood, up to a constant."""


def _fitted(groups: _Groups, between: np.ndarray, within: np.ndarray) -> _Fitted:
    total = groups.variances + within[:, None] ** 2  # a row for each pair, a column for each model
    own = 1 / total
    of_family = np.add.reduceat(own, groups.starts, axis=1)
    of_values = np.add.reduceat(own * groups.values, groups.starts, axis=1)
    common = between[:, None] ** 2
    shared = 1 + common * of_family
    weight = (of_family / shared).sum(axis=1)
    weighted = (of_values / shared).sum(axis=1)
    criterion = np.log(total).sum(axis=1) + np.log(shared).sum(axis=1)
    criterion += own @ groups.values**2 - (common * of_values**2 / shared).sum(axis=1)
    return _Fitted(weight, weighted, criterion + np.log(weight) - weighted**2 / weight)
