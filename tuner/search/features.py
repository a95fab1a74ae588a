"""A configuration as numbers: axes, on which values are near or far, and marks.

An axis is a setting that counts something in more than two values: its logarithm, divided by its
range, so that neighbouring counts are near. Everything else is a mark: equal or not. If the host is
known, the settings that place instances are replaced by the result (instances, cores and CPUs of
each, nodes, pinned or not), so that several ways to write the same placement are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tuner.record.configuration import Configuration, Value
from tuner.space.placement import PLACING, Placement
from tuner.space.space import Space


class Encoded(NamedTuple):
    """Configurations as numbers: axes (n, n_axes) as floats, marks (n, n_marks) as codes.

    A code stands for one value of one setting.
    """

    axes: np.ndarray
    marks: np.ndarray

    def of(self, rows: np.ndarray) -> Encoded:
        """Return some of them."""
        return Encoded(self.axes[rows], self.marks[rows])

    def columns(self) -> Iterator[np.ndarray]:
        """Yield the values of every feature, axes first."""
        yield from self.axes.T
        yield from self.marks.T


_PLACED = ("instances", "cores", "cpus", "nodes", "total cores")


class Features:
    """Encodes configurations of a space; each is encoded once."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._is_placed = space.placed(Configuration()) is not None
        searched = [k for k in space.searched if not (self._is_placed and k.id in PLACING)]
        self._axes = [k for k in searched if _counts(k.choices)]
        self._marks = [k for k in searched if not _counts(k.choices)]
        self._ranges = [_range(k.choices) for k in self._axes]
        placed = len(_PLACED) if self._is_placed else 0
        self.n_axes = placed + len(self._axes)
        self.n_marks = (1 if self._is_placed else 0) + len(self._marks)
        self.is_late = np.array(
            [False] * placed
            + [k.is_late for k in self._axes]
            + ([False] if self._is_placed else [])
            + [k.is_late for k in self._marks],
            dtype=bool,
        )
        """Per feature, axes first: whether little is expected of it."""
        self.is_placement = np.array(
            [True] * placed
            + [False] * len(self._axes)
            + ([True] if self._is_placed else [])
            + [False] * len(self._marks),
            dtype=bool,
        )
        """Per feature, whether it describes a placement."""
        self._codes: dict[tuple[int, Value], int] = {}
        self._known: dict[Configuration, tuple[list[float], list[int]]] = {}

    def of(self, configurations: Sequence[Configuration]) -> Encoded:
        """Encode configurations."""
        for configuration in configurations:
            if configuration not in self._known:
                self._known[configuration] = self._encode(configuration)
        both = [self._known[configuration] for configuration in configurations]
        n = len(both)
        axes = np.array([a for a, _ in both], dtype=float).reshape(n, self.n_axes)
        marks = np.array([m for _, m in both], dtype=np.int32).reshape(n, self.n_marks)
        return Encoded(axes, marks)

    def n_late_apart(
        self, configurations: Sequence[Configuration], here: Configuration
    ) -> np.ndarray:
        """Return in how many late settings each differs from a configuration."""
        if not self.is_late.any():
            return np.zeros(len(configurations))
        axes, marks = self.of(configurations)
        axes_here, marks_here = self.of([here])
        apart = np.hstack([axes != axes_here, marks != marks_here])
        found: np.ndarray = apart[:, self.is_late].sum(axis=1)
        return found

    def _encode(self, configuration: Configuration) -> tuple[list[float], list[int]]:
        values = self._space.in_force(configuration)
        axes: list[float] = []
        marks: list[int] = []
        if self._is_placed:
            axes, is_pinned = self._place(configuration)
            marks = [self._codes.setdefault((-1, is_pinned), len(self._codes))]
        for knob, range_ in zip(self._axes, self._ranges, strict=True):
            axes.append(_log(values[knob.id]) / range_)
        for i, knob in enumerate(self._marks):
            value = values[knob.id]
            marks.append(self._codes.setdefault((i, _typed(value)), len(self._codes)))
        return axes, marks

    def _place(self, configuration: Configuration) -> tuple[list[float], bool]:
        placed = self._space.placed(configuration)
        if placed is None or not placed.instances:  # it names a node that is not there
            placed = self._space.placed(Configuration())
        assert isinstance(placed, Placement)
        first, n = placed.instances[0], len(placed.instances)
        counts = (n, first.n_cores, len(first.cpus), len(first.nodes), n * first.n_cores)
        return [math.log2(count) / _DOUBLINGS for count in counts], placed.is_pinned


_DOUBLINGS = 3.0
"""Doublings of a placement's count that are as far apart as the ends of another axis."""


def _counts(choices: tuple[Value, ...]) -> bool:
    """Tell whether choices count something in more than two values."""
    numbers = [c for c in choices if isinstance(c, int | float) and not isinstance(c, bool)]
    return len(numbers) > 2 and len(numbers) == len(choices) and min(numbers) >= 0


def _range(choices: tuple[Value, ...]) -> float:
    logs = [_log(c) for c in choices]
    return max(logs) - min(logs)


def _log(value: Value) -> float:
    assert not isinstance(value, str)
    return math.log2(value) if value >= 1 else float(value) - 1.0


def _typed(value: Value) -> Value:
    """Tell True from 1, which are equal as keys."""
    return f"bool {value}" if isinstance(value, bool) else value
