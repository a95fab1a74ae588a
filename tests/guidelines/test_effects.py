"""Effects out of a designed part: what was put in comes out, with the spread it should have."""

import itertools
import math

import numpy as np
import pytest

from tuner.guidelines.effects import fit, launch_variance
from tuner.record.designed import DesignedCell, DesignedSection
from tuner.space.design import N_CELLS, is_set

COLUMNS = {"compile": "a", "autocast": "b", "allocator": "c", "layout": "d", "folded": "abc"}
PAIRS = [("compile", "autocast"), ("compile", "folded")]
TRUTH = {"compile": 0.4, "autocast": 0.1, "allocator": 0.05, "layout": -0.03, "folded": 0.2,
         "compile with autocast": 0.25, "compile with folded": -0.15}  # fmt: skip


def design(
    random: np.random.Generator, sd: float, failing: str = "", columns: dict[str, str] = COLUMNS
) -> DesignedSection:
    cells = []
    for number in range(1, N_CELLS):
        if number % 3 == 1:
            default = random.normal(0, sd)
        factors = [name for name, column in columns.items() if is_set(column, number)]
        names = [*factors, *(f"{a} with {b}" for a, b in itertools.permutations(factors, 2))]
        truth = sum(TRUTH.get(name, 0.0) for name in names)
        is_wrong = failing in factors
        cells.append(
            DesignedCell(
                number, factors, {}, [], None, "wrong_output" if is_wrong else "measured", "",
                None if is_wrong else truth + random.normal(0, sd) - default, 4, (number + 2) // 3,
            )
        )  # fmt: skip
    return DesignedSection(cells, {}, PAIRS)


def test_effects_and_pairs_are_told_apart() -> None:
    found = {e.name: e for e in fit(design(np.random.default_rng(1), 0.0)).effects}
    assert found.keys() == TRUTH.keys()
    for name, effect in found.items():
        assert effect.value == pytest.approx(TRUTH[name], abs=1e-9)


def test_their_variance_is_what_they_scatter_by() -> None:
    random, sd = np.random.default_rng(2), 0.05
    fits = [fit(design(random, sd)) for _ in range(400)]
    variance, freedom = launch_variance(fits)
    assert freedom == 400 * (15 - len(TRUTH))
    assert math.sqrt(variance) == pytest.approx(sd, rel=0.05)
    for i, effect in enumerate(fits[0].effects):
        values = [each.effects[i].value for each in fits]
        assert np.mean(values) == pytest.approx(TRUTH[effect.name], abs=0.01)
        assert np.std(values) == pytest.approx(sd * math.sqrt(effect.unit_variance), rel=0.12)


def test_what_failed_cells_hide_is_part_of_the_others_errors() -> None:
    """Without the cells with autocast, two pairs and the effects beside them are one column."""
    found = {e.name: e for e in fit(design(np.random.default_rng(3), 0.0, "autocast")).effects}
    assert found.keys() == {"compile", "allocator", "layout", "folded"}
    assert found["layout"].value == pytest.approx(TRUTH["layout"])
    assert found["layout"].error(0.0) == pytest.approx(0.0, abs=1e-9)
    for name in ("compile", "allocator", "folded"):
        off = found[name].value - TRUTH[name]
        assert 0.02 < abs(off) < 3 * found[name].error(0.0), name


def test_of_nothing_measured_nothing_is_told() -> None:
    nothing = fit(design(np.random.default_rng(4), 0.0, columns={}))
    assert nothing.effects == ()
    assert launch_variance([nothing]) == (math.inf, 0)
