"""When a class of winners is settled: nothing that is left of it is worth a launch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
from tuner.search.sampler import UNGUIDED, PortfolioSampler, Scores

PATIENCE = 4
"""Turns of the surrogate in a row at which little was expected, before a class is settled."""
_LITTLE = 0.0005
"""An expected gain of worth that is not worth a launch, however quiet the host."""
_OF_NOISE = 1 / 10
"""The same as a share of what launches scatter by."""
_REST = 1 / 4
"""Share of the seconds that the study took so far. Where measuring all the rest of a class costs no
more, it is measured, though little is expected of it: that nothing was left out is worth more than
a model's word."""
_UNGUIDED_SHARE = 1 / 3
"""Share of a class's proposals that others than the surrogate must have made before the class is
settled: where everything that was tried lies around one optimum, the surrogate is sure that there
is no other."""
_STALLED = 9
"""A search has stalled after this many proposals, those of every class together, since its best was
found, if they are half of all: what it leaves to the later phases then tells more."""


class Standing(msgspec.Struct, frozen=True):
    """How a study stands after a launch, as far as settling asks."""

    leaders: Mapping[WinnerClass, tuple[Configuration, float]]
    """The best of each class that has any, with its score (log)."""
    floor: float
    """By how much (log) a score must exceed another to be better."""
    launch_sd: float
    """By how much launches of one configuration scatter (SD of the worth)."""
    used_s: float
    """Seconds that the study took so far."""
    launch_s: Callable[[], float]
    """Returns the mean seconds of a launch."""


class Settling:
    """Keeps how each class is doing, and has the sampler look where that leaves a doubt."""

    def __init__(self, sampler: PortfolioSampler, scores: Scores) -> None:
        self._sampler = sampler
        self._scores = scores
        self._since_better: Counter[WinnerClass] = Counter()
        self._proposed: Counter[WinnerClass] = Counter()
        self._unguided: Counter[WinnerClass] = Counter()
        self._hopes_are_low: Counter[WinnerClass] = Counter()
        self._leaders: dict[WinnerClass, Configuration] = {}

    def after(self, klass: WinnerClass, source: str, standing: Standing) -> str:
        """Take note of a proposal's result for every class; return why `klass` is settled, or "".

        source: who proposed it.
        It is settled where the surrogate has expected next to nothing of its best proposal for a
        while, half of all proposals brought nothing, no neighbour of the best is untried, what
        others proposed brought nothing either, and the rest of the class costs more than a share of
        what was spent: else it goes on with that.
        """
        sampler = self._sampler
        self._note_leaders(standing)
        self._since_better[klass] += 1
        self._proposed[klass] += 1
        self._unguided[klass] += source in UNGUIDED
        gain = sampler.expected_gain.get(klass, math.inf)
        if gain >= max(_LITTLE, _OF_NOISE * standing.launch_sd):
            self._hopes_are_low[klass] = 0
            sampler.looks_elsewhere.discard(klass)
        elif source == "surrogate":
            self._hopes_are_low[klass] += 1
        sampler.focus = klass
        if self._hopes_are_low[klass] < PATIENCE or not self._has_long_failed(klass):
            return ""
        leader = self._leaders.get(klass)
        if leader is not None and sampler.open_neighbours(leader, self._scores()):
            sampler.around[klass] = leader
        elif self._rest_s(standing) <= _REST * standing.used_s:
            sampler.looks_elsewhere.discard(klass)  # the rest is measured anyway
        elif self._unguided[klass] < _UNGUIDED_SHARE * self._proposed[klass]:
            sampler.looks_elsewhere.add(klass)
        else:
            return f"settled: the most promising configuration is expected to gain {gain:.2%}"
        return ""

    def _note_leaders(self, standing: Standing) -> None:
        for klass, (leader, score) in standing.leaders.items():
            if score > self._level(klass) + standing.floor:
                self._leaders[klass] = leader
                self._since_better[klass] = 0
                self._sampler.around.pop(klass, None)
                self._sampler.looks_elsewhere.discard(klass)

    def _level(self, klass: WinnerClass) -> float:
        """Return what the class's leader is worth by now: a lucky score falls, or it fails."""
        leader = self._leaders.get(klass)
        score = None if leader is None else self._scores().get(leader)
        return -math.inf if score is None else score

    def _rest_s(self, standing: Standing) -> float:
        """Estimate the seconds of a launch of all that the class in focus has left."""
        n_left = self._sampler.n_left(self._scores())
        return n_left if not n_left or math.isinf(n_left) else n_left * standing.launch_s()

    def has_stalled(self, open_classes: Collection[WinnerClass], n_classes: int) -> bool:
        """Tell whether no class that is still open has found anything better for some turns.

        n_classes: how many take turns, the settled ones included.
        """
        enough = _STALLED / n_classes
        return all(
            self._since_better[k] >= enough and self._has_long_failed(k) for k in open_classes
        )

    def _has_long_failed(self, klass: WinnerClass) -> bool:
        """Tell whether half of all proposals brought nothing: a surrogate may be sure and wrong."""
        return self._since_better[klass] >= self._proposed[klass] / 2
