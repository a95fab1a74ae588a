"""Predictions: the best combination by effects and pairs, with an interval that holds."""

import itertools
import math

import msgspec
import numpy as np

from tuner.insight.predict import WITH, Known, foretold, known_of, ranked
from tuner.insight.rules import Seen, distil
from tuner.record.guidelines import GUIDELINES_VERSION, Condition, Guidelines, Rule

FAMILIES = 8
MEANS = {"compile": 0.3, "autocast": 0.1, "layout": -0.05, f"compile{WITH}autocast": 0.2,
         f"compile{WITH}layout": 0.15}  # fmt: skip
SPREAD = 0.05


def rules(random: np.random.Generator) -> Known:
    found: list[Rule] = []
    for setting, mean in MEANS.items():
        seen = [
            Seen(str(i), (str(i),), str(i), {}, mean + random.normal(0, SPREAD), 1e-6)
            for i in range(FAMILIES)
        ]
        found += distil("torch", setting, seen)
    return known_of(guidelines(found), "torch", {})


def guidelines(found: list[Rule]) -> Guidelines:
    return Guidelines(GUIDELINES_VERSION, "0", "", {}, {}, {}, [], found)


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
        foretold_ = foretold(rules(random).rules, ["compile", "autocast"])
        names = ["compile", "autocast", f"compile{WITH}autocast"]
        truth = sum(MEANS[name] + random.normal(0, SPREAD) for name in names)
        held += foretold_.speedup.low <= math.exp(truth) <= foretold_.speedup.high
    assert 0.86 <= held / n <= 0.96


def test_the_best_of_all_combinations_is_chosen() -> None:
    known = rules(np.random.default_rng(3))
    names = ["compile", "autocast", "layout"]
    every = [
        foretold(known.rules, chosen).speedup.point
        for n in range(4)
        for chosen in itertools.combinations(names, n)
    ]
    assert ranked(known, names)[0].speedup.point == max(every)


def test_two_whose_doing_together_is_not_told_are_not_combined() -> None:
    """A pair that was seen in too few families still says that the two do not add up."""
    told = list(rules(np.random.default_rng(4)).rules.values())
    few = [
        msgspec.structs.replace(rule, n_families=2) if rule.setting == f"compile{WITH}autocast"
        else rule
        for rule in told
    ]  # fmt: skip
    known = known_of(guidelines(few), "torch", {})
    assert known.untold == {f"compile{WITH}autocast"}
    assert ranked(known, ["compile", "autocast"])[0].factors == ("compile",)


def test_what_no_rule_advises_is_not_set() -> None:
    told = list(rules(np.random.default_rng(5)).rules.values())
    unsure = [msgspec.structs.replace(rule, advice="none") for rule in told]
    assert ranked(known_of(guidelines(unsure), "torch", {}), list(MEANS))[0].factors == ()


def test_a_condition_that_does_not_fit_its_fact_holds_of_nothing() -> None:
    assert Condition("kind", "<=", 3.0).holds({"kind": "cnn"}) is None
    assert Condition("call_s", "<=", "cnn").holds({"call_s": 1.0}) is None
