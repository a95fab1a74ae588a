"""The planner: decides whether there is time for a step, and keeps time for later phases.

The order of priority: the confirmation, if it fits at all; the proofs without which costly settings
cannot ship; the search. Minimising and explaining get what a stalled search leaves: while the
search finds something, a better configuration is worth more than a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tuner.measurement.confirmation import FIRST_LOOK, LOOKS
from tuner.record.configuration import Configuration
from tuner.record.events import PhaseBegins, TimeLeft
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.serving import Validation
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.study.compared import EXPLAIN_ROUNDS, baselines_to_confirm, confirmation_arms
from tuner.study.costs import SAFETY
from tuner.study.forecast import (
    NEIGHBOUR_ROUNDS,
    Forecast,
    promises_a_verdict,
    say_what_is_ahead,
)
from tuner.study.loadgen import ask_loadgen
from tuner.study.steps import (
    Aim,
    AnswerT,
    ArmsWanted,
    EarlyLook,
    ExtraRound,
    Fitting,
    Launch,
    Launches,
    LoadgenRun,
    NoTime,
    Outlook,
    Publish,
    Round,
    Step,
    Steps,
    TimeShare,
)
from tuner.study.study import Study

_PROOFS_SHARE = 0.2
"""Share of the budget: the most that is kept to prove costly settings, which ship proven only."""
_MINIMISE_SHARE = 0.2
"""Share of the budget: the most that a stalled search leaves to minimising."""
_EXPLAIN_SHARE = 0.15
"""Share of the budget: the most that a stalled search leaves to explaining."""
_EARLY_SHARE = 0.15
"""Share of the budget: the most that an early verdict may take from what finds a better one."""
_RACE_LAUNCHES = 4
"""Launches that a stalled search leaves to the race."""


class Planner:
    """Drives the phases of a study; grants their steps, or refuses them."""

    def __init__(self, study: Study, publish: Callable[[], object] = lambda: None) -> None:
        """publish: writes the result as far as it is known."""
        self._study = study
        self._publish = publish
        self._forecast = Forecast(study)
        self._share_ends_s: dict[TimeShare, float] = {}

    def run(self, phases: Iterable[Callable[[Study], Steps[None]]]) -> None:
        """Run phases in their order. Each phase knows what an earlier session has done.

        Raises what measuring raises: NothingMeasured, UsageError, Interrupted.
        """
        for phase in phases:
            self.carry_out(phase(self._study))

    def carry_out(self, steps: Steps[AnswerT]) -> AnswerT:
        """Answer every step of a phase, or of a part of one; return what that returns."""
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                returned: AnswerT = end.value
                return returned
            answer = self.answer(step)

    # ---------------------------------------------------------------- what comes of a step

    def answer(self, step: Step[Any]) -> Any:
        """Return the result of a step, or NoTime."""
        match step:
            case Launch():
                return self._launch(step)
            case Launches(aim=Aim.BASELINE):
                return self._launch_baselines(step)
            case Launches():
                return self._launch_proposals(step)
            case Round():
                return self._measure_round(step)
            case EarlyLook():
                return self._look_early(step)
            case ExtraRound():
                return self._measure_extra(step)
            case LoadgenRun():
                return self._ask_loadgen(step)
            case ArmsWanted():
                return self._fit(step)
            case Publish():
                self._publish()
                return None
            case Outlook():
                return say_what_is_ahead(self._study, self._forecast, step.n_baselines)
            case _:
                raise TypeError(f"the planner knows no step like {step}")

    def _launch(self, step: Launch) -> LaunchRecord | NoTime:
        if not self._has_time(step):
            return NoTime()
        return self._study.measure(
            step.configuration,
            step.purpose,
            may_prune=step.may_prune,
            beside_neighbour=step.beside_neighbour,
        )

    def _launch_baselines(self, step: Launches) -> list[LaunchRecord]:
        """Launch what is always needed, and other baselines that fit."""
        group: list[Configuration] = []
        while len(group) < self._study.most_together and (drawn := step.draw()) is not None:
            if self._is_needed(drawn) or self._has_time_for_baseline(drawn, group):
                group.append(drawn)
        return self._study.measure_several(group, step.purpose) if group else []

    def _launch_proposals(self, step: Launches) -> list[LaunchRecord] | NoTime:
        """Launch a proposal, and others in parallel while there is time for as costly ones."""
        if step.has_stalled and self._is_better_left():
            return NoTime()
        if (first := step.draw()) is None:
            return []
        if not self._make_time_for(first):
            return NoTime()
        group, cost_s = [first], self._forecast.costs.launch_s(first)
        while (
            len(group) < self._study.most_together
            and self._has_time_to_search(first, len(group) * cost_s)
            and (another := step.draw()) is not None
        ):
            group.append(another)
        return self._study.measure_several(group, step.purpose, may_prune=step.may_prune)

    def _measure_round(self, step: Round) -> list[LaunchRecord] | NoTime:
        study, n_before = self._study, step.n_before
        if why := self._why_no_round(step):
            return NoTime(why)
        if step.purpose is not Purpose.CONFIRM:
            is_design = step.purpose is Purpose.DESIGN
            return study.measure_round(step.arms, step.number, step.purpose, checks=is_design)
        n_missing = FIRST_LOOK - n_before
        return study.measure_round(
            step.arms,
            step.number,
            step.purpose,
            # so that the rounds up to the first look fit
            seconds=self._left_s() / n_missing if n_missing > 0 else math.inf,
            beside_neighbour=study.preference.bears_neighbours
            and n_before < NEIGHBOUR_ROUNDS
            and self._wants_neighbour(step.arms),
        )

    def _look_early(self, step: EarlyLook) -> list[LaunchRecord] | NoTime:
        """Measure a round for an early verdict: all of a first look within their share, or none."""
        n_missing = FIRST_LOOK - step.number + 1
        needed_s = n_missing * step.cost_s(self._forecast)
        most_s = _EARLY_SHARE * self._study.budget.total_s
        is_costly = step.number == 1 and needed_s > most_s
        if is_costly or self._left_s() < self._confirming_s() + needed_s:
            return NoTime()
        if step.number == 1:
            detail = f"the default against {step.arms[-1].label()}"
            self._study.listen(PhaseBegins("early verdict", detail))
        # not those of the first confirmation's rounds: replays draw their launches by the number
        number = LOOKS[-1] + step.number
        seconds = most_s / FIRST_LOOK
        return self._study.measure_round(step.arms, number, Purpose.CONFIRM, seconds=seconds)

    def _measure_extra(self, step: ExtraRound) -> list[LaunchRecord] | NoTime:
        profiled = list(filter(self._study.bench.may_profile, step.arms))
        wants_neighbour = len(step.arms) > 1 and self._wants_neighbour(step.arms)
        is_wanted = bool(profiled) or wants_neighbour
        if not is_wanted or self._left_s() < step.cost_s(self._forecast):
            return NoTime()
        return self._study.measure_round(
            step.arms,
            step.number,
            Purpose.EXPLAIN,
            beside_neighbour=wants_neighbour,
            profiled=profiled,
        )

    def _ask_loadgen(self, step: LoadgenRun) -> Validation | NoTime:
        if self._left_s() < step.cost_s(self._forecast):
            return NoTime()
        duration_s = self._forecast.loadgen_s(step.rate)
        found = ask_loadgen(self._study, step.configuration, step.rate, duration_s)
        self._study.listen(TimeLeft(self._left_s()))
        return found

    # ---------------------------------------------------------------- launches

    def _left_s(self) -> float:
        return self._study.budget.left_s()

    def _confirming_s(self) -> float:
        """Return the time kept for the confirmation; 0 if no verdict fits.

        Hints of what is fast are then worth more than unused seconds.
        """
        return 0.0 if self._forecast.is_out_of_reach() else self._forecast.confirming_s()

    def _has_time(self, step: Launch) -> bool:
        cost_s = step.cost_s(self._forecast)
        match step.aim:
            case Aim.SEARCH:
                leaving_s = sum(self._forecast.costs.launch_s(c) for c in step.leaving)
                return self._has_time_to_search(step.configuration, leaving_s)
            case Aim.RACE:
                kept_s = self._confirming_s() + self._forecast.minimising_s()
                return self._left_s() >= kept_s + cost_s
            case Aim.REMOVAL:
                return self._has_time_in_share(step, cost_s)
            case Aim.PROOF:
                return self._has_time_for_a_look(list(step.confirmed), cost_s, minimal=True)
            case _:
                return self._left_s() >= self._confirming_s() + cost_s

    def _is_needed(self, configuration: Configuration) -> bool:
        """Tell whether a configuration is measured whatever the time.

        The default and its stand-in once; the default at further batches while any time is left.
        """
        study = self._study
        if not is_default(configuration):
            return configuration == study.evaluation.stand_in
        is_first = not any(map(is_default, study.evaluation.tried()))
        return is_first or self._left_s() > study.costs.least_launch_s

    def _has_time_for_baseline(
        self, configuration: Configuration, group: Sequence[Configuration]
    ) -> bool:
        """Tell whether a baseline fits. group: the others that are launched in parallel.

        While nothing promises a verdict, no time is kept for one: a recommendation that was not
        tried at any batch may gain more than rounds of what hardly gains.
        """
        costs, tried = self._forecast.costs, self._study.evaluation.tried()
        is_new = configuration.without(BATCH) not in {c.without(BATCH) for c in tried}
        is_free = is_new and not promises_a_verdict(self._study)
        kept_s = 0.0 if is_free else self._confirming_s()
        kept_s += sum(costs.launch_s(c) for c in group)
        return self._left_s() >= kept_s + costs.launch_s(configuration)

    def _has_time_to_search(self, configuration: Configuration, kept_s: float = 0.0) -> bool:
        """Tell whether a launch leaves enough for verdicts, proofs, profiles, one race and more.

        kept_s: the more.
        """
        cost_s = self._forecast.costs.launch_s(configuration)
        return self._left_s() >= self.after_search_s(cost_s) + cost_s + kept_s

    def after_search_s(self, cost_s: float) -> float:
        """Return the time that must be left after a launch: for verdicts and one more launch.

        0 if no verdict fits: the search can then use all of it.
        """
        if self._forecast.is_out_of_reach():
            return 0.0
        most_s = _PROOFS_SHARE * self._study.budget.granted_s
        proving_s = min(self._forecast.proving_s(), most_s)
        return self._forecast.confirming_s() + proving_s + cost_s

    def _is_better_left(self) -> bool:
        """Tell whether the later phases would use all the time that is left.

        They are the race, minimising, a look at all winners and baselines, and the effect of each
        setting of the recommended winner. If no verdict fits, the race and minimising only.
        """
        study, forecast, total_s = self._study, self._forecast, self._study.budget.granted_s
        finalists = study.candidates.finalists()
        minimising_s = min(forecast.minimising_s(), _MINIMISE_SHARE * total_s)
        race_s = _RACE_LAUNCHES * max(forecast.costs.launch_s(c) for c in finalists.values())
        if forecast.is_out_of_reach():
            return self._left_s() < race_s + minimising_s
        compared = [*finalists.values(), *baselines_to_confirm(study)]
        everything = confirmation_arms(study, compared)
        looking_s = max(forecast.looks_s(), forecast.looking_s(everything))
        explaining_s = min(forecast.explaining_s(finalists[study.widest]), _EXPLAIN_SHARE * total_s)
        looking_s += forecast.validating_s()
        needed_s = race_s + minimising_s + looking_s + explaining_s
        return self._left_s() < needed_s

    def _make_time_for(self, configuration: Configuration) -> bool:
        """Make time for a launch of a configuration; return whether there is enough.

        If time seems to be up, launch again a configuration whose next launch may be cheaper than
        its only one.
        """
        while not self._has_time_to_search(configuration):
            again = self._config_to_rerun_warm(configuration)
            if again is None:
                return False
            self._study.measure(again, Purpose.RACE)
        return True

    def _config_to_rerun_warm(self, configuration: Configuration) -> Configuration | None:
        """Return what to launch again to make time for another launch; None if nothing helps.

        The time for the confirmation is estimated from its arms' launches. The only launch of an
        arm may have compiled without a cache. Another one with a warm cache may free more time than
        it takes.
        """
        forecast, costs = self._forecast, self._forecast.costs
        if not forecast.has_few_proposals() and forecast.first_look_s() < forecast.looks_s():
            return None  # a share of the budget, which a warm cache does not make less
        arms = confirmation_arms(self._study, forecast.compared())
        cold = [
            c
            for c in arms
            if (compiling_s := costs.compiling_s(c))
            and FIRST_LOOK * SAFETY * compiling_s > costs.launch_s(c) - compiling_s
            and costs.repeat_s(c) > costs.repeat_s(arms[0])
        ]
        if not cold:
            return None
        costliest = max(cold, key=costs.launch_s)
        warm = [arms[0] if c in cold else c for c in arms]  # at best, like the default
        at_best_s = forecast.looking_s(warm) + costs.launch_s(costliest)
        at_best_s += costs.launch_s(configuration)
        return None if self._left_s() < at_best_s else costliest

    def _has_time_in_share(self, step: Launch, cost_s: float) -> bool:
        """Tell whether a launch ends in its share, and before the confirmation's time."""
        share = step.share
        assert share is not None
        used_s, free_s = self._study.budget.used_s(), self._left_s() - self._confirming_s()
        if share not in self._share_ends_s:
            self._share_ends_s[share] = used_s + max(0.0, free_s) / share.n
        return cost_s <= min(self._share_ends_s[share] - used_s, free_s)

    # ---------------------------------------------------------------- the confirmation

    def _has_time_for_a_look(
        self, arms: list[Configuration], kept_s: float, *, minimal: bool = False
    ) -> bool:
        """Tell whether a first look at these arms fits and leaves `kept_s`.

        minimal: with the fewest slices that count; for a single arm, to the last second.
        """
        launched, left_s = confirmation_arms(self._study, arms), self._left_s()
        allowed_s = left_s + self._forecast.allowance_s(0)
        if not minimal:
            return allowed_s >= self._forecast.looking_s(launched) + kept_s
        needed_s = FIRST_LOOK * self._forecast.costs.minimal_round_s(launched) + kept_s
        return left_s >= SAFETY * needed_s if len(arms) > 1 else allowed_s >= needed_s

    def _fit(self, step: ArmsWanted) -> Fitting:
        """Return the arms that there is time to compare.

        If a first look at all does not fit, the winners come before the baselines, and the best
        baseline before the others. A cheaper baseline may fit where a better one does not. If not
        even the winners fit, the recommended one comes first.
        """
        study, forecast = self._study, self._forecast
        fitting = self._fitting(step.finalists, step.leaner)
        is_whole = all(c in fitting for c in step.finalists.values())
        later_s = forecast.looks_s() - forecast.first_look_s() + forecast.validating_s()
        for baseline in [c for c in step.baselines if c not in fitting]:
            # finalists that fell together may have parted since their time was set aside
            kept_s = 0.0 if baseline in step.main else later_s
            arms = [*fitting, baseline]
            if not fitting or (is_whole and self._has_time_for_a_look(arms, kept_s)):
                fitting.append(baseline)
        sound = [c for c in fitting if study.evaluation.may_win(c)]
        launched = confirmation_arms(study, sound, at_reference=True)
        # or verdicts would suffer
        at_reference = self._left_s() >= LOOKS[1] * forecast.costs.round_s(launched)
        return Fitting(tuple(fitting), at_reference, forecast.is_out_of_reach())

    def _fitting(
        self,
        finalists: Mapping[WinnerClass, Configuration],
        leaner: Mapping[Configuration, Sequence[Configuration]],
    ) -> list[Configuration]:
        """Return the arms of a first look that fits, in their order; if none fits, all.

        The recommended finalist comes first, then the one that would replace it. What the finalists
        leave goes to configurations without their costly settings: rounds of both are the best
        proof that the settings are needed.
        """
        in_turn = (
            self._study.widest,
            WinnerClass.SAME_PRECISION,
            WinnerClass.NO_CODE,
            WinnerClass.REDUCED_PRECISION,
        )
        ordered = list(dict.fromkeys(finalists[k] for k in in_turn if k in finalists))
        found: list[Configuration] = []
        for more in [[f] for f in ordered] + [list(leaner.get(f, ())) for f in ordered]:
            if self._has_time_for_a_look([*found, *more], 0.0, minimal=True):
                found += more
        by_class = list(dict.fromkeys(finalists.values()))
        in_order = [*(c for c in by_class if c in found), *found]
        return list(dict.fromkeys(in_order)) or by_class

    def _why_no_round(self, step: Round) -> str:
        """Say why a round is not begun; empty if it fits."""
        left_s, round_s = self._left_s(), step.cost_s(self._forecast)
        match step.purpose:
            case Purpose.CONFIRM:
                return self._why_no_confirming(step)
            case Purpose.EXPLAIN:  # all of them, or none
                needed_s = (EXPLAIN_ROUNDS - step.number + 1) * round_s
            case _:  # the first tells what one takes
                needed_s = round_s if step.number > 1 else -math.inf
        return "" if left_s >= needed_s else f"it takes {needed_s:.0f} s"

    def _why_no_confirming(self, step: Round) -> str:
        """Return why no further round of the confirmation is begun; empty if one fits.

        Rounds before the first look decide nothing without it, so that a minimal round will do.
        Once the recommended winner is known, time is kept for LoadGen.
        """
        left_s, forecast, n_before = self._left_s(), self._forecast, step.n_before
        if not n_before and forecast.is_out_of_reach():
            return f"the {max(0.0, left_s):.0f} s that are left hold no first look"
        is_needed = n_before < FIRST_LOOK
        round_s = step.cost_s(forecast)
        if is_needed:
            round_s = forecast.costs.minimal_round_s(step.arms)
        validating_s = forecast.validating_s() if step.is_proved else 0.0
        if left_s + forecast.allowance_s(n_before) >= round_s + validating_s:
            return ""
        text = f"; LoadGen wants {validating_s:.0f} s" if left_s >= round_s else ""
        return f"one takes about {round_s:.0f} s, and {max(0.0, left_s):.0f} s are left{text}"

    def _wants_neighbour(self, arms: Sequence[Configuration]) -> bool:
        """Tell whether slices next to a busy neighbour are within their share of the budget."""
        records = self._study.store.launches.values()
        spent_s = 2 * sum(
            s.seconds for record in records for s in record.contended
        )  # and discarded
        most_s = self._study.preference.neighbours_s(self._study.budget.total_s)
        return spent_s + self._forecast.contended_s(arms) <= most_s
