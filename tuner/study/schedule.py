"""The one noun for time: whether there is time for a step more, and what is kept for later phases.

A phase asks whether a step of its own fits and holds no arithmetic of its own. The confirmation,
where there is time for one at all, comes first in the order of survival, then the proofs without
which dear settings cannot ship, then the search. Minimising and what explains a winner have what
the search leaves once it has stalled: while it finds something, a better combination is worth more
than a shorter one.
"""

from __future__ import annotations

import math

from tuner.measurement.confirmation import FIRST_LOOK
from tuner.record.configuration import Configuration
from tuner.space.catalogue import is_default
from tuner.study.compared import baselines_to_confirm, confirmation_arms
from tuner.study.costs import SAFETY
from tuner.study.phase_costs import NEIGHBOUR_ROUNDS, PhaseCosts
from tuner.study.study import Study

_PROOFS_SHARE = 0.2
"""Share of the budget: the most that is kept to prove dear settings, which ship proven only."""
_PROFILES_SHARE = 0.04
"""Share of the budget: the most that is kept for profiles. If they take longer, nothing is kept."""
_MINIMISE_SHARE = 0.2
"""Share of the budget: the most that a stalled search leaves to minimising."""
_EXPLAIN_SHARE = 0.15
"""Share of the budget: the most that a stalled search leaves to explaining."""
_RACE_LAUNCHES = 4
"""Launches that a stalled search leaves to the race."""
_PROFILE_LAUNCHES = 1.5
"""What a profile takes in a launch of its own, in launches."""


class Schedule:
    """Whether there is time, in a study as it stands."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._costs = study.costs
        self._total_s = study.budget.total_s
        self.phases = PhaseCosts(study)

    def is_out_of_reach(self) -> bool:
        """Tell whether no verdict fits: not even a hasty first look at the cheapest finalist.

        It may take a launch longer than is left, as has_time_for_a_look has it.
        """
        others = [c for c in self.phases.compared() if not is_default(c)]
        looks = [confirmation_arms(self._study, [other]) for other in others]
        if not looks:  # of what is not known yet: as dear as the default
            default, *more = confirmation_arms(self._study, [])
            looks = [[default, default, *more]]
        round_s = min(map(self._costs.hasty_round_s, looks))
        return self._study.budget.left_s() + self._allowance_s(0) < FIRST_LOOK * round_s

    def _confirming_s(self) -> float:
        """Return what is kept for the confirmation: nothing where no verdict can come of it.

        Hints of what is fast are worth more than seconds that nobody uses.
        """
        return 0.0 if self.is_out_of_reach() else self.phases.confirming_s()

    def has_time_before_confirming(self, configuration: Configuration, kept_s: float = 0.0) -> bool:
        """Tell whether a launch leaves the confirmation's seconds and `kept_s` more."""
        left_s = self._study.budget.left_s()
        return left_s >= self._confirming_s() + kept_s + self._costs.launch_s(configuration)

    def has_time_to_search(self, configuration: Configuration, kept_s: float = 0.0) -> bool:
        """Tell whether a launch leaves enough for verdicts, proofs, profiles, one race and more.

        kept_s: the more.
        """
        cost_s = self._costs.launch_s(configuration)
        return self._study.budget.left_s() >= self.after_search_s(cost_s) + cost_s + kept_s

    def after_search_s(self, cost_s: float) -> float:
        """Return what must be left after a launch: for verdicts, and one launch more to race.

        Where no verdict fits, nothing: what it would take can ship nothing.
        """
        if self.is_out_of_reach():
            return 0.0
        proving_s = min(self.phases.proving_s(), _PROOFS_SHARE * self._total_s)
        profiling_s = self.phases.profiling_s()
        if profiling_s > _PROFILES_SHARE * self._total_s:
            profiling_s = 0.0
        return self.phases.confirming_s() + proving_s + profiling_s + cost_s

    def is_better_left(self) -> bool:
        """Tell whether the later phases would make use of all that is left.

        The race, minimising, a look at every baseline that is confirmed as well as the winners,
        slices beside a neighbour, and what each setting of the recommended winner is worth. Where
        no verdict fits, the first two.
        """
        study, total_s = self._study, self._total_s
        finalists = study.contenders.finalists()
        minimising_s = min(self.phases.minimising_s(), _MINIMISE_SHARE * total_s)
        race_s = _RACE_LAUNCHES * max(self._costs.launch_s(c) for c in finalists.values())
        if self.is_out_of_reach():
            return study.budget.left_s() < race_s + minimising_s
        compared = [*finalists.values(), *baselines_to_confirm(study)]
        everything = confirmation_arms(study, compared)
        looking_s = max(self.phases.looks_s(), self.phases.looking_s(everything))
        besides_s = min(
            self.phases.neighbours_s(), NEIGHBOUR_ROUNDS * self.phases.beside_s(everything)
        )
        explaining_s = min(
            self.phases.explaining_s(finalists[study.widest]), _EXPLAIN_SHARE * total_s
        )
        looking_s += self.phases.validating_s()
        needed_s = race_s + minimising_s + looking_s + besides_s + explaining_s
        return study.budget.left_s() < needed_s

    def worth_warming(self, configuration: Configuration) -> Configuration | None:
        """Return what to launch again so that time is left for another launch; None if nothing.

        What the confirmation needs is estimated from the launches of those who will be in it. One
        that was launched only once may have compiled from nothing: a warm compiler's cache often
        frees time for many proposals, where that may save more than it costs.
        """
        if (
            not self.phases.has_few_proposals()
            and self.phases.first_look_s() < self.phases.looks_s()
        ):
            return None  # a share of the budget, which a warm cache does not make less
        costs = self._costs
        arms = confirmation_arms(self._study, self.phases.compared())
        cold = [
            c
            for c in arms
            if (compiling_s := costs.compiling_s(c))
            and FIRST_LOOK * SAFETY * compiling_s > costs.launch_s(c) - compiling_s
            and costs.repeat_s(c) > costs.repeat_s(arms[0])
        ]
        if not cold:
            return None
        dearest = max(cold, key=costs.launch_s)
        warm = [arms[0] if c in cold else c for c in arms]  # at best, like the default
        at_best_s = self.phases.looking_s(warm) + costs.launch_s(dearest)
        at_best_s += costs.launch_s(configuration)
        return None if self._study.budget.left_s() < at_best_s else dearest

    def share_ends_s(self, n: int) -> float:
        """Return until when, in seconds used, the first of `n` may use what is left for all."""
        free_s = self._study.budget.left_s() - self._confirming_s()
        return self._study.budget.used_s() + max(0.0, free_s) / n

    def has_time_until(self, until_s: float, configuration: Configuration) -> bool:
        """Tell whether a launch ends in such a share, and before the confirmation's time."""
        ends_s = self._study.budget.used_s() + self._costs.launch_s(configuration)
        return ends_s <= min(until_s, self._total_s - self._confirming_s())

    def _allowance_s(self, n_rounds: int) -> float:
        """Return by how much a first look may overdraw the budget: by one launch."""
        return self._costs.launch_s(Configuration()) if n_rounds < FIRST_LOOK else 0.0

    def has_time_for_a_look(
        self, arms: list[Configuration], kept_s: float, *, in_haste: bool = False
    ) -> bool:
        """Tell whether a first look at these arms fits and leaves `kept_s`.

        in_haste: with the fewest slices that count; for a single arm, to the last second.
        """
        launched, left_s = confirmation_arms(self._study, arms), self._study.budget.left_s()
        if not in_haste:
            return left_s + self._allowance_s(0) >= self.phases.looking_s(launched) + kept_s
        needed_s = FIRST_LOOK * self._costs.hasty_round_s(launched) + kept_s
        if len(arms) > 1:
            return left_s >= SAFETY * needed_s
        return left_s + self._allowance_s(0) >= needed_s

    def why_no_round(
        self, n_rounds: int, arms: list[Configuration], *, is_proved: bool = False
    ) -> str:
        """Say why no further round of the confirmation is begun; empty if one fits.

        Without a first look the rounds before it were in vain: a hasty round will do. is_proved:
        what ships is known already, and LoadGen may be asked about it.
        """
        left_s, costs = self._study.budget.left_s(), self._costs
        if not n_rounds and self.is_out_of_reach():
            return f"the {max(0.0, left_s):.0f} s that are left hold no first look"
        is_needed = n_rounds < FIRST_LOOK
        round_s = costs.hasty_round_s(arms) if is_needed else costs.round_s(arms)
        validating_s = self.phases.validating_s() if is_proved else 0.0
        if left_s + self._allowance_s(n_rounds) >= round_s + validating_s:
            return ""
        told = f"; LoadGen wants {validating_s:.0f} s" if left_s >= round_s else ""
        return f"one takes about {round_s:.0f} s, and {max(0.0, left_s):.0f} s are left{told}"

    def round_ends_s(self, number: int) -> float:
        """Return what a round may take so that those up to the first look fit."""
        n_missing = FIRST_LOOK - number + 1
        return self._study.budget.left_s() / n_missing if n_missing > 0 else math.inf

    def has_time_beside(self, arms: list[Configuration], n_rounds: int) -> bool:
        """Tell whether slices beside a busy neighbour leave the first look its time.

        Where winners must bear one, these come first.
        """
        needed_s = self.phases.looking_s(arms, n_rounds) + self.phases.beside_s(arms)
        is_asked = self._study.preference.bears_neighbours
        return is_asked or self._study.budget.left_s() >= needed_s

    def has_time_to_profile(
        self, arms: list[Configuration], n_rounds: int, some: list[Configuration]
    ) -> bool:
        """Tell whether profiles of some arms leave the first look at all arms its time."""
        needed_s = self.phases.looking_s(arms, n_rounds) + self.phases.profiling_s(some)
        return self._study.budget.left_s() >= needed_s

    def has_time_to_profile_alone(self, configuration: Configuration) -> bool:
        """Tell whether a launch of its own for a profile still fits."""
        needed_s = _PROFILE_LAUNCHES * self._costs.launch_s(configuration)
        return self._study.budget.left_s() > needed_s

    def has_time_for_rounds(self, launched: list[Configuration], n_rounds: int) -> bool:
        """Tell whether `n_rounds` rounds of what is launched still fit."""
        return self._study.budget.left_s() >= n_rounds * self._costs.round_s(launched)
