"""Estimates of the time that each phase will take, and of what a budget can hold.

All are seconds of the wall clock, estimated from the launches so far (study/costs.py). The planner
(study/planner.py) decides by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tuner.launchers.loadgen import is_installed
from tuner.measurement.arrival_plan import sd_by_shares
from tuner.measurement.confirmation import (
    FIRST_LOOK,
    LOOKS,
    ONE_SIDED,
    decidable_gain,
    expected_half_width,
)
from tuner.record.configuration import Configuration
from tuner.record.events import GainsAhead
from tuner.record.journal import Phase, RoundDone
from tuner.space.catalogue import is_default
from tuner.study.ablation import costly_settings, is_unmeasured
from tuner.study.claims import Claims
from tuner.study.compared import (
    EXPLAIN_ROUNDS,
    as_run,
    best_baseline,
    confirmation_arms,
    explained,
)
from tuner.study.costs import SAFETY
from tuner.study.deciding import open_in_extension, rounds_s, rounds_to_decide
from tuner.study.loadgen import has_loadgen_to_ask
from tuner.study.study import Study

NEIGHBOUR_ROUNDS = 4
"""Rounds that end next to a busy neighbour: the first ones of the confirmation if the goal asks for
it, otherwise extra ones."""
_ENOUGH_ROUNDS = LOOKS[2]
"""On a busy host, the four rounds of the first look seldom decide an effect below 10 %."""
_CONFIRM_SHARE = 1 / 3
"""Share of the budget: the most that is kept for the confirmation beyond its first look."""
_AS_RUN_SHARE = 1 / 4
"""Share of the budget: the most that is kept to confirm how the user runs it."""
_FEW = 6
"""Proposals, two per winner class. Up to this number only the first look is kept for the
confirmation. A study that looks a little beyond the recommendations is worth more than narrower
intervals of them."""
_EXTRA_SHARE = 0.1
"""Share of the budget: the most that is kept for profiles and a neighbour after the verdict."""
_BESIDE = 2.5
"""How many times as long a slice takes next to a busy neighbour; a guess."""
_PROFILE_SLICES, _PROFILE_S = 3.0, 2.0
"""What a profile takes: some slices, because a profiler slows its process, and its own work."""
LOADGEN_S = 150.0
"""Seconds for which LoadGen sends requests to one configuration, at most."""
_LOADGEN_SHARE = 0.1
"""Of the budget that one run of it may take."""
_LOADGEN_LEAST_S = 2.0
"""Seconds of one run of LoadGen, at least."""
LOADGEN_ENOUGH = 20
"""Requests of one LoadGen run, in units of the number that has one expected request beyond the
quantile. Fewer than a quarter of them cannot be VALID (at p99: 459, if none is late)."""
WANTED_LAUNCHES = 60
"""Launches of a study that searches: baselines, proposals, removals, a first look at all arms."""
_PROPOSALS = 20
"""Proposals that a search wants."""
_REMOVALS = 15
"""Launches of minimising: each of five settings away from each of three finalists."""
_FEWEST_ARMS = 2
"""Arms of the smallest confirmation: the default and one other."""


class Forecast:
    """Estimates of the seconds of each phase, from now on."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self.costs = study.costs
        """The seconds of launches, slices and rounds."""
        self._open: tuple[object, Claims, list[Configuration], int] | None = None
        """Cache for an extension: its finalists and rounds, and what follows from them."""

    @property
    def _total_s(self) -> float:
        return self._study.budget.granted_s

    def is_out_of_reach(self) -> bool:
        """Tell whether no verdict fits: not even a minimal first look at the cheapest finalist.

        It may take a launch longer than is left, as the planner lets a first look.
        """
        others = [c for c in self.compared() if not is_default(c)]
        looks = [confirmation_arms(self._study, [other]) for other in others]
        if not looks:  # of what is not known yet: as costly as the default
            default, *more = confirmation_arms(self._study, [])
            looks = [[default, default, *more]]
        round_s = min(map(self.costs.minimal_round_s, looks))
        return self._study.budget.left_s() + self.allowance_s(0) < FIRST_LOOK * round_s

    def allowance_s(self, n_rounds: int) -> float:
        """Return by how much a first look may overdraw the budget: by one launch."""
        return self.costs.launch_s(Configuration()) if n_rounds < FIRST_LOOK else 0.0

    def looking_s(self, arms: Iterable[Configuration], n_rounds: int = 0) -> float:
        """Return the seconds that the first look still takes after `n_rounds` rounds."""
        return max(0, FIRST_LOOK - n_rounds) * self.costs.round_s(arms)

    def first_look_s(self) -> float:
        """Return the seconds of the first look at the smallest set of arms."""
        return self.looking_s(confirmation_arms(self._study, self.compared()))

    def looks_s(self) -> float:
        """Return the seconds of the confirmation's first look, and of more looks if they are short.

        If the first look should decide, no time is kept for later ones. An extension keeps the
        seconds that its result named for the open finalists.
        """
        least_s = max(self.first_look_s(), self._deciding_s())
        if self._leads_are_clear():
            return least_s
        launched = confirmation_arms(self._study, self.compared(), at_reference=True)
        enough_s = _ENOUGH_ROUNDS * self.costs.round_s(launched)
        return max(least_s, min(enough_s, _CONFIRM_SHARE * self._total_s))

    def _deciding_s(self) -> float:
        """Return the seconds of the rounds that decide on an extension's finalists, as far as left.

        0 of a study's first extent.
        """
        study = self._study
        if not study.store.n_extensions:
            return 0.0
        finalists = tuple(study.candidates.finalists().values())
        known = finalists, len(study.store.all(RoundDone))
        if self._open is None or self._open[0] != known:  # the same before every launch of a search
            claims, arms = open_in_extension(study)
            needed = rounds_to_decide(study, claims, arms)
            self._open = known, claims, arms, max(needed.values(), default=0)
        _, claims, arms, n_rounds = self._open
        needed_s = rounds_s(study, claims, arms, n_rounds) if n_rounds else 0.0
        return min(needed_s, max(0.0, study.budget.left_s()))

    def confirming_s(self) -> float:
        """Return the time kept for the confirmation: its looks, LoadGen, and one round after it.

        After few proposals, only what a verdict needs. LoadGen takes no time from baselines.
        """
        preference = self._study.preference
        if not preference.bears_neighbours and self.has_few_proposals():
            return max(self.first_look_s(), self._deciding_s())
        kept_s = self.looks_s()
        if preference.bears_neighbours:
            launched = confirmation_arms(self._study, self.compared(), at_reference=True)
            besides_s = NEIGHBOUR_ROUNDS * self.contended_s(launched)
            kept_s += min(preference.neighbours_s(self._total_s), besides_s)
        kept_s += self._extra_s()
        is_searching = self._study.notes.is_done(Phase.BASELINES)
        return kept_s + (self.validating_s() if is_searching else 0.0)

    def _extra_s(self) -> float:
        """Return the time kept for a round that profiles the default and the recommended winner.

        None without a profiler, or if it takes too large a share.
        """
        finalists = self._study.candidates.finalists()
        arms = confirmation_arms(self._study, [finalists[self._study.widest]])
        if not (profiling_s := self.profiling_s(arms)):
            return 0.0
        needed_s = self.costs.round_s(arms) + profiling_s + self.contended_s(arms)
        return needed_s if needed_s <= _EXTRA_SHARE * self._total_s else 0.0

    def compared(self) -> list[Configuration]:
        """Return the smallest set of arms that the confirmation compares with the default.

        Finalists without their costly settings are not included: with compilers they take so long
        that a search of ten minutes would end before it began. They get time that is left.
        """
        finalists = self._study.candidates.finalists()
        return [*finalists.values(), *self._main_baselines()]

    def _main_baselines(self) -> list[Configuration]:
        """Return what time is kept for: how the user runs it, and the best baseline.

        One thread on a large machine may take the time of the whole study: it then waits for what
        the others leave.
        """
        own = as_run(self._study)
        if own is not None:
            first_look_s = FIRST_LOOK * self.costs.round_s([own])
            own = own if first_look_s <= _AS_RUN_SHARE * self._total_s else None
        both = (own, best_baseline(self._study))
        return list(dict.fromkeys(c for c in both if c is not None))

    def _leads_are_clear(self) -> bool:
        """Tell whether a first look should find every finalist faster than the default."""
        evaluation = self._study.evaluation
        default = evaluation.default_at_best()
        finalists = [c for c in self._study.candidates.finalists().values() if not is_default(c)]
        if default is None or not finalists:
            return False
        sd, n_arms = evaluation.estimates.launch_sd, len(set(finalists))
        half_width = expected_half_width(sd, FIRST_LOOK, n_arms)
        return all(
            (score := evaluation.score(c)) is not None
            and score - default[1] > half_width + ONE_SIDED * evaluation.noise(c, default[0])
            for c in finalists
        )

    def has_few_proposals(self) -> bool:
        """Tell whether exploring has begun and gone no further than a few proposals."""
        study = self._study
        return study.notes.is_done(Phase.BASELINES) and study.n_proposed() <= _FEW

    def contended_s(self, arms: Iterable[Configuration]) -> float:
        """Return the seconds of one slice next to a busy neighbour, of each of these arms."""
        return _BESIDE * sum(self.costs.slice_s(arm) for arm in arms)

    def minimising_s(self) -> float:
        """Return the seconds of minimising: finalists again, each setting away, then several."""
        study = self._study
        # in a fixed order: sums of the same seconds in another one differ in their last digits
        finalists = dict.fromkeys(study.candidates.finalists().values())
        shorter = dict.fromkeys(c for f in finalists for c in study.removals(f).values())
        cost_s, evaluation = self.costs.launch_s, study.evaluation
        one_by_one = [cost_s(c) for c in shorter if evaluation.score(c) is None]
        again = [cost_s(f) for f in finalists if evaluation.n_launches(f) == 1]
        at_once = [cost_s(f) for f in finalists if len(f.settings) > 1]
        return SAFETY * sum(one_by_one + again + at_once)

    def proving_s(self) -> float:
        """Return the seconds of launching the finalists without each of their costly settings.

        Only those that were not measured yet.
        """
        study = self._study
        # a dict keeps the order, on which the last digits of the sum depend
        wanted = {
            costly.shorter: True
            for finalist in study.candidates.finalists().values()
            for costly in costly_settings(study, finalist).values()
            if is_unmeasured(study, costly.shorter)
        }
        return SAFETY * sum(self.costs.launch_s(c) for c in wanted)

    def profiling_s(self, arms: Iterable[Configuration]) -> float:
        """Return the seconds of profiling those arms of a round that were not profiled yet."""
        may_be = filter(self._study.bench.may_profile, arms)
        return sum(_PROFILE_SLICES * self.costs.slice_s(arm) + _PROFILE_S for arm in may_be)

    def loadgen_s(self, rate: float) -> float:
        """Return the seconds for which LoadGen sends requests at a rate."""
        slo = self._study.evaluation.objective.slo
        assert slo is not None
        enough_s = LOADGEN_ENOUGH * slo.least_requests / rate
        return max(_LOADGEN_LEAST_S, min(LOADGEN_S, _LOADGEN_SHARE * self._total_s, enough_s))

    def validating_s(self) -> float:
        """Return the seconds of LoadGen's runs for default and recommendation; 0 without it."""
        study = self._study
        if not has_loadgen_to_ask(study) or not is_installed():
            return 0.0
        default = study.evaluation.default_at_best()
        validated = [study.candidates.finalists()[study.widest]]
        if default is not None and not study.evaluation.default_is_late:
            validated.append(default[0])
        scores = [(c, study.evaluation.score(c)) for c in dict.fromkeys(validated)]
        value = study.evaluation.objective.value
        known = [(c, value(score)) for c, score in scores if score is not None]
        costs_s = [self.costs.unsliced_s(c) + self.loadgen_s(rate) for c, rate in known]
        return SAFETY * sum(costs_s)

    def explaining_s(self, winner: Configuration) -> float:
        """Return the seconds that all settings of a winner take to be compared."""
        return EXPLAIN_ROUNDS * self.costs.round_s(explained(self._study, winner))


def promises_a_verdict(study: Study) -> bool:
    """Tell whether any finalist leads by as much as a first look at it alone decides."""
    evaluation = study.evaluation
    default = evaluation.default_at_best()
    if default is None:
        return True  # rates are confirmed all the same
    gain = decidable_gain(evaluation.estimates.launch_sd, FIRST_LOOK, 1)
    finalists = study.candidates.finalists().values()
    scores = (evaluation.score(c) for c in finalists if not is_default(c))
    return any(score is not None and score - default[1] >= gain for score in scores)


def say_what_is_ahead(study: Study, forecast: Forecast, n_baselines: int) -> None:
    """Report the gain that this budget can decide on; warn if the budget is shorter than wanted.

    n_baselines: the number of baselines that are still to be measured.
    """
    _warn_of_a_short_budget(study, forecast, n_baselines)
    n_arms = len(study.turns)
    round_s = study.costs.round_s([Configuration()] * (1 + n_arms))
    n_rounds = int(_CONFIRM_SHARE * study.budget.total_s / round_s)
    if n_rounds < FIRST_LOOK:  # it is then one arm that is confirmed, if any
        n_rounds, n_arms = FIRST_LOOK, 1
        if study.budget.left_s() < _look_s(forecast, _FEWEST_ARMS):
            return
    n_rounds, launch_sd = min(n_rounds, _ENOUGH_ROUNDS), study.evaluation.estimates.launch_sd
    gain = decidable_gain(launch_sd, n_rounds, n_arms)
    by_shares = None
    if (sd := _sd_by_shares(study)) is not None:
        with_requests = math.hypot(launch_sd, sd)
        by_shares = math.expm1(decidable_gain(with_requests, n_rounds, n_arms))
    study.listen(GainsAhead(math.expm1(gain), n_rounds, launch_sd, by_shares))


def _sd_by_shares(study: Study) -> float | None:
    """Return the scatter (log) of a launch's rate by its shares of late requests alone.

    None if no requests arrive, or the default is not measured.
    """
    objective, default = study.evaluation.objective, study.evaluation.default_at_best()
    if objective.slo is None or default is None:
        return None
    return sd_by_shares(objective.value(default[1]), objective.slo)


def _warn_of_a_short_budget(study: Study, forecast: Forecast, n_baselines: int) -> None:
    """Warn if the budget holds less than a study wants, and name one that holds it.

    Launches of the search include slices of a pacer and may wait for quiet; those of rounds do
    neither. The time kept for the confirmation is estimated as in the planner. No finalist is known
    yet: every class will soon have one, and the best baseline is confirmed too.
    """
    launch_s = study.costs.launch_s(Configuration())
    claim_s = _look_s(forecast, _FEWEST_ARMS)
    left_s = max(0.0, study.budget.left_s())
    looking_s = _look_s(forecast, 1 + len(study.turns) + min(1, n_baselines))
    n_leading = min(n_baselines, len(study.turns))
    n_before = n_baselines + n_leading * (len(study.evaluation.batches) - 1)
    validating_s = 2 * forecast.validating_s()
    wanted_s = looking_s + validating_s + (n_before + _PROPOSALS + _REMOVALS) * launch_s
    if left_s >= wanted_s:
        return
    n_beside = int((left_s - claim_s) / launch_s)
    # a launch more is kept for the race, and LoadGen is asked about the default and another
    kept_s = looking_s + launch_s + validating_s
    n_proposals = int((left_s - kept_s) / launch_s) - n_before
    if left_s < claim_s:
        held = "are too short for one: expect no verdict"
        if forecast.is_out_of_reach():
            held += ", but hints of what is fast, with which --extend continues"
    elif n_beside < n_baselines:
        held = f"cover it and {n_beside} of {n_baselines} baseline(s), and no search"
    elif n_proposals <= 0:
        held = "cover it and the baselines, and hardly any search"
    elif n_proposals < _PROPOSALS:
        held = (
            f"cover it, the baselines and about {n_proposals} of the {_PROPOSALS} launches of a "
            "search, and few launches of winners without single settings"
        )
    else:
        held = "cover it and a search, but perhaps not the winners without each setting"
    used_s = study.budget.used_s()
    least = f", and {_told(used_s + claim_s)} one verdict" if left_s < claim_s else ""
    study.notes.warn(
        f"a launch takes about {_told(launch_s)} here, and a verdict at least {_told(claim_s)}; "
        f"the remaining {_told(left_s)} {held}; {_told(used_s + wanted_s)} for this study would "
        f"cover baselines, a search and verdicts{least} (--budget is for all studies of a run)",
        is_passing=True,
    )


def _told(seconds: float) -> str:
    """Write seconds as a budget is given: above ten minutes in whole minutes."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{math.ceil(seconds / 60)}m"


def _look_s(forecast: Forecast, n_arms: int) -> float:
    """Estimate the seconds of a first look at `n_arms` arms that cost as much as the default."""
    return forecast.looking_s([Configuration()] * n_arms)
