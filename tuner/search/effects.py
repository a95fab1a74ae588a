"""The effect of each setting, all of them estimated together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np

from tuner.record.configuration import Configuration, Value
from tuner.space.space import Space

_SHRINKAGE = 0.1
"""Ridge penalty in units of trials: an effect that one trial shows is believed to nine tenths."""
_DIGITS = 9
"""Further digits of an effect (log) differ between processors. They would order equal effects, and
the same study would propose other configurations on another host."""


class Effects:
    """An additive model over a space's knobs; a guess, and no proof of anything."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._known_pairs: dict[Configuration, tuple[tuple[str, Value], ...]] = {}

    def gains(
        self, configuration: Configuration, tried: Mapping[Configuration, float | None]
    ) -> dict[str, float]:
        """Return the gain of each setting over the default's value, from all trials (log).

        Settings for which the default has no value (they exist only with another setting) are left
        out, and all of them before there is a score. A failure counts as half as fast as the
        slowest, so that its values seem useless unless other trials clear them.
        """
        if all(score is None for score in tried.values()):
            return {}
        return self.effects(configuration, _with_failures(tried))

    def effects(
        self, configuration: Configuration, figures: Mapping[Configuration, float]
    ) -> dict[str, float]:
        """Return what each setting adds to a figure, compared with the default's value.

        figures: a measured quantity of several configurations, at least one (logarithms).
        """
        effects = self._of_values(figures)
        default = self._space.assignment(Configuration())
        return {
            knob: round(
                effects.get((knob, value), 0.0) - effects.get((knob, default[knob]), 0.0), _DIGITS
            )
            for knob, value in configuration.settings
            if knob in default
        }

    def _of_values(self, figures: Mapping[Configuration, float]) -> dict[tuple[str, Value], float]:
        """Return each knob value's effect on a figure.

        Shrunk a little (ridge): a value's mean over the configurations that had it would blame it
        for the company it was tried in.
        """
        rows = [self._pairs(c) for c in figures]
        columns = {pair: k for k, pair in enumerate(dict.fromkeys(itertools.chain(*rows)))}
        x = np.zeros((len(rows), len(columns)))
        for i, row in enumerate(rows):
            x[i, [columns[pair] for pair in row]] = 1.0
        y = np.array(list(figures.values()))
        penalty = _SHRINKAGE * np.eye(len(columns))
        effects = np.linalg.solve(x.T @ x + penalty, x.T @ (y - y.mean()))
        return dict(zip(columns, effects.tolist(), strict=True))

    def _pairs(self, configuration: Configuration) -> tuple[tuple[str, Value], ...]:
        """Return every knob's value. Cached, because each proposal needs them."""
        if configuration not in self._known_pairs:
            pairs = tuple(self._space.assignment(configuration).items())
            self._known_pairs[configuration] = pairs
        return self._known_pairs[configuration]


def _with_failures(tried: Mapping[Configuration, float | None]) -> dict[Configuration, float]:
    """Return a score for each: what failed counts as half as fast as the slowest."""
    failed = min(s for s in tried.values() if s is not None) - math.log(2)
    return {c: failed if s is None else s for c, s in tried.items()}
