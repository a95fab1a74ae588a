"""Beyond the recommendations: new configurations, for each of the three questions in turn."""

from __future__ import annotations

import math
import statistics

from tuner.record.configuration import Configuration
from tuner.record.journal import Phase, WinnerClass
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.search.proposals import Exhausted, Proposal
from tuner.search.settling import Standing
from tuner.space.catalogue import allowed_in
from tuner.space.listing import upper_size
from tuner.study.schedule import Schedule
from tuner.study.study import Study
from tuner.study.transferred import note_transfer

PROVED = 3
"""Launches of a leader before the search goes on around it."""
_CLEARLY = 3.0
"""Standard errors by which a lead is clear at once."""


def explore(study: Study) -> None:
    """Try new configurations until every class is settled, or the confirmation's time has come."""
    if study.notes.is_done(Phase.EXPLORE):
        return
    study.notes.enter(Phase.EXPLORE, f"up to {upper_size(study.space):,} combinations")
    turns = _Turns(study)
    reason = ""
    while not reason:
        if not turns.open_classes():
            reason = "; ".join(f"{k}: {why}" for k, why in turns.settled.items())
            break
        has_stalled = study.search.has_stalled(turns.open_classes(), len(study.turns))
        if has_stalled and Schedule(study).is_better_left():
            reason = "nothing better was found for some time: the rest is for the later phases"
            break
        if (first := turns.ask()) is None:
            continue
        klass, proposal = first
        if not make_time_for(study, proposal.configuration):
            study.search.tell(proposal, Outcome.PRUNED, "the budget is used up", None)
            reason = "the rest of the budget is for the later phases"
            break
        asked = [first, *turns.ask_beside(proposal)]
        configurations = [proposal.configuration for _, proposal in asked]
        records = study.measure_several(configurations, Purpose.SEARCH, may_prune=True)
        for (_, proposal), record in zip(asked, records, strict=True):
            study.tell(proposal, record)
        for klass, proposal in asked:
            prove_leader(study, klass)
            if why := study.search.settle(klass, proposal, _standing(study)):
                turns.settled[klass] = why
    if not study.n_proposed():
        if len(turns.settled) == len(study.turns):
            study.notes.warn(
                f"nothing beyond the default and the baselines was tried: {reason}; the space "
                "holds nothing else that applies here"
            )
        else:
            study.notes.leave_undone("to try anything beyond the default and the baselines")
    note_transfer(study)
    study.notes.done(Phase.EXPLORE, reason)


class _Turns:
    """Whose turn it is to be asked about."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._turn = 0
        self.settled: dict[WinnerClass, str] = {}
        """The classes that are not asked about any more, and why."""

    def open_classes(self) -> list[WinnerClass]:
        """Return the classes that are not settled."""
        return [k for k in self._study.turns if k not in self.settled]

    def ask(self) -> tuple[WinnerClass, Proposal] | None:
        """Ask about the class whose turn it is, of those that are open; None if it is exhausted."""
        open_classes = self.open_classes()
        klass = open_classes[self._turn % len(open_classes)]
        self._turn += 1
        try:
            return klass, self._study.search.ask(klass)
        except Exhausted as error:
            self.settled[klass] = f"exhausted: {error}"
            return None

    def ask_beside(self, first: Proposal) -> list[tuple[WinnerClass, Proposal]]:
        """Ask for what may be prepared beside a proposal, while there is time for as dear ones."""
        found: list[tuple[WinnerClass, Proposal]] = []
        cost_s = self._study.costs.launch_s(first.configuration)
        while len(found) + 1 < self._study.most_together and self.open_classes():
            kept_s = (len(found) + 1) * cost_s
            if not Schedule(self._study).has_time_to_search(first.configuration, kept_s):
                break
            if (another := self.ask()) is not None:
                found.append(another)
        return found


def _standing(study: Study) -> Standing:
    ledger = study.ledger
    leaders = {klass: ledger.leaders.best_in(klass) for klass in study.turns}
    return Standing(
        leaders={klass: best for klass, best in leaders.items() if best is not None},
        floor=ledger.floor(),
        launch_sd=ledger.estimates.launch_sd,
        used_s=study.budget.used_s(),
        launch_s=lambda: statistics.fmean(
            study.costs.launch_s(t.configuration) for t in ledger.trials()
        ),
    )


def prove_leader(study: Study, klass: WinnerClass) -> None:
    """Launch a class's new leader again where its lead may be luck, and there is time.

    The others are compared with it, and around it the search goes on: of many launches the luckiest
    would lead it astray. What launches of one configuration differ by is learnt from this, too.
    """
    beliefs = study.contenders.beliefs()
    leader = study.contenders.leader(klass)
    if leader not in beliefs or study.ledger.n_launches(leader) >= PROVED:
        return
    others = [b.mean for c, b in beliefs.items() if c != leader and allowed_in(klass, c)]
    lead = beliefs[leader].mean - max(others, default=-math.inf)
    is_close = lead < _CLEARLY * study.ledger.score_sd(leader)
    if is_close and Schedule(study).has_time_to_search(leader):
        study.measure(leader, Purpose.RACE)


def make_time_for(study: Study, configuration: Configuration) -> bool:
    """See to it that a launch of a configuration leaves enough for the phases that follow.

    Where time seems to be up, launch again what may be cheaper than its only launch was. Returns
    whether there is time.
    """
    schedule = Schedule(study)
    while not schedule.has_time_to_search(configuration):
        again = schedule.worth_warming(configuration)
        if again is None:
            return False
        study.measure(again, Purpose.RACE)
    return True
