"""Beyond the recommendations: new configurations, for each of the three questions in turn."""

from __future__ import annotations

import math

from tuner.record.configuration import Configuration
from tuner.record.journal import Phase
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import UNION, Exhausted, Proposal
from tuner.space.catalogue import allowed_in
from tuner.space.listing import upper_size
from tuner.study.steps import Aim, Launch, Launches, NoTime, Steps, ask
from tuner.study.study import Study
from tuner.study.transferred import note_transfer

PROVED = 3
"""Launches of a leader before the search goes on around it."""
_FIRST_UNIONS = 2
"""Of each class: all that gained at once, and the best alternative of its strongest setting."""
_CLEARLY = 3.0
"""Standard errors by which a lead is clear at once."""


def explore(study: Study) -> Steps[None]:
    """Try new configurations until every class is settled, or there is no time for more."""
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
        step = Launches(
            turns.draw, Purpose.SEARCH, Aim.SEARCH, may_prune=True, has_stalled=has_stalled
        )
        records = yield from ask(step)
        drawn = turns.take()
        if isinstance(records, NoTime):
            for _, proposal in drawn:
                study.search.tell(proposal, Outcome.PRUNED, "the budget is used up", None)
            reason = "the rest of the budget is for the later phases"
            if not drawn:
                reason = "nothing better was found for some time: the rest is for the later phases"
            break
        for (_, proposal), record in zip(drawn, records, strict=True):
            study.tell(proposal, record)
        for winner_class, proposal in drawn:
            yield from _prove_leader(study, winner_class)
            if why := study.search.settle(winner_class, proposal, study.search_state()):
                turns.settled[winner_class] = why
    if not study.n_proposed():
        if len(turns.settled) == len(study.turns):
            study.notes.warn(
                f"nothing beyond the default and the baselines was tried: {reason}; the space "
                "holds nothing else that applies here",
                is_passing=True,
            )
        else:
            study.notes.leave_undone("to try anything beyond the default and the baselines")
    note_transfer(study)
    study.notes.done(Phase.EXPLORE, reason)


def try_combinations(study: Study) -> Steps[None]:
    """Try combinations of settings that gained, a few per class, before the other baselines.

    A combination of two gains is worth more than another recommendation. Once in a study; the
    search continues with the rest.
    """
    if any(trial.source == UNION for trial in study.evaluation.trials()):
        return
    for winner_class in study.turns:
        for _ in range(_FIRST_UNIONS):
            if (proposal := study.search.unite(winner_class)) is None:
                break
            step = Launch(proposal.configuration, Purpose.SEARCH, Aim.SEARCH, may_prune=True)
            record = yield from ask(step)
            if isinstance(record, NoTime):
                study.search.tell(proposal, Outcome.PRUNED, "the budget is used up", None)
                return
            study.tell(proposal, record)


class _Turns:
    """The class whose turn it is, and the proposals made."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._turn = 0
        self._drawn: list[tuple[WinnerClass, Proposal]] = []
        self.settled: dict[WinnerClass, str] = {}
        """The classes that are finished, and why."""

    def open_classes(self) -> list[WinnerClass]:
        """Return the classes that are not settled."""
        return [k for k in self._study.turns if k not in self.settled]

    def draw(self) -> Configuration | None:
        """Return the next proposal's configuration; None if there is none.

        If the class whose turn it is has none left, the next class is used only for a launch in
        parallel to another proposal. Otherwise the caller first checks whether the search has
        stalled.
        """
        while self.open_classes():
            if (found := self._ask()) is not None:
                self._drawn.append(found)
                return found[1].configuration
            if not self._drawn:
                break
        return None

    def take(self) -> list[tuple[WinnerClass, Proposal]]:
        """Return the proposals drawn since the last call, with their classes."""
        drawn, self._drawn = self._drawn, []
        return drawn

    def _ask(self) -> tuple[WinnerClass, Proposal] | None:
        """Ask the class whose turn it is, among the open ones; None if it is exhausted."""
        open_classes = self.open_classes()
        winner_class = open_classes[self._turn % len(open_classes)]
        self._turn += 1
        try:
            return winner_class, self._study.search.ask(winner_class)
        except Exhausted as error:
            self.settled[winner_class] = f"exhausted: {error}"
            return None


def _prove_leader(study: Study, winner_class: WinnerClass) -> Steps[None]:
    """Launch a class's new leader again if its lead may be luck.

    Other configurations are compared with the leader, and the search continues around it. The
    luckiest of many launches would mislead it. Repeated launches also show how much launches
    differ.
    """
    beliefs = study.candidates.beliefs()
    leader = study.candidates.leader(winner_class)
    if leader not in beliefs or study.evaluation.n_launches(leader) >= PROVED:
        return
    others = [b.mean for c, b in beliefs.items() if c != leader and allowed_in(winner_class, c)]
    lead = beliefs[leader].mean - max(others, default=-math.inf)
    if lead < _CLEARLY * study.evaluation.score_sd(leader):
        yield from ask(Launch(leader, Purpose.RACE, Aim.SEARCH))
