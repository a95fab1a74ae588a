"""What earlier studies tell a search, on spaces whose truth is written down."""

import math
import random

import numpy as np
import pytest

from tests.search.test_surrogate import CHOICES, space, tried, truth
from tuner.record.configuration import Configuration, Value
from tuner.record.winner_class import WinnerClass
from tuner.search.surrogate import Score, Surrogate
from tuner.search.transfer import Earlier, Transfer
from tuner.space.catalogue import describe
from tuner.space.resolved_knob import ResolvedKnob
from tuner.space.space import Space

BASE = truth(Configuration())


def earlier(n: int = 40, sign: float = 1.0, seed: int = 1) -> Earlier:
    """Return a study that measured n configurations of the space; with -1, all the other way."""
    ratios = {c: sign * (truth(c) - BASE) for c in tried(n, seed=seed)}
    return Earlier(f"study {seed}", {Configuration(): 0.0, **ratios})


def test_the_best_of_earlier_studies_is_guessed_first() -> None:
    study = earlier()
    guesses = [c for _, c in Transfer(space(), [study]).guesses([WinnerClass.NO_CODE])]
    order = sorted(study.log_ratios, key=study.log_ratios.__getitem__, reverse=True)
    assert guesses == order[:1]
    others = Transfer(space(), [study]).guesses([WinnerClass.NO_CODE], order[:2].__contains__)
    assert [c for _, c in others] == [order[2]]


def test_what_was_slower_than_the_default_is_no_guess() -> None:
    slow = Earlier("slow", {Configuration.of({"env.THREADS": t}): -0.1 * t for t in (2, 4, 8)})
    assert list(Transfer(space(), [slow]).guesses([WinnerClass.SAME_PRECISION])) == []


def test_every_class_has_a_guess_of_its_own() -> None:
    wide = Space(
        [
            ResolvedKnob(describe(knob), choices[0], choices, choices, (), "", "")
            for knob, choices in (CHOICES | {"torch.dtype": ("fp32", "bf16")}).items()
        ],
        {},
    )
    bf16, threads = {"torch.dtype": "bf16"}, {"env.THREADS": 8}
    study = Earlier("s", {Configuration.of(bf16 | {"env.KIND": k}): 0.9 for k in ("b", "c")}
                    | {Configuration.of(threads): 0.5})  # fmt: skip
    guesses = list(
        Transfer(wide, [study]).guesses([WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION])
    )
    assert guesses[0] == (WinnerClass.SAME_PRECISION, Configuration.of(threads))
    assert [winner_class for winner_class, _ in guesses[1:]] == [WinnerClass.REDUCED_PRECISION]


@pytest.mark.parametrize(
    "settings",
    [
        {"env.THREADS": 56},  # not a choice here
        {"env.OTHER": "on"},  # not a setting here
        {"env.THREADS": 8, "env.OTHER": "on"},
    ],
)
def test_what_does_not_exist_here_tells_nothing(settings: dict[str, Value]) -> None:
    transfer = Transfer(space(), [Earlier("far", {Configuration.of(settings): 0.5})])
    assert transfer.n_configurations == 0
    assert transfer.studies == []
    assert not transfer.tells_anything


def test_what_is_fixed_here_and_was_otherwise_there_tells_nothing() -> None:
    knobs = [
        ResolvedKnob(describe(k), c[0], c, c, (), "", "") for k, c in CHOICES.items()
        if k != "env.KIND"
    ]  # fmt: skip
    fixed = ResolvedKnob(
        describe("env.KIND"),
        "a",
        ("b",),
        CHOICES["env.KIND"],
        (),
        "",
        "",
        option="--fix env.KIND=b",
    )
    threads: dict[str, Value] = {"env.THREADS": 8}
    both = {**threads, "env.KIND": "b"}
    study = Earlier("s", {Configuration.of(threads): 0.4, Configuration.of(both): 0.3})
    transfer = Transfer(Space([*knobs, fixed], {}), [study])
    assert transfer.n_configurations == 1
    ((_, guess),) = transfer.guesses([WinnerClass.SAME_PRECISION])
    assert guess == Configuration.of(both)


def test_a_batch_is_another_models() -> None:
    at = {8: 0.2, 64: 0.3}
    study = Earlier("s", {Configuration.of({"env.THREADS": 8, "workload.batch": b}): r
                          for b, r in at.items()})  # fmt: skip
    ((_, guess),) = Transfer(space(), [study]).guesses([WinnerClass.SAME_PRECISION])
    assert guess == Configuration.of({"env.THREADS": 8})


def test_several_studies_are_averaged() -> None:
    one, other = Configuration.of({"env.THREADS": 8}), Configuration.of({"env.KIND": "b"})
    studies = [Earlier("a", {one: 0.9, other: 0.5}), Earlier("b", {one: -0.5, other: 0.4})]
    _, guess = next(Transfer(space(), studies).guesses([WinnerClass.SAME_PRECISION]))
    assert guess == other


def found_after(n: int, hint: Transfer | None, seed: int) -> float:
    """Search the space from random starts; return by how much the best is behind the optimum."""
    searched = space()
    everything = sorted(searched.configurations(), key=Configuration.label)
    draw = random.Random(seed)
    seen = {c: Score(truth(c), 0.001) for c in draw.sample(everything, 3)}
    surrogate = Surrogate(searched, None if hint is None else hint.hints)
    while len(seen) < n:
        surrogate.fit(seen)
        new = [c for c in everything if c not in seen]
        best = new[int(np.argmax(surrogate.expected_gains(new, list(seen))))]
        seen[best] = Score(truth(best), 0.001)
    return max(map(truth, everything)) - max(s.log_score for s in seen.values())


def test_a_hint_finds_the_best_sooner() -> None:
    hint = Transfer(space(), [earlier(60)])
    with_it = [found_after(5, hint, seed) for seed in range(8)]
    without = [found_after(5, None, seed) for seed in range(8)]
    assert np.mean(with_it) < 0.5 * np.mean(without)


def test_a_hint_that_misleads_is_dropped_and_costs_little() -> None:
    misleading = Transfer(space(), [earlier(60, sign=-1.0)])
    surrogate = Surrogate(space(), misleading.hints)
    surrogate.fit(tried(9))
    assert surrogate.hint_correlation is None
    surrogate.fit(tried(10))
    assert surrogate.is_misled
    said = surrogate.hint_correlation
    surrogate.fit(tried(20))
    assert surrogate.is_misled
    assert surrogate.hint_correlation == said  # it was dropped for good
    plain = Surrogate(space())
    for n in (9, 10, 20):
        plain.fit(tried(n))
    everything = list(space().configurations())
    for mine, other in zip(surrogate.beliefs(everything), plain.beliefs(everything), strict=True):
        assert mine.mean == pytest.approx(other.mean, abs=0.02)
    off = [found_after(24, misleading, seed) for seed in range(8)]
    assert np.mean(off) < 0.05


def test_a_hint_that_agrees_is_kept() -> None:
    surrogate = Surrogate(space(), Transfer(space(), [earlier(60, seed=2)]).hints)
    surrogate.fit(tried(20))
    assert not surrogate.is_misled
    assert surrogate.hint_correlation is not None
    assert surrogate.hint_correlation > 0.8
    assert not math.isnan(surrogate.beliefs([Configuration()])[0].sd)


def test_a_hint_that_makes_no_difference_is_dropped() -> None:
    flat = Earlier("flat", dict.fromkeys(tried(20), 0.1))
    surrogate = Surrogate(space(), Transfer(space(), [flat]).hints)
    surrogate.fit(tried(12))
    assert surrogate.hint_correlation == 0.0
    assert surrogate.is_misled
