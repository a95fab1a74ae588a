"""When a class of winners is finished: nothing left in it is worth a launch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.search.sampler import UNGUIDED, PortfolioSampler, Scores

PATIENCE = 4
"""Turns of the surrogate in a row at which little was expected, before a class is settled."""
_MIN_EXPECTED_GAIN = 0.0005
"""An expected gain of score that is not worth a launch, on any host."""
_OF_NOISE = 1 / 10
"""The same as a share of the scatter of launches."""
_REST = 1 / 4
"""Share of the seconds used so far. If measuring the rest of a class costs no more, all of it is
measured, although little is expected: knowing that nothing was left out is worth more than a
prediction."""
_UNGUIDED_SHARE = 1 / 3
"""Share of a class's proposals that others than the surrogate must have made before the class is
settled: where everything that was tried lies around one optimum, the surrogate is sure that there
is no other."""
_STALLED = 9
"""A search has stalled after this many proposals of all classes since its best was found, if they
are half of all proposals. Later phases then use the time better."""


class SearchState(msgspec.Struct, frozen=True):
    """How a study stands after a launch, as far as settling asks."""

    leaders: Mapping[WinnerClass, tuple[Configuration, float]]
    """The best of each class that has any, with its score (log)."""
    floor: float
    """By how much (log) a score must exceed another to be better."""
    launch_sd: float
    """The scatter of launches of one configuration (SD of the score)."""
    used_s: float
    """Seconds that the study took so far."""
    launch_s: Callable[[], float]
    """Returns the mean seconds of a launch."""


class Terminator:
    """Tracks each class, and directs the sampler to what is still in doubt."""

    def __init__(self, sampler: PortfolioSampler, scores: Scores) -> None:
        self._sampler = sampler
        self._scores = scores
        self._since_better: Counter[WinnerClass] = Counter()
        self._proposed: Counter[WinnerClass] = Counter()
        self._unguided: Counter[WinnerClass] = Counter()
        self._hopes_are_low: Counter[WinnerClass] = Counter()
        self._leaders: dict[WinnerClass, Configuration] = {}

    def after(self, winner_class: WinnerClass, source: str, state: SearchState) -> str:
        """Note a proposal's result for every class; return why this class is finished, or "".

        source: where the proposal came from.

        A class is finished if all of these hold: the surrogate has expected next to nothing of its
        best proposals for a while; half of all proposals brought nothing; no neighbour of the best
        is untried; proposals of other sources brought nothing either; and the rest of the class
        costs more than a share of the time used. Otherwise the search continues with that rest.
        """
        sampler = self._sampler
        self._note_leaders(state)
        self._since_better[winner_class] += 1
        self._proposed[winner_class] += 1
        self._unguided[winner_class] += source in UNGUIDED
        gain = sampler.expected_gain.get(winner_class, math.inf)
        if gain >= max(_MIN_EXPECTED_GAIN, _OF_NOISE * state.launch_sd):
            self._hopes_are_low[winner_class] = 0
            sampler.looks_elsewhere.discard(winner_class)
        elif source == "surrogate":
            self._hopes_are_low[winner_class] += 1
        sampler.focus = winner_class
        if self._hopes_are_low[winner_class] < PATIENCE or not self._has_long_failed(winner_class):
            return ""
        leader = self._leaders.get(winner_class)
        if leader is not None and sampler.open_neighbours(leader, self._scores()):
            sampler.around[winner_class] = leader
        elif self._rest_s(state) <= _REST * state.used_s:
            sampler.looks_elsewhere.discard(winner_class)  # the rest is measured anyway
        elif self._unguided[winner_class] < _UNGUIDED_SHARE * self._proposed[winner_class]:
            sampler.looks_elsewhere.add(winner_class)
        else:
            return f"settled: the most promising configuration is expected to gain {gain:.2%}"
        return ""

    def _note_leaders(self, state: SearchState) -> None:
        for winner_class, (leader, score) in state.leaders.items():
            if score > self._level(winner_class) + state.floor:
                self._leaders[winner_class] = leader
                self._since_better[winner_class] = 0
                self._sampler.around.pop(winner_class, None)
                self._sampler.looks_elsewhere.discard(winner_class)

    def _level(self, winner_class: WinnerClass) -> float:
        """Return the present score of the class's leader: a lucky score falls, or it fails."""
        leader = self._leaders.get(winner_class)
        score = None if leader is None else self._scores().get(leader)
        return -math.inf if score is None else score

    def _rest_s(self, state: SearchState) -> float:
        """Estimate the seconds of a launch of all that the class in focus has left."""
        n_left = self._sampler.n_left(self._scores())
        return n_left if not n_left or math.isinf(n_left) else n_left * state.launch_s()

    def has_stalled(self, open_classes: Collection[WinnerClass], n_classes: int) -> bool:
        """Tell whether no class that is still open has found anything better for some turns.

        n_classes: how many take turns, the settled ones included.
        """
        enough = _STALLED / n_classes
        return all(
            self._since_better[k] >= enough and self._has_long_failed(k) for k in open_classes
        )

    def _has_long_failed(self, winner_class: WinnerClass) -> bool:
        """Tell whether half of all proposals brought nothing: a surrogate may be sure and wrong."""
        return self._since_better[winner_class] >= self._proposed[winner_class] / 2
