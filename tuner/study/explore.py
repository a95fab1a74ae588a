"""Beyond the recommendations: new configurations, for each of the three questions in turn."""

from __future__ import annotations

from collections import Counter

from tuner.record.configuration import Configuration
from tuner.record.journal import Phase, WinnerClass
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.search.sampler import Exhausted
from tuner.study.reserves import least_s, useful_s
from tuner.study.study import MIN_ROUNDS, TURNS, Study

PATIENCE = 5
"""A class is settled when all one-knob neighbours of its best are tried and this many further
proposals brought nothing, the one that found it counted."""
_STALLED = 3
"""A search has stalled after so many turns of every class since its best was found, that one
counted: what it leaves to the later phases then tells more."""


class _Progress:
    """How each class is doing: which are settled, and how long since the last improvement."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._since_better: Counter[WinnerClass] = Counter()
        self._best: dict[WinnerClass, float] = {}
        self.settled: dict[WinnerClass, str] = {}

    def after(self, klass: WinnerClass) -> None:
        """Take note of a proposal's result for every class, and settle `klass` if it is time."""
        ledger = self._study.ledger
        for each in WinnerClass:
            leader = ledger.best_in(each)
            if leader is None:
                continue
            if leader[1] > self._best.get(each, float("-inf")) + ledger.floor():
                self._best[each] = leader[1]
                self._since_better[each] = 0
        self._since_better[klass] += 1
        sampler = self._study.trials.sampler
        sampler.focus = klass
        is_local_best = not sampler.open_neighbours(ledger.tried())
        if is_local_best and self._since_better[klass] >= PATIENCE:
            self.settled[klass] = "settled: no neighbour of the best is better, nor anything beyond"

    def has_stalled(self) -> bool:
        """Tell whether no class has found anything better for some turns."""
        return all(self._since_better[k] >= _STALLED for k in TURNS if k not in self.settled)


def explore(study: Study) -> None:
    """Try new configurations until every class is settled, or the confirmation's time has come."""
    if study.is_done(Phase.EXPLORE):
        return
    study.enter(Phase.EXPLORE, f"up to {study.space.upper_size():,} combinations")
    progress = _Progress(study)
    reason = ""
    turn = 0
    while not reason:
        open_classes = [k for k in TURNS if k not in progress.settled]
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
        progress.after(klass)
    if not study.n_proposed():
        remedy = "give a larger --budget and a new --out"
        if len(progress.settled) == len(TURNS):
            remedy = "the space holds nothing else that applies here"
        study.warn(f"nothing beyond the default and the baselines was tried: {reason}; {remedy}")
    study.done(Phase.EXPLORE, reason)


def make_time_for(study: Study, configuration: Configuration) -> bool:
    """See to it that a launch of a configuration leaves enough for the phases that follow.

    What the confirmation needs is estimated from the launches of those who will be in it. Where one
    was launched only once, which may have compiled from nothing, and time seems to be up, it is
    launched again: a warm compiler's cache often frees time for many proposals. Returns whether
    there is time.
    """
    cost_s = study.cost_s(configuration)
    while True:
        if study.budget.left_s() >= least_s(study, cost_s) + cost_s:
            return True
        if not study.has_few_proposals() and study.first_look_s() < study.looks_s():
            return False  # a share of the budget, which a warm cache does not make less
        arms = study.confirmation_arms([*study.finalists().values(), study.best_baseline()])
        default_s = study.ledger.repeat_cost_s(arms[0])
        cold = [
            c
            for c in arms
            if study.ledger.n_launches(c) == 1 and study.ledger.repeat_cost_s(c) > default_s
        ]
        if not cold:
            return False
        dearest = max(cold, key=study.cost_s)
        warm = [arms[0] if c in cold else c for c in arms]  # at best, like the default
        at_best_s = MIN_ROUNDS * study.round_cost_s(warm) + study.cost_s(dearest) + cost_s
        if study.budget.left_s() < at_best_s:
            return False
        study.measure(dearest, Purpose.RACE)
