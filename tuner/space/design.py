"""The designed part of a study: a fixed fraction of all combinations of the main settings.

Of the two levels of up to 15 factors, 16 combinations: the factors' columns are products of four
base columns (a two-level fraction, Box, Hunter and Hunter, "Statistics for Experimenters"). Chosen
so that main effects, and the pairs that are known to interact, stand in columns of their own
(tests/space/test_design.py). The cell in which nothing is set is the default. The profile names the
factors, so that the cells are the same for every model, and nothing that was seen chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

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

BASE = "abcd"
N_CELLS = 2 ** len(BASE)


def is_set(column: str, cell: int) -> bool:
    """Tell whether a factor of a column is set in a cell (0 to 15)."""
    return sum(cell >> BASE.index(letter) & 1 for letter in column) % 2 == 1


def resolve_design(
    profile: Profile, host: Host, workload: Workload, model: ModelFacts, space: Space
) -> DesignFixed:
    """Resolve the profile's factors for the workload's framework, and the cells that they make.

    A factor that has no effect here is set in no cell. Raises UsageError for a profile without
    factors and for settings that the user fixed, else ExpressionError and UsageError as
    resolve_baselines does.
    """
    facts = {**host.facts(), **workload_facts(workload, model)}
    entries = [f for f in profile.factor if workload.framework in f.frameworks]
    if fixed := space.fixed_by_user():
        raise UsageError(
            f"--designed compares with the default, in which nothing is set, and --fix sets "
            f"{', '.join(fixed)} in every cell: leave out either"
        )
    if not entries:
        raise UsageError(
            f"--designed: the profile {profile.name} names no factors for {workload.framework}; "
            "they stand in [[factor]] (search_spaces/README.md)"
        )

    def resolved(name: str, entries: Collection[FactorEntry]) -> Baseline:
        settings = _settings(entries, facts, [f.name for f in profile.factor])
        return resolve_one(name, "", settings, host, workload, space, (), is_literal=False)

    left_out: dict[str, str] = {}
    for entry in entries:
        if entry.when and not Expression(entry.when).holds(facts):
            left_out[entry.name] = entry.why or f"needs {entry.when}"
            continue
        alone = resolved(f"factor {entry.name}", [entry])
        if alone.configuration == Configuration():
            left_out[entry.name] = alone.reason or "; ".join(alone.dead_settings)
    kept = [entry for entry in entries if entry.name not in left_out]
    cells: list[Cell] = []
    for number in range(1, N_CELLS):
        set_here = [entry for entry in kept if is_set(entry.column, number)]
        made = resolved(f"cell {number}", set_here)
        idle = {
            entry.name
            for entry in set_here
            if made.is_applicable
            and resolved("", [other for other in set_here if other is not entry]).configuration
            == made.configuration
        }
        twins = [0] if made.configuration == Configuration() else []
        twins += [c.number for c in cells if not c.fault and c.configuration == made.configuration]
        cells.append(
            Cell(
                number,
                tuple(entry.name for entry in set_here if entry.name not in idle),
                made.configuration,
                tuple(sorted(idle)),
                same_as=twins[0] if twins and made.is_applicable else None,
                fault=made.reason,
            )
        )
    pairs = [(f.name, other) for f in kept for other in f.interacts if other not in left_out]
    return DesignFixed(tuple(cells), left_out, tuple(pairs))


def _settings(
    entries: Collection[FactorEntry], facts: Mapping[str, Any], names: Collection[str]
) -> dict[str, Value]:
    """Return the settings of the factors of a cell; what later ones set wins."""
    here = {f"factor.{name}": any(entry.name == name for entry in entries) for name in names}
    settings: dict[str, Value] = {}
    for entry in entries:
        settings |= evaluated(f"factor {entry.name}", entry.settings, {**facts, **here})
    return settings
