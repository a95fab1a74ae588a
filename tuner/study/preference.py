"""What a study asks of a winner beside its value, and what that costs: one answer to all phases.

The goal "robust" asks that a winner bears a busy neighbour: then what collapses beside one is
passed over, finalists are measured beside it before they are confirmed, and time is kept for that.
"""

from __future__ import annotations

import msgspec

from tuner.record.objective import Objective


class Preference(msgspec.Struct, frozen=True):
    """Whether winners must bear a busy neighbour, and how much of the budget that is worth."""

    bears_neighbours: bool
    neighbours_share: float
    """Share of the budget: the most that slices beside a busy neighbour may take."""
    neighbours_from_s: float
    """A smaller budget has no time for them."""

    def neighbours_s(self, total_s: float) -> float:
        """Return the seconds that slices beside a busy neighbour may take in all."""
        return self.neighbours_share * total_s if total_s >= self.neighbours_from_s else 0.0


FASTEST = Preference(bears_neighbours=False, neighbours_share=0.06, neighbours_from_s=300.0)
ROBUST = Preference(bears_neighbours=True, neighbours_share=0.12, neighbours_from_s=0.0)


def preference_of(objective: Objective) -> Preference:
    """Return what an objective asks beside its metric."""
    return ROBUST if objective.bears_neighbours else FASTEST
