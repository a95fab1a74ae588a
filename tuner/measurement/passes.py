"""The passes of a round: in each, every launch takes one slice, within seconds of the others.

What the slices of a pass have in common, such as a slow moment of the host, is removed. A pass is
clean if all of its slices are. If no pass is clean, all count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tuner.measurement.replication import scatter
from tuner.record.launch import LaunchRecord
from tuner.record.objective import Objective


class Passes(msgspec.Struct, frozen=True):
    """Log values per pass and launch, (n_passes, n_launches), of the passes that count."""

    log_scores: np.ndarray
    n_taken: int
    n_clean: int

    def _common(self) -> np.ndarray:
        """Return what each pass has in common; zero for a single launch."""
        if self.log_scores.shape[1] == 1:
            return np.zeros((len(self.log_scores), 1))
        common: np.ndarray = self.log_scores.mean(axis=1, keepdims=True)
        return common

    def values(self) -> list[float]:
        """Return one log value per launch: the median over passes, without their common part."""
        common = self._common()
        medians = np.median(self.log_scores - common, axis=0) + common.mean()
        return [float(value) for value in medians]

    def scatter(self) -> float:
        """Return the SD of a slice within its launch, over all launches; 0 without any pass."""
        if not self.log_scores.size:
            return 0.0
        columns = (self.log_scores - self._common()).T
        n = len(columns)
        shared = n / (n - 1) if n > 1 else 1.0  # the launches' own noise is in the common part too
        return math.sqrt(shared * float(np.mean([scatter(column) ** 2 for column in columns])))


def passes_of(records: Sequence[LaunchRecord], objective: Objective) -> Passes:
    """Return the passes in which all of these launches, at least one, took part."""
    n_taken = min(len(record.slices) for record in records)
    clean = [
        k
        for k in range(n_taken)
        if not any(record.slices[k].interference.dirty for record in records)
    ]
    table = [
        [objective.of_slice(record.slices[k]) for record in records]
        for k in clean or range(n_taken)
    ]
    return Passes(np.array(table).reshape(len(table), len(records)), n_taken, len(clean))
