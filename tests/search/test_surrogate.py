"""What the surrogate makes of configurations, over a space whose truth is written down."""

import itertools
import math
import random

import numpy as np
import pytest

from tuner.record.configuration import Configuration, Value
from tuner.search.surrogate import Score, ScoreTransform, Surrogate
from tuner.space.catalogue import describe
from tuner.space.resolved_knob import ResolvedKnob
from tuner.space.space import Space

CHOICES: dict[str, tuple[Value, ...]] = {
    "env.THREADS": (1, 2, 4, 8, 16),
    "env.KIND": ("a", "b", "c"),
    "env.SWITCH": ("off", "on"),
    "env.NOTHING": ("x", "y", "z"),
}


def space(**late: bool) -> Space:
    return Space(
        [
            ResolvedKnob(
                describe(knob), choices[0], choices, choices, (), "", "",
                is_late=late.get(knob.removeprefix("env."), False),
            )
            for knob, choices in CHOICES.items()
        ],
        {},
    )  # fmt: skip


def truth(configuration: Configuration) -> float:
    values = {k: c[0] for k, c in CHOICES.items()} | configuration.as_dict()
    threads = {1: 0.0, 2: 0.5, 4: 0.9, 8: 1.0, 16: 0.7}[int(values["env.THREADS"])]
    kind = {"a": 0.0, "b": 0.2, "c": -0.1}[str(values["env.KIND"])]
    together = 0.3 if values["env.KIND"] == "b" and values["env.SWITCH"] == "on" else 0.0
    return threads + kind + together


def tried(n: int, sd: float = 0.001, seed: int = 0) -> dict[Configuration, Score]:
    draw = random.Random(seed)
    everything = sorted(space().configurations(), key=Configuration.label)
    chosen = draw.sample(everything, n)
    return {c: Score(truth(c) + draw.gauss(0, sd), sd) for c in chosen}


def test_a_third_of_a_space_tells_the_rest() -> None:
    searched = space()
    seen = tried(30)
    surrogate = Surrogate(searched)
    surrogate.fit(seen)
    others = [c for c in searched.configurations() if c not in seen]
    beliefs = surrogate.beliefs(others)
    off = [abs(b.mean - truth(c)) for b, c in zip(beliefs, others, strict=True)]
    spread = np.std([truth(c) for c in others])
    assert np.sqrt(np.mean(np.square(off))) < 0.35 * spread


def test_the_best_is_found_in_few_more_than_a_tenth_of_the_space() -> None:
    searched = space()
    everything = list(searched.configurations())
    seen = tried(4)
    surrogate = Surrogate(searched)
    for _ in range(14):
        surrogate.fit(seen)
        new = [c for c in everything if c not in seen]
        gains = surrogate.expected_gains(new, list(seen))
        found = new[int(np.argmax(gains))]
        seen[found] = Score(truth(found), 0.001)
    assert max(s.log_score for s in seen.values()) == pytest.approx(max(map(truth, everything)))


def test_what_matters_not_is_learnt_to_matter_not() -> None:
    surrogate = Surrogate(space())
    surrogate.fit(tried(45))
    lengths = surrogate._theta[:4]  # threads is the axis, then the marks
    assert lengths[3] > max(lengths[0], lengths[1]) + 0.5


def test_a_lucky_score_is_not_believed_where_scores_scatter() -> None:
    noisy = tried(40, sd=0.15, seed=3)
    luckiest = max(noisy, key=lambda c: noisy[c].log_score - truth(c))
    surrogate = Surrogate(space())
    surrogate.fit(noisy)
    (belief,) = surrogate.beliefs([luckiest])
    assert belief.mean < noisy[luckiest].log_score
    off = {c: b.mean - truth(c) for c, b in zip(noisy, surrogate.beliefs(list(noisy)), strict=True)}
    scores_off = [s.log_score - truth(c) for c, s in noisy.items()]
    assert np.std(list(off.values())) < 0.8 * np.std(scores_off)


def test_a_score_that_is_sure_is_believed() -> None:
    seen = tried(40)
    surrogate = Surrogate(space())
    surrogate.fit(seen)
    for configuration, belief in zip(seen, surrogate.beliefs(list(seen)), strict=True):
        assert belief.mean == pytest.approx(seen[configuration].log_score, abs=0.02)
        assert belief.sd < 0.05


def test_values_that_fail_are_expected_to_fail_again() -> None:
    seen = {c: s for c, s in tried(40).items() if c.get("env.KIND") != "b"}
    with_b = [c for c in space().configurations() if c.get("env.KIND") == "b"]
    failed = random.Random(0).sample(with_b, 6)
    surrogate = Surrogate(space())
    surrogate.fit(seen, failed)
    alike = [c for c in space().configurations() if c not in seen and c not in failed]
    chances = dict(zip(alike, surrogate.chances(alike), strict=True))
    with_it = [p for c, p in chances.items() if c.get("env.KIND") == "b"]
    without = [p for c, p in chances.items() if c.get("env.KIND") != "b"]
    assert max(with_it) < 0.3
    assert min(without) > 0.6


def test_costs_are_those_of_the_ones_alike() -> None:
    seen = tried(45)
    costs = {c: 40.0 if c.get("env.SWITCH") == "on" else 4.0 for c in seen}
    surrogate = Surrogate(space())
    surrogate.fit(seen, (), costs)
    new = [c for c in space().configurations() if c not in seen]
    found = dict(zip(new, surrogate.costs_s(new), strict=True))
    costly = [s for c, s in found.items() if c.get("env.SWITCH") == "on"]
    cheap = [s for c, s in found.items() if c.get("env.SWITCH") != "on"]
    assert min(costly) > max(cheap)


def test_counts_are_near_each_other_and_words_are_not() -> None:
    features = Surrogate(space()).features
    one, two, sixteen = (Configuration.of({"env.THREADS": n}) for n in (1, 2, 16))
    axes, _ = features.of([Configuration(), one, two, sixteen])
    assert axes[0] == axes[1]
    assert abs(axes[2] - axes[1]) == pytest.approx(abs(axes[3] - axes[1]) / 4)
    _, marks = features.of([Configuration.of({"env.KIND": kind}) for kind in "abc"])
    assert len(set(marks[:, 0])) == 3


def test_late_settings_that_differ_are_counted() -> None:
    features = Surrogate(space(NOTHING=True, SWITCH=True)).features
    here = Configuration.of({"env.SWITCH": "on"})
    others = [
        Configuration.of({"env.SWITCH": "on", "env.THREADS": 8}),
        Configuration(),
        Configuration.of({"env.NOTHING": "y", "env.KIND": "b"}),
    ]
    assert list(features.n_late_apart(others, here)) == [0, 1, 2]


def test_far_below_the_best_differences_count_for_less_and_come_back_as_they_were() -> None:
    rates = np.array([0.0, -0.1, -0.2, -1.0, -3.0])
    warp = ScoreTransform(rates)
    warped = warp.of(rates)
    assert warp.back(warped) == pytest.approx(rates)
    steps = [(a - b) / (c - d) for (a, b), (c, d) in zip(
        itertools.pairwise(warped), itertools.pairwise(rates), strict=True)]  # fmt: skip
    assert steps == sorted(steps, reverse=True)
    assert math.isclose(warp.slope(np.array([0.0]))[0], 1.0)
