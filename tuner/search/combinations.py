"""Combinations to try first: recommendations differ in what they set, and gains often add up.

A study starts with configurations that no search found: recommendations, and the best of earlier
studies. One sets a compiler, another an allocator, a third the layout. Their combinations are
proposed before anything else, around the present leader: first with all that gained at once, then
with one part at a time. When nothing is left to combine, the leader's own settings are tried at
values that were not tried yet: `freezing` for `default`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from tuner.record.configuration import Configuration, Value
from tuner.record.winner_class import WinnerClass
from tuner.search.effects import Effects
from tuner.space.catalogue import allowed_in, is_default, narrowest_class
from tuner.space.knobs_of.launch import BATCH
from tuner.space.space import Space

IsNew = Callable[[Configuration], bool]
_LEAST_GAIN = 0.01
"""A part that gains less (log) is not worth a launch of its combination, on any host."""


class Unions:
    """Combinations of the configurations that a study was given."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._effects = Effects(space)
        self._given: dict[Configuration, None] = {}

    def give(self, configuration: Configuration) -> None:
        """Hear of a configuration that the search did not propose."""
        self._given[configuration] = None

    def propose(
        self,
        leader: Configuration,
        winner_class: WinnerClass,
        tried: Mapping[Configuration, float | None],
        sd: Callable[[Configuration], float],
        is_new: IsNew,
    ) -> Configuration | None:
        """Return the next combination around the leader of a class; None if nothing is left.

        Only configurations that no narrower class allows: those are proposed in their own turns.
        tried: scores, None for what failed. sd: the standard error of a score (log).
        """
        scores = {c: s for c, s in tried.items() if s is not None and allowed_in(winner_class, c)}
        parts = self._gained(scores, sd)
        if len(parts) < 2:  # nothing to unite
            return None

        def is_wanted(c: Configuration) -> bool:
            return narrowest_class(c) is winner_class and is_new(c)

        gains = self._effects.gains(leader, tried)
        return self._union(leader, parts, is_wanted) or self._alternative(
            leader, gains, tried, is_wanted
        )

    def _gained(
        self, scores: Mapping[Configuration, float], sd: Callable[[Configuration], float]
    ) -> list[Configuration]:
        """Return the given configurations that gained more than noise over the default."""
        default = max((s for c, s in scores.items() if is_default(c)), default=math.inf)
        gains = {c: scores[c] - default for c in self._given if c in scores}
        better = [c for c, gain in gains.items() if gain > max(_LEAST_GAIN, sd(c))]
        return sorted(better, key=gains.__getitem__, reverse=True)

    def _union(
        self, leader: Configuration, parts: list[Configuration], is_new: IsNew
    ) -> Configuration | None:
        """Return the first new union of a leader with parts: with all of them, else with one."""
        for union in self._unions(leader, parts):
            if is_new(union):
                return union
        return None

    def _unions(self, leader: Configuration, parts: list[Configuration]) -> Iterator[Configuration]:
        for some in (parts, *([part] for part in parts)):
            settings: dict[str, Value] = {}
            for each in (leader, *some):  # the better one keeps what both set
                settings = {**each.as_dict(), **settings}
            yield self._space.canonical(settings)

    def _alternative(
        self,
        leader: Configuration,
        gains: Mapping[str, float],
        tried: Mapping[Configuration, float | None],
        is_new: IsNew,
    ) -> Configuration | None:
        """Return the leader with one of its settings at a value that was not tried yet.

        gains: the estimated gain of each of its settings; those that gain most come first. A knob's
        default was tried with every configuration that does not set it.
        """
        known = {pair for c in tried for pair in self._space.assignment(c).items()}
        searched = {knob.id: knob for knob in self._space.searched}
        for knob in sorted(gains, key=gains.__getitem__, reverse=True):
            if knob not in searched or gains[knob] <= 0 or knob == BATCH:
                continue
            for value in searched[knob].choices:
                other = self._space.canonical({**leader.as_dict(), knob: value})
                if (knob, value) not in known and is_new(other):
                    return other
        return None
