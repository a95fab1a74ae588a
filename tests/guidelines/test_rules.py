"""Rules out of effects: conditions that hold in families not seen, and none out of chance."""

import math
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from tuner.guidelines.rules import Seen, distil
from tuner.record.guidelines import Condition, Fact, Rule

FAMILIES = (
    "cnn",
    "detection",
    "encoder",
    "decoder",
    "recommendation",
    "recurrent",
    "mlp",
    "speech",
)
IMAGES = ("cnn", "detection", "speech", "mlp")


def seen(
    random: np.random.Generator, effects: Mapping[str, float], spread: float = 0.02
) -> list[Seen]:
    found = []
    for family in FAMILIES:
        for model in range(2):
            kind = "image" if family in IMAGES else "words"
            call_s = 10 ** random.uniform(-3, 0)
            value = effects.get(kind, 0.0) + random.normal(0, spread)
            facts: dict[str, Fact] = {
                "kind": kind,
                "call_s": call_s,
                "parameters": 10 ** random.uniform(6, 9),
            }
            found.append(
                Seen(f"{family}{model}", (f"{family}{model}",), family, facts, value, spread**2)
            )
    return found


def test_a_setting_that_helps_all_models_is_one_rule() -> None:
    (rule,) = distil(
        "torch", "compile", seen(np.random.default_rng(1), {"image": 0.3, "words": 0.3})
    )
    assert rule.condition is None
    assert rule.advice == "set"
    assert rule.effect.low < math.exp(0.3) < rule.effect.high
    assert rule.expected.low < rule.effect.low
    assert set(rule.families) == set(FAMILIES)
    assert len(rule.studies) == 16


def test_what_helps_some_and_hurts_others_has_a_condition() -> None:
    rules = distil("torch", "layout", seen(np.random.default_rng(2), {"image": 0.2, "words": -0.1}))
    told = {(r.condition and r.condition.relation): r for r in rules}
    assert told.keys() == {"==", "!="}
    by_advice: dict[str, Rule] = {rule.advice: rule for rule in rules}
    assert by_advice.keys() == {"set", "leave"}
    assert set(by_advice["set"].families) == set(IMAGES)


@pytest.mark.parametrize(("n", "most"), [(15, 2), pytest.param(60, 6, marks=pytest.mark.slow)])
def test_chance_is_no_condition(n: int, most: int) -> None:
    """Of a setting that does the same to all, whatever varies beside it."""
    random = np.random.default_rng(3)
    conditional = sum(
        len(distil("torch", "x", seen(random, {"image": 0.1, "words": 0.1}, 0.05))) > 1
        for _ in range(n)
    )
    assert conditional <= most


def test_nothing_is_advised_of_what_does_little_or_was_seen_in_few_families() -> None:
    random = np.random.default_rng(4)
    (rule,) = distil("torch", "x", seen(random, {"image": 0.005, "words": 0.005}, 0.01))
    assert rule.advice == "none"
    two = [each for each in seen(random, {"words": 0.5}) if each.family in ("encoder", "decoder")]
    (rule,) = distil("torch", "x", two)
    assert rule.advice == "none"


@pytest.mark.parametrize(
    ("condition", "facts", "holds"),
    [
        (Condition("kind", "==", "cnn"), {"kind": "cnn"}, True),
        (Condition("kind", "==", "cnn").opposite(), {"kind": "cnn"}, False),
        (Condition("call_s", "<=", 0.01), {"call_s": 0.02}, False),
        (Condition("call_s", "<=", 0.01).opposite(), {"call_s": 0.02}, True),
        (Condition("call_s", "<=", 0.01), {}, None),
    ],
)
def test_conditions_ask_facts(
    condition: Condition, facts: dict[str, str | float], holds: bool | None
) -> None:
    assert condition.holds(facts) is holds


@pytest.mark.parametrize(("n_each", "fact"), [(1, "host"), (3, "host_isa")])
def test_of_few_hosts_each_speaks_for_itself(n_each: int, fact: str) -> None:
    """What they are like tells something from five on."""
    random = np.random.default_rng(4)
    several = [
        msgspec.structs.replace(
            each,
            value=each.value + shift,
            facts=each.facts | {"host": f"{isa} {i}", "host_isa": isa, "host_cores": 2.0},
            studies=(f"{each.model} on {isa} {i}",),
        )
        for isa, shift in (("AVX2", -0.4), ("AVX-512 and bf16", 0.5))
        for i in range(n_each)
        for each in seen(random, {})
    ]
    rules = distil("torch", "autocast", several)
    here: dict[str, Fact] = {"host": "AVX2 0", "host_isa": "AVX2"}
    told = {rule.condition and rule.condition.holds(here): rule for rule in rules}
    assert {rule.condition and rule.condition.fact for rule in rules} == {fact}
    assert (told[True].advice, told[False].advice) == ("leave", "set")
    assert told[True].n_models == len(FAMILIES) * 2
