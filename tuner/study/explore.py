"""Beyond the recommendations: new configurations, for each of the three questions in turn."""

from __future__ import annotations

import math
import statistics
from collections import Counter

from tuner.record.configuration import Configuration
from tuner.record.journal import TRANSFERRED, Phase, TransferNoted, WinnerClass
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.search.sampler import UNGUIDED, Exhausted
from tuner.space.catalogue import BATCH
from tuner.space.knobs import allowed_in
from tuner.study.compared import main_baselines
from tuner.study.confirmation_costs import first_look_s, has_few_proposals, looks_s
from tuner.study.reserves import least_s, useful_s
from tuner.study.study import MIN_ROUNDS, SAFETY, Study

PATIENCE = 4
"""Turns of the surrogate in a row at which little was expected, before a class is settled."""
_LITTLE = 0.0005
"""An expected gain of the log rate that is not worth a launch, however quiet the host."""
_OF_NOISE = 1 / 10
"""The same as a share of what launches scatter by."""
PROVED = 3
"""Launches of a leader before the search goes on around it."""
_CLEARLY = 3.0
"""Standard errors by which a lead is clear at once."""
_REST = 1 / 4
"""Of the seconds that a study took so far: what costs no more is measured, though little is
expected of it, while there is time: that nothing was left out is worth more than a model's word."""
_UNGUIDED_SHARE = 1 / 3
"""Of a class's proposals, those that the surrogate did not make, before it is settled: where
everything that was tried lies around one optimum, it is sure that there is no other."""
_STALLED = 9
"""A search has stalled after so many proposals since its best was found, those of every class
together, and half of all: what it leaves to the later phases then tells more."""


class _Progress:
    """How each class is doing: which are settled, and how long since the last improvement."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._since_better: Counter[WinnerClass] = Counter()
        self._proposed: Counter[WinnerClass] = Counter()
        self._unguided: Counter[WinnerClass] = Counter()
        self._hopes_are_low: Counter[WinnerClass] = Counter()
        self._leaders: dict[WinnerClass, Configuration] = {}
        self.settled: dict[WinnerClass, str] = {}

    def after(self, klass: WinnerClass) -> None:
        """Take note of a proposal's result for every class, and settle `klass` if it is time.

        That is where the surrogate has expected next to nothing of its best proposal for a while,
        half of all proposals brought nothing, no neighbour of the best is untried, what others
        proposed brought nothing either, and the rest of the class costs more than a share of what
        was spent: else it goes on with that.
        """
        study, ledger = self._study, self._study.ledger
        sampler = study.trials.sampler
        for each in study.turns:
            found = ledger.best_in(each)
            if found is None:
                continue
            if found[1] > self._level(each) + ledger.floor():
                self._leaders[each] = found[0]
                self._since_better[each] = 0
                sampler.around.pop(each, None)
                sampler.looks_elsewhere.discard(each)
        self._since_better[klass] += 1
        self._proposed[klass] += 1
        self._unguided[klass] += sampler.source in UNGUIDED
        gain = sampler.expected_gain.get(klass, math.inf)
        little = max(_LITTLE, _OF_NOISE * ledger.estimates.launch_sd)
        if gain >= little:
            self._hopes_are_low[klass] = 0
            sampler.looks_elsewhere.discard(klass)
        elif sampler.source == "surrogate":
            self._hopes_are_low[klass] += 1
        sampler.focus = klass
        if self._hopes_are_low[klass] < PATIENCE or not self._has_long_failed(klass):
            return
        leader = self._leaders.get(klass)
        if leader is not None and sampler.open_neighbours(leader, ledger.tried()):
            sampler.around[klass] = leader
        elif self._rest_s(klass) <= _REST * study.budget.used_s():
            sampler.looks_elsewhere.discard(klass)  # the rest is measured anyway
        elif self._unguided[klass] < _UNGUIDED_SHARE * self._proposed[klass]:
            sampler.looks_elsewhere.add(klass)
        else:
            self.settled[klass] = (
                f"settled: the most promising configuration is expected to gain {gain:.2%}"
            )

    def _rest_s(self, klass: WinnerClass) -> float:
        """Estimate the seconds of a launch of all that a class has left."""
        study = self._study
        study.trials.sampler.focus = klass
        n_left = study.trials.sampler.n_left(study.ledger.tried())
        if not n_left or math.isinf(n_left):
            return n_left
        costs_s = [study.cost_s(trial.configuration) for trial in study.ledger.trials()]
        return n_left * statistics.fmean(costs_s)

    def _level(self, klass: WinnerClass) -> float:
        """Return what the class's leader is worth by now: a lucky score falls, or it fails."""
        leader = self._leaders.get(klass)
        score = None if leader is None else self._study.ledger.tried().get(leader)
        return -math.inf if score is None else score

    def has_stalled(self) -> bool:
        """Tell whether no class has found anything better for some turns."""
        turns = self._study.turns
        open_classes = [k for k in turns if k not in self.settled]
        enough = _STALLED / len(turns)
        return all(
            self._since_better[k] >= enough and self._has_long_failed(k) for k in open_classes
        )

    def _has_long_failed(self, klass: WinnerClass) -> bool:
        """Tell whether half of all proposals brought nothing: a surrogate may be sure and wrong."""
        return self._since_better[klass] >= self._proposed[klass] / 2


def explore(study: Study) -> None:
    """Try new configurations until every class is settled, or the confirmation's time has come."""
    if study.is_done(Phase.EXPLORE):
        return
    study.enter(Phase.EXPLORE, f"up to {study.space.upper_size():,} combinations")
    try_transferred(study)
    progress = _Progress(study)
    reason = ""
    turn = 0
    while not reason:
        open_classes = [k for k in study.turns if k not in progress.settled]
        if not open_classes:
            reason = "; ".join(f"{k}: {why}" for k, why in progress.settled.items())
            break
        if progress.has_stalled() and study.budget.left_s() < useful_s(study):
            reason = "nothing better was found for some time: the rest is for the later phases"
            break
        klass = open_classes[turn % len(open_classes)]
        turn += 1
        try:
            proposal = study.trials.ask(klass)
        except Exhausted as error:
            progress.settled[klass] = f"exhausted: {error}"
            continue
        if not make_time_for(study, proposal.configuration):
            study.trials.tell(proposal.number, Outcome.PRUNED, "the budget is used up", None)
            reason = "the rest of the budget is the confirmation's"
            break
        record = study.measure(proposal.configuration, Purpose.SEARCH, may_prune=True)
        study.tell(proposal, record)
        prove_leader(study, klass)
        progress.after(klass)
    if not study.n_proposed():
        if len(progress.settled) == len(study.turns):
            study.warn(f"nothing beyond the default and the baselines was tried: {reason}; the "
                       "space holds nothing else that applies here")  # fmt: skip
        else:
            study.leave_undone("to try anything beyond the default and the baselines")
    note_transfer(study)
    study.done(Phase.EXPLORE, reason)


def try_transferred(study: Study) -> None:
    """Measure what did best in earlier studies, at the batch that suits the default."""
    default, ledger = study.ledger.default_at_best(), study.ledger
    batch = int((default and default[0].get(BATCH)) or ledger.reference_batch)

    def at_its_batch(guess: Configuration) -> Configuration:
        moved = ledger.at_batch(guess, batch)
        return moved if study.space.contains(moved) else guess

    tried = set(ledger.tried())  # the baselines: often the very best of an earlier study
    guesses = study.trials.sampler.transfer.guesses(
        study.turns, lambda guess: at_its_batch(guess) in tried
    )
    for _, best in guesses:
        guess = at_its_batch(best)
        if not make_time_for(study, guess):
            return
        proposal = study.trials.ask_for(guess, TRANSFERRED)
        study.tell(proposal, study.measure(guess, Purpose.SEARCH, may_prune=True))


def note_transfer(study: Study) -> None:
    """Note what came of listening to earlier studies, and warn where they misled."""
    transfer, surrogate = study.trials.sampler.transfer, study.trials.sampler.surrogate
    if not transfer.studies:
        return
    study.beliefs()  # by everything that was measured
    study.store.add(
        TransferNoted(
            tuple(transfer.studies),
            transfer.n_configurations,
            surrogate.hint_correlation,
            surrogate.is_misled,
        )
    )
    if surrogate.is_misled:
        study.warn(
            "the earlier studies misled (their ranks correlate with what was measured by "
            f"{surrogate.hint_correlation:.2f}) and were not listened to any more"
        )


def prove_leader(study: Study, klass: WinnerClass) -> None:
    """Launch a class's new leader again where its lead may be luck, and there is time.

    The others are compared with it, and around it the search goes on: of many launches the luckiest
    would lead it astray. What launches of one configuration differ by is learnt from this, too.
    """
    beliefs = study.beliefs()
    leader = study.standing(klass)
    if leader not in beliefs or study.ledger.n_launches(leader) >= PROVED:
        return
    others = [b.mean for c, b in beliefs.items() if c != leader and allowed_in(klass, c)]
    lead = beliefs[leader].mean - max(others, default=-math.inf)
    cost_s = study.cost_s(leader)
    if lead < _CLEARLY * study.ledger.score_sd(leader) and (
        study.budget.left_s() >= least_s(study, cost_s) + cost_s
    ):
        study.measure(leader, Purpose.RACE)


def make_time_for(study: Study, configuration: Configuration) -> bool:
    """See to it that a launch of a configuration leaves enough for the phases that follow.

    What the confirmation needs is estimated from the launches of those who will be in it. Where one
    was launched only once, which may have compiled from nothing, and time seems to be up, it is
    launched again if that may save more than it costs: a warm compiler's cache often frees time for
    many proposals. Returns whether there is time.
    """
    cost_s = study.cost_s(configuration)
    while True:
        if study.budget.left_s() >= least_s(study, cost_s) + cost_s:
            return True
        if not has_few_proposals(study) and first_look_s(study) < looks_s(study):
            return False  # a share of the budget, which a warm cache does not make less
        arms = study.confirmation_arms([*study.finalists().values(), *main_baselines(study)])
        ledger = study.ledger
        cold = [
            c
            for c in arms
            if (compiling_s := ledger.compiling_s(c))
            and MIN_ROUNDS * SAFETY * compiling_s > study.cost_s(c) - compiling_s
            and ledger.repeat_cost_s(c) > ledger.repeat_cost_s(arms[0])
        ]
        if not cold:
            return False
        dearest = max(cold, key=study.cost_s)
        warm = [arms[0] if c in cold else c for c in arms]  # at best, like the default
        at_best_s = MIN_ROUNDS * study.round_cost_s(warm) + study.cost_s(dearest) + cost_s
        if study.budget.left_s() < at_best_s:
            return False
        study.measure(dearest, Purpose.RACE)
