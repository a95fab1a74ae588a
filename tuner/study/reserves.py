"""What the search leaves to the phases after it: the least, and what they would make use of."""

from __future__ import annotations

from tuner.study.compared import baselines_to_confirm, confirmation_arms
from tuner.study.confirmation_costs import (
    NEIGHBOUR_ROUNDS,
    beside_s,
    looks_s,
    neighbours_s,
    reserve_s,
)
from tuner.study.explain import seconds_to_explain
from tuner.study.minimise import seconds_to_minimise
from tuner.study.profiles import seconds_to_profile
from tuner.study.proofs import seconds_to_prove
from tuner.study.study import MIN_ROUNDS, Study

LEAST_SHARE = 0.1
"""Of the budget, the most that is kept for minimising while the search still finds something."""
_PROOFS_SHARE = 0.2
"""Of the budget, the most that is kept for trying without what is dear: else it cannot ship."""
_MINIMISE_SHARE = 0.2
_EXPLAIN_SHARE = 0.15
"""Of the budget, the most that a search which finds nothing more leaves to these."""
_RACE_LAUNCHES = 4
_PROFILES_SHARE = 0.04
"""Of the budget, the most that is kept for profiles: where they take longer, they find their time
or there are none."""


def least_s(study: Study, cost_s: float) -> float:
    """Estimate what must be left after a launch of so many seconds: for verdicts, and one race."""
    proving_s = min(seconds_to_prove(study), _PROOFS_SHARE * study.budget.total_s)
    minimising_s = min(seconds_to_minimise(study), LEAST_SHARE * study.budget.total_s)
    minimising_s = max(proving_s, minimising_s)
    profiling_s = seconds_to_profile(study)
    if profiling_s > _PROFILES_SHARE * study.budget.total_s:
        profiling_s = 0.0
    return reserve_s(study) + minimising_s + profiling_s + cost_s


def useful_s(study: Study) -> float:
    """Estimate what the later phases would make use of.

    The race, minimising, a look at every baseline that is confirmed as well as the winners, slices
    beside a neighbour, and what each setting of the recommended winner is worth.
    """
    total_s = study.budget.total_s
    finalists = study.contenders.finalists()
    everything = confirmation_arms(study, [*finalists.values(), *baselines_to_confirm(study)])
    looking_s = max(looks_s(study), MIN_ROUNDS * study.costs.round_s(everything))
    besides_s = min(neighbours_s(study), NEIGHBOUR_ROUNDS * beside_s(study, everything))
    minimising_s = min(seconds_to_minimise(study), _MINIMISE_SHARE * total_s)
    explaining_s = min(seconds_to_explain(study, finalists[study.widest]), _EXPLAIN_SHARE * total_s)
    race_s = _RACE_LAUNCHES * max(study.costs.launch_s(c) for c in finalists.values())
    return race_s + minimising_s + looking_s + besides_s + explaining_s
