"""The search: ask for a proposal, tell its score, terminate.

The study reports measurements and costs. Only this package knows how proposals are made.
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
    """Rank correlation of the hints with what was measured; None before it can be computed."""
    is_misled: bool
    """Whether they misled, and are not listened to any more."""


class Search:
    """Proposes configurations, learns their scores, and says when a class is finished.

    path: Optuna's file. scores: the scores so far, None without one. noted: every trial in the
    study's journal. earlier: earlier studies that guide the search. known: properties of tried
    configurations, by keyword (PortfolioSampler).
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
        """Return what was tried, and the estimates for proposals that are being measured.

        An estimate counts as if it had been measured. The next proposal then looks elsewhere, and
        none is made twice (the kriging believer of Ginsbourger et al. 2010).
        """
        scores = self._scores()
        return {**self._believed, **scores} if self._believed else scores

    def _believe(self) -> None:
        """Estimate the score of every proposal that has no result yet."""
        under_way, scores = list(self._under_way), self._scores()
        self._believed = {}  # or they would be believed by what was believed of them before
        if under_way and any(score is not None for score in scores.values()):
            beliefs = self.beliefs(under_way)
            self._believed = {c: b.mean for c, b in zip(under_way, beliefs, strict=True)}
        else:
            self._believed = dict.fromkeys(under_way)

    def ask(self, winner_class: WinnerClass) -> Proposal:
        """Propose a new configuration that a class allows; raises Exhausted.

        Several may be open at a time.
        """
        self._believe()
        proposal = self._trials.propose(winner_class)
        self._under_way[proposal.configuration] = None
        return proposal

    def unite(self, winner_class: WinnerClass) -> Proposal | None:
        """Propose a combination of what gained, allowed by a class; None if there is none."""
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
        """Report the result of a proposal. score: None for a failure."""
        self._under_way.pop(proposal.configuration, None)
        self._believed.pop(proposal.configuration, None)
        self._trials.tell(proposal.number, outcome, reason, score)

    def settle(self, winner_class: WinnerClass, proposal: Proposal, state: SearchState) -> str:
        """Take the state of the study after a proposal; return why the class is finished, or "".

        Call it once for each proposal, after `tell`.
        """
        return self._terminator.after(winner_class, proposal.source, state)

    def has_stalled(self, open_classes: Collection[WinnerClass], n_classes: int) -> bool:
        """Tell whether no class that is still open, of those taking turns, gets any better."""
        return self._terminator.has_stalled(open_classes, n_classes)

    def beliefs(self, configurations: Sequence[Configuration]) -> list[Belief]:
        """Estimate the scores of configurations from everything that was tried.

        Raises ValueError before anything has a score.
        """
        return self._sampler.beliefs(configurations)

    def gains(self, configuration: Configuration) -> dict[str, float]:
        """Return the gain of each setting over the default's value (Effects.gains)."""
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
