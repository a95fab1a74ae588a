"""What the goal asks of a winner besides its value, and the time that this may take.

The goal "robust" asks that a winner does not degrade next to a busy neighbour. Configurations that
do are skipped, and finalists are measured next to one before they are confirmed.
"""

from __future__ import annotations

import msgspec

from tuner.record.objective import Objective


class Preference(msgspec.Struct, frozen=True):
    """Whether winners must not degrade under contention, and the share of the budget for it."""

    bears_neighbours: bool
    neighbours_share: float
    """Share of the budget for slices next to a busy neighbour, at most."""
    neighbours_from_s: float
    """A smaller budget has no time for them."""

    def neighbours_s(self, total_s: float) -> float:
        """Return the seconds for slices next to a busy neighbour, at most."""
        return self.neighbours_share * total_s if total_s >= self.neighbours_from_s else 0.0


FASTEST = Preference(bears_neighbours=False, neighbours_share=0.06, neighbours_from_s=300.0)
"""Of the goal fastest."""
ROBUST = Preference(bears_neighbours=True, neighbours_share=0.12, neighbours_from_s=0.0)
"""Of the goal robust."""


def preference_of(objective: Objective) -> Preference:
    """Return the preference of an objective."""
    return ROBUST if objective.bears_neighbours else FASTEST
