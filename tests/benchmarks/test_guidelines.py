"""Rules judged by families that did not teach them: on recordings whose truth is known."""

import math

import numpy as np

from benchmarks.guidelines import log_gain, predicted_choices, predicted_effects
from tuner.record.designed import DesignedCell, DesignedSection
from tuner.record.guidelines import GUIDELINES_VERSION, Recording
from tuner.space.design import N_CELLS, is_set

COLUMNS = {"compile": "a", "autocast": "b", "allocator": "c", "threads": "d"}
MEANS = {"compile": 0.4, "autocast": 0.3, "allocator": 0.05, "threads": -0.5}
FAMILIES = [f"family{i}" for i in range(8)]


def recordings(spread: float, sd: float = 0.01, seed: int = 1) -> list[Recording]:
    """Two models of each family, whose effects vary by `spread` around the means."""
    random = np.random.default_rng(seed)
    found = []
    for family in FAMILIES:
        shared = {name: mean + random.normal(0, spread) for name, mean in MEANS.items()}
        found += [_recording(random, family, n, shared, sd) for n in range(2)]
    return found


def _recording(
    random: np.random.Generator, family: str, number: int, effects: dict[str, float], sd: float
) -> Recording:
    cells = []
    for cell in range(1, N_CELLS):
        if cell % 3 == 1:
            default = random.normal(0, sd)
        factors = [name for name, column in COLUMNS.items() if is_set(column, cell)]
        ratio = sum(effects[name] for name in factors) + random.normal(0, sd) - default
        cells.append(
            DesignedCell(cell, factors, dict.fromkeys(factors, 1), [], None, "measured", "",
                         ratio, 4, (cell + 2) // 3)
        )  # fmt: skip
    name = f"{family}-{number}"
    return Recording(
        schema_version=GUIDELINES_VERSION, design=DesignedSection(cells, {}), name=name,
        created="2026", tool_version="0", model=name, framework="torch", family=family,
        parameters_sha256=name, facts={"kind": "cnn", "batch": 4.0}, host="a host",
        fingerprint="a", versions={}, winners={},
    )  # fmt: skip


def test_intervals_hold_what_they_say_of_families_left_out() -> None:
    told = [each for seed in range(12) for each in predicted_effects(recordings(0.1, seed=seed))]
    assert len(told) == 12 * 2 * len(FAMILIES) * len(MEANS)
    held = sum(each.held for each in told) / len(told)
    assert 0.85 <= held <= 0.95


def test_what_is_alike_everywhere_is_foretold_closely_and_chosen() -> None:
    given = recordings(0.005)
    assert max(each.half_width for each in predicted_effects(given)) < 0.05
    for chosen in predicted_choices(given):
        wanted = {"compile", "allocator"} | (
            {"autocast"} if chosen.winner_class == "reduced_precision" else set()
        )
        assert set(chosen.factors) == wanted
        assert chosen.gain > 0.95 * chosen.best


def test_what_a_combination_is_worth_adds_up() -> None:
    effects = {"a": (0.1, 0.03), "b": (0.2, 0.04), "a with b": (-0.05, 0.0), "c": (1.0, 1.0)}
    value, error = log_gain(effects, ["a", "b"])
    assert math.isclose(value, 0.25) and math.isclose(error, 0.05)
    assert log_gain(effects, []) == (0, 0)
