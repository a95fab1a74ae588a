"""What the phases of a study cost, and what is kept for the confirmation before it begins.

All figures are seconds of the wall clock, estimated from what launches have cost so far
(study/costs.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.launchers.loadgen import is_installed
from tuner.measurement.confirmation import FIRST_LOOK, LOOKS, ONE_SIDED, expected_half_width
from tuner.record.configuration import Configuration
from tuner.record.journal import Phase
from tuner.record.workload import SERVICE
from tuner.space.catalogue import is_default
from tuner.space.knobs_of.launch import BATCH
from tuner.study.compared import confirmation_arms, main_baselines
from tuner.study.costs import SAFETY
from tuner.study.proofs import dear, is_unmeasured
from tuner.study.study import Study

EXPLAIN_ROUNDS = FIRST_LOOK
"""As many as the confirmation's first look: an interval over fewer is hardly one."""
NEIGHBOUR_ROUNDS = 4
"""The first rounds of the confirmation end beside a busy neighbour."""
_ENOUGH_ROUNDS = LOOKS[2]
"""On a busy host, the four rounds of the first look seldom decide an effect below 10 %."""
_CONFIRM_SHARE = 1 / 3
"""Share of the budget: the most that is kept for the confirmation beyond its first look."""
_FEW = 6
"""Proposals, two for each winner class. Up to this number only the first look is kept for the
confirmation: a study that looks beyond the recommendations a little tells more than one whose
intervals of them are narrower."""
_BESIDE = 2.5
"""How many times as long a slice takes beside a busy neighbour, as a guess."""
_PROFILE_SLICES, _PROFILE_S = 3.0, 2.0
"""What a profile takes: some slices, because a profiler slows what it watches, and its own work."""
LOADGEN_S = 150.0
"""In which LoadGen sends requests to one configuration, at the most."""
_LOADGEN_SHARE = 0.1
"""Of the budget that one run of it may take."""
_LOADGEN_LEAST_S = 2.0
LOADGEN_ENOUGH = 20
"""Times the requests of which one is expected beyond the quantile: fewer than a quarter of them
cannot be VALID (at p99, 459 where none of them is late)."""


def has_loadgen_to_ask(study: Study) -> bool:
    """Tell whether LoadGen can say something of the rates, were it installed.

    Its requests arrive at random, and it knows no HTTP.
    """
    slo = study.ledger.objective.slo
    return slo is not None and slo.trace is None and study.bench.form != SERVICE


class PhaseCosts:
    """Estimates of what each phase would take from now on."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._costs = study.costs
        self._total_s = study.budget.total_s

    def looking_s(self, arms: Iterable[Configuration], n_rounds: int = 0) -> float:
        """Return the seconds that the first look still takes after `n_rounds` rounds."""
        return max(0, FIRST_LOOK - n_rounds) * self._costs.round_s(arms)

    def first_look_s(self) -> float:
        """Return the seconds of the first look, at the least that it compares."""
        return self.looking_s(confirmation_arms(self._study, self.compared()))

    def looks_s(self) -> float:
        """Return the seconds of the confirmation's first look, and of more looks if cheap.

        Where the first will do, those after it are not reckoned with.
        """
        if self._leads_are_clear():
            return self.first_look_s()
        launched = confirmation_arms(self._study, self.compared(), at_reference=True)
        enough_s = _ENOUGH_ROUNDS * self._costs.round_s(launched)
        return max(self.first_look_s(), min(enough_s, _CONFIRM_SHARE * self._total_s))

    def confirming_s(self) -> float:
        """Return what is kept for the confirmation: its looks, some beside a neighbour, LoadGen.

        After few proposals, the least that a verdict needs; LoadGen takes no baseline's time.
        """
        if not self._study.preference.bears_neighbours and self.has_few_proposals():
            return self.first_look_s()
        launched = confirmation_arms(self._study, self.compared(), at_reference=True)
        besides_s = NEIGHBOUR_ROUNDS * self.beside_s(launched)
        kept_s = self.looks_s() + min(self.neighbours_s(), besides_s)
        is_searching = self._study.notes.is_done(Phase.BASELINES)
        return kept_s + (self.validating_s() if is_searching else 0.0)

    def compared(self) -> list[Configuration]:
        """Return what the confirmation compares with the default at the least."""
        finalists = self._study.contenders.finalists()
        return [*finalists.values(), *main_baselines(self._study)]

    def _leads_are_clear(self) -> bool:
        """Tell whether a first look should find every finalist faster than the default."""
        ledger = self._study.ledger
        default = ledger.leaders.default_at_best()
        finalists = [c for c in self._study.contenders.finalists().values() if not is_default(c)]
        if default is None or not finalists:
            return False
        sd, n_arms = ledger.estimates.launch_sd, len(set(finalists))
        half_width = expected_half_width(sd, FIRST_LOOK, n_arms)
        return all(
            (score := ledger.score(c)) is not None
            and score - default[1] > half_width + ONE_SIDED * ledger.noise(c, default[0])
            for c in finalists
        )

    def has_few_proposals(self) -> bool:
        """Tell whether exploring has begun and gone no further than a few proposals."""
        study = self._study
        return study.notes.is_done(Phase.BASELINES) and study.n_proposed() <= _FEW

    def neighbours_s(self) -> float:
        """Return the seconds that slices beside a busy neighbour may take in all."""
        return self._study.preference.neighbours_s(self._total_s)

    def beside_s(self, arms: Iterable[Configuration]) -> float:
        """Return the seconds of a slice beside a busy neighbour, of each of these arms."""
        return _BESIDE * sum(self._costs.slice_s(arm) for arm in arms)

    def minimising_s(self) -> float:
        """Return the seconds of minimising: finalists again, each setting away, then several."""
        study = self._study
        # in a fixed order: sums of the same seconds in another one differ in their last digits
        finalists = dict.fromkeys(study.contenders.finalists().values())
        shorter = dict.fromkeys(c for f in finalists for c in study.removals(f).values())
        cost_s, ledger = self._costs.launch_s, study.ledger
        one_by_one = [cost_s(c) for c in shorter if ledger.score(c) is None]
        again = [cost_s(f) for f in finalists if ledger.n_launches(f) == 1]
        at_once = [cost_s(f) for f in finalists if len(f.settings) > 1]
        return SAFETY * sum(one_by_one + again + at_once)

    def proving_s(self) -> float:
        """Return the seconds of showing that the finalists need their dear settings.

        Each finalist that has some is launched a second time, and each removal that was not
        measured.
        """
        study = self._study
        wanted = {}  # a dict keeps the order, on which the last digits of the sum depend
        for finalist in study.contenders.finalists().values():
            without = dear(study, finalist)
            if without and study.ledger.n_launches(finalist) == 1:
                wanted[finalist] = True
            wanted.update({c: True for c in without.values() if is_unmeasured(study, c)})
        return SAFETY * sum(self._costs.launch_s(c) for c in wanted)

    def profiling_s(self, arms: Iterable[Configuration] | None = None) -> float:
        """Return the seconds of profiling arms in a round: the default and what ships if None."""
        if arms is None:
            finalists = self._study.contenders.finalists()
            arms = confirmation_arms(self._study, [finalists[self._study.widest]])
        may_be = filter(self._study.bench.may_profile, arms)
        return sum(_PROFILE_SLICES * self._costs.slice_s(arm) + _PROFILE_S for arm in may_be)

    def loadgen_s(self, rate: float) -> float:
        """Return the seconds in which LoadGen may send so many requests a second."""
        slo = self._study.ledger.objective.slo
        assert slo is not None
        enough_s = LOADGEN_ENOUGH * slo.least_requests / rate
        return max(_LOADGEN_LEAST_S, min(LOADGEN_S, _LOADGEN_SHARE * self._total_s, enough_s))

    def asking_loadgen_s(self, configuration: Configuration, rate: float) -> float:
        """Return the seconds of a launch that answers LoadGen's requests."""
        return self._costs.unsliced_s(configuration) + self.loadgen_s(rate)

    def validating_s(self) -> float:
        """Return the seconds of LoadGen's word on the default and on what ships; 0 without it."""
        study = self._study
        if not has_loadgen_to_ask(study) or not is_installed():
            return 0.0
        default = study.ledger.leaders.default_at_best()
        asked = [study.contenders.finalists()[study.widest]]
        if default is not None and not study.ledger.default_is_late:
            asked.append(default[0])
        scores = [(c, study.ledger.score(c)) for c in dict.fromkeys(asked)]
        value = study.ledger.objective.value
        costs_s = [self.asking_loadgen_s(c, value(s)) for c, s in scores if s is not None]
        return SAFETY * sum(costs_s)

    def explaining_s(self, winner: Configuration) -> float:
        """Return the seconds that all settings of a winner take to be compared."""
        return EXPLAIN_ROUNDS * self._costs.round_s(explained(self._study, winner))


def explained(study: Study, winner: Configuration) -> list[Configuration]:
    """Return the winner, and what it is without each setting; the batch's gain is the default's."""
    without = [c for knob, c in study.removals(winner).items() if knob != BATCH]
    return [winner, *dict.fromkeys(without)]
