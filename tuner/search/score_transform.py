"""The scale on which models learn: far below the best, differences count for less."""

from __future__ import annotations

import numpy as np


class ScoreTransform:
    """Differences count for less the further below the best: y = -t log(1 + gap / t)."""

    def __init__(self, worths: np.ndarray) -> None:
        self._best = float(worths.max())
        self._scale = max(float(np.median(self._best - worths)), 0.1)

    def of(self, worths: np.ndarray) -> np.ndarray:
        return self.of_gaps(np.maximum(self._best - worths, 0.0))

    def of_gaps(self, gaps: np.ndarray) -> np.ndarray:
        """Return y at gaps below the best; above it, where gaps are negative, y is as they are."""
        below = np.maximum(gaps, 0.0)
        found: np.ndarray = -self._scale * np.log1p(below / self._scale) - np.minimum(gaps, 0.0)
        return found

    def slope(self, worths: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._scale / (self._scale + np.maximum(self._best - worths, 0.0))
        return found

    def back(self, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._best - np.where(
            y < 0, self._scale * np.expm1(-np.minimum(y, 0) / self._scale), -y
        )
        return found
