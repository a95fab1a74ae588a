"""Coverage of predictions: of gains whose scatter is written down."""

import math

import numpy as np
import pytest

from benchmarks.guideline_coverage import (
    Gain,
    estimate,
    factors_of,
    held_apart,
    host_sd,
)
from tuner.record.configuration import Configuration
from tuner.record.guidelines import Rule
from tuner.record.interval import Interval

SETTINGS = {
    "allocator": ["launch.allocator=tcmalloc"],
    "folded": ["torch.compile.mode=freezing or torch.jit.mode=freeze"],
    "compile": ["torch.compile.mode=default or torch.compile.mode=freezing"],
}
MEAN, SPREAD, N_FAMILIES = 0.2, 0.05, 40
ONE = Interval(1.0, 1.0, 1.0, 0.9)


def gains(beyond: float, seed: int, n: int = 200) -> list[Gain]:
    """Return gains of models on two hosts, which differ by `beyond` from what the rule knows."""
    random = np.random.default_rng(seed)
    rule = Rule("torch", "allocator", None, MEAN, SPREAD, N_FAMILIES, ONE, ONE, "set", {}, 9, [])
    found = []
    for i in range(n):
        gain = MEAN + random.normal(0, SPREAD) + random.normal(0, beyond) + random.normal(0, 0.03)
        found.append(
            Gain("rounds", f"host {i % 2}", f"model {i // 2}", "torch", f"family {i % 5}",
                 ("allocator",), True, gain, 0.03, {"allocator": rule})
        )  # fmt: skip
    return found


@pytest.mark.parametrize("beyond", [0.1, 0.2])
def test_what_rules_do_not_know_is_found_and_makes_intervals_hold(beyond: float) -> None:
    drawn = gains(beyond, 1)
    found = estimate(drawn)
    assert found == pytest.approx(beyond, rel=0.25)
    before, after = (sum(g.is_held(sd) for g in drawn) / len(drawn) for sd in (0.0, found))
    assert before < 0.8
    assert 0.84 <= after <= 0.96
    apart = held_apart(drawn, lambda one, other: one.host != other.host)
    assert 0.84 <= sum(apart) / len(apart) <= 0.96
    assert host_sd(drawn) == pytest.approx(math.hypot(SPREAD, beyond), rel=0.2)


def test_where_rules_know_it_all_nothing_is_added() -> None:
    assert estimate(gains(0.0, 2)) < 0.03


@pytest.mark.parametrize(
    ("arm", "factors"),
    [
        ({"launch.allocator": "tcmalloc"}, ("allocator",)),
        ({"torch.jit.mode": "freeze"}, ("folded",)),
        ({"torch.compile.mode": "freezing"}, ("folded", "compile")),
        ({"torch.compile.mode": "default"}, ("compile",)),
        ({"launch.allocator": "jemalloc"}, ()),
        ({"launch.allocator": "tcmalloc", "env.OMP_PROC_BIND": "CLOSE"}, ()),
    ],
)
def test_a_configuration_is_what_its_settings_come_to(
    arm: dict[str, str], factors: tuple[str, ...]
) -> None:
    assert factors_of(SETTINGS, Configuration.of(arm)) == factors
