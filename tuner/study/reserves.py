"""What the search leaves to the phases after it: the least, and what they would make use of."""

from __future__ import annotations

from tuner.study.explain import seconds_to_explain
from tuner.study.study import MIN_ROUNDS, NEIGHBOUR_ROUNDS, Study

_LEAST_SHARE = 0.1
"""Of the budget, the most that is kept for minimising while the search still finds something."""
_MINIMISE_SHARE = 0.2
_EXPLAIN_SHARE = 0.15
"""Of the budget, the most that a search which finds nothing more leaves to these."""
_RACE_LAUNCHES = 4


def least_s(study: Study, cost_s: float) -> float:
    """Estimate what must be left after a launch of so many seconds: for verdicts, and one race."""
    minimising_s = min(study.reduction_cost_s(), _LEAST_SHARE * study.budget.total_s)
    return study.reserve_s() + minimising_s + cost_s


def useful_s(study: Study) -> float:
    """Estimate what the later phases would make use of.

    The race, minimising, a look at every baseline that is confirmed as well as the winners, slices
    beside a neighbour, and what each setting of the recommended winner is worth.
    """
    total_s = study.budget.total_s
    finalists = study.finalists()
    everything = study.confirmation_arms([*finalists.values(), *study.baselines_to_confirm()])
    looks_s = max(study.looks_s(), MIN_ROUNDS * study.round_cost_s(everything))
    beside_s = min(study.neighbours_s(), NEIGHBOUR_ROUNDS * study.beside_s(everything))
    minimising_s = min(study.reduction_cost_s(), _MINIMISE_SHARE * total_s)
    explaining_s = seconds_to_explain(study, finalists[study.widest])
    race_s = _RACE_LAUNCHES * max(study.cost_s(c) for c in finalists.values())
    return race_s + minimising_s + looks_s + beside_s + min(explaining_s, _EXPLAIN_SHARE * total_s)
