"""What to try next, behind one door: ask, tell, settle.

A study says what it measured and what launches cost. Who proposes, where that looks and what it
believes is known in this room alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.search.effects import Effects
from tuner.search.proposals import Belief, Proposal
from tuner.search.sampler import SOURCES, PortfolioSampler, Scores
from tuner.search.terminator import SearchState, Terminator
from tuner.search.transfer import Earlier, Transfer
from tuner.search.trials import Trials
from tuner.search.trials import study_in as study_in  # noqa: PLC0414  # this module is the door
from tuner.space.space import Space


class TransferSummary(msgspec.Struct, frozen=True):
    """What came of listening to earlier studies."""

    studies: tuple[str, ...]
    """Those with configurations that exist here."""
    n_configurations: int
    rank_correlation: float | None
    """Between what they let expect and what was measured; None before that can be told."""
    is_misled: bool
    """Whether they misled, and are not listened to any more."""


class Search:
    """Proposes configurations, hears how they did, and says when a class is settled.

    path: Optuna's file. scores: what was tried so far, as worths, None without one. noted: every
    trial that the study's journal holds. earlier: other studies that tell where to look. known:
    what may be asked of a tried configuration, by keyword (PortfolioSampler).
    """

    def __init__(
        self,
        path: Path,
        space: Space,
        scores: Scores,
        seed: int,
        noted: Sequence[TrialNoted] = (),
        earlier: Sequence[Earlier] = (),
        **known: Callable[[Configuration], float],
    ) -> None:
        self._transfer = Transfer(space, earlier)
        self._under_way: dict[Configuration, None] = {}
        self._believed: dict[Configuration, float | None] = {}
        self._sampler = PortfolioSampler(space, self._known, seed, transfer=self._transfer, **known)
        self._trials = Trials(path, self._sampler, scores, noted)
        for note in noted:
            if note.source not in SOURCES:
                self._sampler.unions.give(note.configuration)
        self._scores = scores
        self._effects = Effects(space)
        self._terminator = Terminator(self._sampler, scores)

    @property
    def was_damaged(self) -> bool:
        """Whether Optuna's file had to be made again."""
        return self._trials.was_damaged

    def _known(self) -> Mapping[Configuration, float | None]:
        """Return what was tried, and what is believed of proposals that are under way.

        Believed as if it had been measured: the next proposal then looks elsewhere, and none is
        made twice (the kriging believer of Ginsbourger et al. 2010).
        """
        scores = self._scores()
        return {**self._believed, **scores} if self._believed else scores

    def _believe(self) -> None:
        """Have a belief of every proposal that was not told yet."""
        asked, scores = list(self._under_way), self._scores()
        self._believed = {}  # or they would be believed by what was believed of them before
        if asked and any(score is not None for score in scores.values()):
            beliefs = self.beliefs(asked)
            self._believed = {c: b.mean for c, b in zip(asked, beliefs, strict=True)}
        else:
            self._believed = dict.fromkeys(asked)

    def ask(self, winner_class: WinnerClass) -> Proposal:
        """Propose a new configuration that a class allows; raises Exhausted.

        More may be asked for before the first is told.
        """
        self._believe()
        proposal = self._trials.propose(winner_class)
        self._under_way[proposal.configuration] = None
        return proposal

    def unite(self, winner_class: WinnerClass) -> Proposal | None:
        """Propose a union of what gained so far, of those that a class allows; None without one."""
        self._believe()
        proposal = self._trials.unite(winner_class)
        if proposal is not None:
            self._under_way[proposal.configuration] = None
        return proposal

    def enter(self, configuration: Configuration, source: str) -> Proposal:
        """Enter a configuration that the search did not propose: the default, a baseline."""
        self._sampler.unions.give(configuration)
        return self._trials.enter(configuration, source)

    def tell(self, proposal: Proposal, outcome: Outcome, reason: str, score: float | None) -> None:
        """Tell how a proposal did; score: its worth, None for a failure."""
        self._under_way.pop(proposal.configuration, None)
        self._believed.pop(proposal.configuration, None)
        self._trials.tell(proposal.number, outcome, reason, score)

    def settle(self, winner_class: WinnerClass, proposal: Proposal, state: SearchState) -> str:
        """Hear how the study stands after a proposal of a class; return why it is settled, or "".

        Once for each proposal, after it was told.
        """
        return self._terminator.after(winner_class, proposal.source, state)

    def has_stalled(self, open_classes: Collection[WinnerClass], n_classes: int) -> bool:
        """Tell whether no class that is still open, of those taking turns, gets any better."""
        return self._terminator.has_stalled(open_classes, n_classes)

    def beliefs(self, configurations: Sequence[Configuration]) -> list[Belief]:
        """Return what is believed of some configurations, by everything that was tried.

        Raises ValueError before anything has a score.
        """
        return self._sampler.beliefs(configurations)

    def gains(self, configuration: Configuration) -> dict[str, float]:
        """Return what each setting gains over the default's value (Effects.gains)."""
        return self._effects.gains(configuration, self._scores())

    def effects(
        self, configuration: Configuration, figures: Mapping[Configuration, float]
    ) -> dict[str, float]:
        """Return what each setting adds to a figure (Effects.effects)."""
        return self._effects.effects(configuration, figures)

    def guesses(
        self, classes: Sequence[WinnerClass], is_tried: Callable[[Configuration], bool]
    ) -> Iterator[tuple[WinnerClass, Configuration]]:
        """Yield what did best in earlier studies and was not tried yet: of each class one."""
        return self._transfer.guesses(classes, is_tried)

    def heard(self) -> TransferSummary:
        """Return what came of listening to earlier studies, by the latest beliefs."""
        surrogate = self._sampler.surrogate
        return TransferSummary(
            tuple(self._transfer.studies),
            self._transfer.n_configurations,
            surrogate.hint_correlation,
            surrogate.is_misled,
        )
