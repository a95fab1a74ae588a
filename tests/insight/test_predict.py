"""Predictions: the best combination by effects and pairs, with an interval that holds."""

import itertools
import math

import numpy as np

from tuner.insight.predict import WITH, applicable, foretold, ranked
from tuner.insight.rules import Seen, distil
from tuner.record.guidelines import Rule

FAMILIES = 8
MEANS = {"compile": 0.3, "autocast": 0.1, "layout": -0.05, f"compile{WITH}autocast": 0.2,
         f"compile{WITH}layout": 0.15}  # fmt: skip
SPREAD = 0.05


def rules(random: np.random.Generator) -> dict[str, Rule]:
    found: list[Rule] = []
    for setting, mean in MEANS.items():
        seen = [
            Seen(str(i), str(i), {}, mean + random.normal(0, SPREAD), 1e-6) for i in range(FAMILIES)
        ]
        found += distil("torch", setting, seen)
    return applicable(found, "torch", {})


def test_what_helps_only_together_is_set_together() -> None:
    known = rules(np.random.default_rng(1))
    assert set(ranked(known, ["compile", "autocast", "layout"])[0].factors) == {
        "compile", "autocast", "layout",
    }  # fmt: skip
    assert ranked(known, ["layout"])[0].factors == ()
    assert ranked(known, ["layout"])[0].speedup.point == 1.0
    assert ranked(known, ["autocast", "layout", "unheard_of"])[0].factors == ("autocast",)


def test_intervals_hold_what_a_model_of_another_family_does() -> None:
    random = np.random.default_rng(2)
    held, n = 0, 300
    for _ in range(n):
        foretold_ = foretold(rules(random), ["compile", "autocast"])
        names = ["compile", "autocast", f"compile{WITH}autocast"]
        truth = sum(MEANS[name] + random.normal(0, SPREAD) for name in names)
        held += foretold_.speedup.low <= math.exp(truth) <= foretold_.speedup.high
    assert 0.86 <= held / n <= 0.96


def test_the_best_of_all_combinations_is_chosen() -> None:
    known = rules(np.random.default_rng(3))
    names = ["compile", "autocast", "layout"]
    every = [
        foretold(known, chosen).speedup.point
        for n in range(4)
        for chosen in itertools.combinations(names, n)
    ]
    assert ranked(known, names)[0].speedup.point == max(every)
