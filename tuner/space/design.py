"""The designed part of a study: a fixed fraction of all combinations of the main settings.

Of the two levels of up to 15 factors, 16 combinations: the factors' columns are products of four
base columns (a two-level fraction, Box, Hunter and Hunter, "Statistics for Experimenters"). Chosen
so that main effects, and the pairs that are known to interact, stand in columns of their own
(tests/space/test_design.py). The cell in which nothing is set is the default. The profile names the
factors, so that the cells are the same for every model, and nothing that was seen chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tuner.errors import UsageError
from tuner.host.identity import Host
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import Cell, DesignFixed
from tuner.record.workload import ModelFacts, Workload
from tuner.space.baselines import Baseline, evaluated, resolve_one
from tuner.space.expressions import Expression
from tuner.space.profile import FactorEntry, Profile
from tuner.space.resolve import workload_facts
from tuner.space.space import Space

_MAIN, _PAIR = 1e-3, 10.0
"""Prior SD of an effect: large for a setting, small for a pair."""
BASE = "abcd"
N_CELLS = 2 ** len(BASE)


def is_set(column: str, cell: int) -> bool:
    """Tell whether a factor of a column is set in a cell (0 to 15)."""
    return sum(cell >> BASE.index(letter) & 1 for letter in column) % 2 == 1


class Factors:
    """The factors of a profile that have an effect here, and their settings together."""

    def __init__(
        self, profile: Profile, host: Host, workload: Workload, model: ModelFacts, space: Space
    ) -> None:
        """Raises ExpressionError and UsageError as resolve_baselines does."""
        self._host, self._workload, self._space = host, workload, space
        self.framework = workload.framework
        self._facts = {**host.facts(), **workload_facts(workload, model)}
        self._names = [entry.name for entry in profile.factor]
        self._entries: dict[str, FactorEntry] = {}
        self.left_out: dict[str, str] = {}
        """Those without an effect, with the reason."""
        for entry in profile.factor:
            if workload.framework not in entry.frameworks:
                continue
            self._entries[entry.name] = entry
            if entry.when and not Expression(entry.when).holds(self._facts):
                self.left_out[entry.name] = entry.why or f"needs {entry.when}"
                continue
            alone = self.together([entry.name])
            if alone.configuration == Configuration():
                self.left_out[entry.name] = alone.reason or "; ".join(alone.dead_settings)

    @property
    def has_any(self) -> bool:
        """Whether the profile names any for the framework."""
        return bool(self._entries)

    @property
    def here(self) -> list[FactorEntry]:
        """Those that have an effect."""
        return [entry for name, entry in self._entries.items() if name not in self.left_out]

    def together(self, names: Collection[str]) -> Baseline:
        """Return what some of them come to when they are set together; of a knob, the last wins."""
        chosen = [entry for name, entry in self._entries.items() if name in names]
        here = {f"factor.{name}": name in names for name in self._names}
        settings: dict[str, Value] = {}
        for entry in chosen:
            where = f"factor {entry.name}"
            settings |= evaluated(where, entry.settings, {**self._facts, **here})
        text = " and ".join(names)
        return resolve_one(
            text, "", settings, self._host, self._workload, self._space, (), is_literal=False
        )


def resolve_design(profile: Profile, factors: Factors, space: Space) -> DesignFixed:
    """Return the cells that the factors make.

    A factor that has no effect here is set in no cell. Raises UsageError for a profile without
    factors for the framework, and for settings that the user fixed.
    """
    if fixed := space.fixed_by_user():
        raise UsageError(
            f"--designed compares with the default, in which nothing is set, and --fix sets "
            f"{', '.join(fixed)} in every cell: leave out either"
        )
    if not factors.has_any:
        raise UsageError(
            f"--designed: the profile {profile.name} names no factors for {factors.framework}; "
            "they stand in [[factor]] (search_spaces/README.md)"
        )
    cells: list[Cell] = []
    for number in range(1, N_CELLS):
        names = [entry.name for entry in factors.here if is_set(entry.column, number)]
        made = factors.together(names)
        idle = {
            name
            for name in names
            if made.is_applicable
            and factors.together([n for n in names if n != name]).configuration
            == made.configuration
        }
        twins = [0] if made.configuration == Configuration() else []
        twins += [c.number for c in cells if not c.fault and c.configuration == made.configuration]
        cells.append(
            Cell(
                number,
                tuple(name for name in names if name not in idle),
                made.configuration,
                tuple(sorted(idle)),
                same_as=twins[0] if twins and made.is_applicable else None,
                fault=made.reason,
            )
        )
    pairs = [
        (entry.name, other)
        for entry in factors.here
        for other in entry.interacts
        if other not in factors.left_out
    ]
    return DesignFixed(tuple(cells), factors.left_out, tuple(pairs))


def most_telling_first(
    cells: Sequence[Cell], pairs: Sequence[tuple[str, str]], done: Sequence[Cell] = ()
) -> list[Cell]:
    """Order cells so that a prefix of them is as informative as possible.

    Each is the one that adds most information on all effects to those before it (greedily
    D-optimal, with a prior as in DuMouchel and Jones 1994). done: those that were measured.
    """
    import numpy as np  # no --help waits for it

    names = sorted({name for cell in (*cells, *done) for name in cell.factors})
    known = [pair for pair in pairs if set(pair) <= set(names)]

    def row(cell: Cell) -> np.ndarray:
        own = set(cell.factors)
        return np.array([*(n in own for n in names), *(set(p) <= own for p in known)], dtype=float)

    information = np.diag([_MAIN] * len(names) + [_PAIR] * len(known))
    for cell in done:
        information += np.outer(row(cell), row(cell))
    left, found = list(cells), list[Cell]()
    while left:
        inverse = np.linalg.inv(information)
        best = max(left, key=lambda cell: (round(row(cell) @ inverse @ row(cell), 9), -cell.number))
        information += np.outer(row(best), row(best))
        found.append(best)
        left.remove(best)
    return found
