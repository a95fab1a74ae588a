"""The configurations that a search considers: the whole space if it is small, otherwise a sample.

Of a large space, configurations are drawn at random. The most promising are kept, and new ones are
added each time. The sampler adds those a few steps from the best.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np

from tuner.record.configuration import Configuration, Value
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.space.listing import choices_within, upper_size
from tuner.space.space import Space

MOST_LISTED = 20_000
"""Configurations of a space that is looked at as a whole."""
_SHORTLIST = 1500
"""Configurations of a listed space that are looked at again until the surrogate learns anew."""
_KEPT, _DRAWN = 400, 40
"""Configurations of an unlisted space: how many are kept, and how many join at every look."""

Gains = Callable[[Sequence[Configuration]], np.ndarray]


class Pool:
    """Candidates of each winner class."""

    def __init__(self, space: Space, draw: random.Random) -> None:
        self._space = space
        self._draw = draw
        self._all: list[Configuration] | None = None
        self._is_small: bool | None = None
        self._shortlists: dict[WinnerClass, list[Configuration]] = {}
        self._learnt_at: dict[WinnerClass, int] = {}

    def whole(self) -> list[Configuration] | None:
        """Return every configuration of a space that is small enough; None of a larger one."""
        if self._is_small is None:
            found = None
            if upper_size(self._space) <= 10 * MOST_LISTED:
                found = list(itertools.islice(self._space.configurations(), MOST_LISTED + 1))
            self._is_small = found is not None and len(found) <= MOST_LISTED
            if found is not None and self._is_small:
                self._all = [c for c in found if self._space.contains(c)]
        return self._all

    def left(
        self, winner_class: WinnerClass, is_new: Callable[[Configuration], bool]
    ) -> list[Configuration] | None:
        """Return every new configuration that a class allows; None of a larger space."""
        everything = self.whole()
        if everything is None:
            return None
        return [c for c in everything if allowed_in(winner_class, c) and is_new(c)]

    def candidates(
        self,
        winner_class: WinnerClass,
        is_new: Callable[[Configuration], bool],
        gains: Gains,
        learnt: int,
    ) -> list[Configuration]:
        """Return what to choose from; learnt: grows when the surrogate learns anew."""
        known = self._shortlists.get(winner_class, [])
        if self.whole() is None:
            drawn = [
                c for c in (self.at_random(winner_class) for _ in range(_DRAWN)) if c is not None
            ]
            found = [c for c in dict.fromkeys([*known, *drawn]) if is_new(c)]
            self._shortlists[winner_class] = self._most_promising(found, gains, _KEPT)
            return self._shortlists[winner_class]
        if learnt != self._learnt_at.get(winner_class):
            known = self._most_promising(self.left(winner_class, is_new) or [], gains, _SHORTLIST)
            self._learnt_at[winner_class] = learnt
        self._shortlists[winner_class] = [c for c in known if is_new(c)]
        if not self._shortlists[winner_class]:  # looked through: the others once more
            found = self.left(winner_class, is_new) or []
            self._shortlists[winner_class] = self._most_promising(found, gains, _SHORTLIST)
        return self._shortlists[winner_class]

    @staticmethod
    def _most_promising(found: list[Configuration], gains: Gains, most: int) -> list[Configuration]:
        if len(found) <= most:
            return found
        order = np.argsort(-gains(found), kind="stable")[:most]
        return [found[i] for i in sorted(order)]

    def at_random(self, winner_class: WinnerClass) -> Configuration | None:
        """Draw a configuration that a class allows; None if the drawn one does not exist."""
        everything = self.whole()
        if everything is not None:
            if not everything:
                return None
            drawn = self._draw.choice(everything)
            return drawn if allowed_in(winner_class, drawn) else None
        allowed = choices_within(self._space, winner_class)
        values: dict[str, Value] = {k: self._draw.choice(c) for k, c in allowed.items()}
        fixed = {k.id: k.choices[0] for k in self._space.knobs if len(k.choices) == 1}
        drawn = self._space.canonical({**fixed, **values})
        return drawn if self._space.contains(drawn) else None
