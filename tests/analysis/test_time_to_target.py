"""What pairs of runs to a target show."""

from __future__ import annotations

import math

import pytest

from tuner.analysis.time_to_target import Speed, conclude
from tuner.output.training import time_to_target_in_words
from tuner.record.interval import Interval
from tuner.record.time_to_target import Pair, Target, TimeToTarget, TrainingRun

TARGET = Target("accuracy", 0.8, every=1, most_steps=1000)
FASTER = Interval(2.0, 1.8, 2.2, 0.95)
SETTINGS = {"torch.autocast": "bf16"}
MEASURED = Speed(0.01, FASTER, 3.6)


def run(steps: float, step_s: float = 0.01) -> TrainingRun:
    """Return a run that reached its target after this many steps; infinity if it did not."""
    if math.isinf(steps):
        return TrainingRun(TARGET, ((0, 0.1), (1000, 0.5)), step_s, 1000 * step_s)
    before = math.floor(steps)
    share = steps - before  # the quality rises from 0.8 - share to 1.8 - share
    evaluations = ((0, 0.1), (before, 0.8 - share), (before + 1, 1.8 - share))
    return TrainingRun(TARGET, evaluations, step_s, steps * step_s)


def pairs(*steps: tuple[float, float]) -> dict[int, Pair]:
    return {seed: (run(a), run(b, 0.005)) for seed, (a, b) in enumerate(steps)}


def concluded(*steps: tuple[float, float], speed: Speed = MEASURED) -> TimeToTarget:
    return conclude(pairs(*steps), SETTINGS, 0.05, speed)


ALIKE = ((100.5, 100.5), (120.5, 121.5), (90.5, 90.0), (110.5, 110.5), (105.5, 105.0))


def test_pairs_that_are_alike_are_as_good_although_seeds_differ() -> None:
    found = concluded(*ALIKE)
    assert (found.verdict, found.n_needed) == ("as_good", 5)
    assert found.steps_ratio is not None
    assert found.steps_ratio.point == pytest.approx(1.0, abs=0.005)
    assert found.speedup is not None
    assert found.speedup.point == pytest.approx(2.0, rel=0.01)
    assert found.speedup.high / found.speedup.low > FASTER.high / FASTER.low


def test_the_time_is_that_of_the_median_run_at_the_measured_rate() -> None:
    found = concluded(*ALIKE, speed=Speed(0.02, FASTER, 3.6))
    assert found.default.median_steps == 105.5
    assert found.default.olympic_steps == pytest.approx((100.5 + 110.5 + 105.5) / 3)
    assert found.default.seconds == pytest.approx(105.5 * 0.02)
    assert found.tuned.seconds == pytest.approx(105.0 * 0.02 / 2)
    assert found.default.cost == pytest.approx(105.5 * 0.02 / 1000)
    text = time_to_target_in_words(found)
    assert "Accuracy 0.8 with torch.autocast=bf16: it learns as well as the default" in text
    assert "The target is reached 2." in text
    assert "which cost 0.00211" in text


def test_runs_that_were_not_measured_side_by_side_tell_no_time() -> None:
    found = concluded(*ALIKE, speed=Speed())
    assert found.verdict == "as_good"
    assert (found.default.seconds, found.tuned.seconds) == (None, None)
    assert (found.speedup, found.default.cost) == (None, None)


def test_fewer_pairs_than_their_scatter_asks_for_decide_nothing() -> None:
    scattered = [(100.5, 100.5 * math.exp(d)) for d in (0.2, -0.2, 0.1, -0.1, 0.0)]
    found = concluded(*scattered)
    assert found.verdict == "undecided"
    assert found.n_needed is not None
    assert found.n_needed > 40
    assert f"asks for {found.n_needed} pairs, and there are 5" in found.reason


def test_a_run_that_missed_the_target_is_counted_and_nothing_passes() -> None:
    found = concluded(*ALIKE[:4], (105.5, math.inf))
    assert found.verdict == "undecided"
    assert found.tuned.steps[-1] is None
    assert "did not reach the target in 1 of 5 runs" in found.reason
    assert (found.steps_ratio, found.speedup) == (None, None)


def test_a_target_that_the_default_misses_decides_nothing() -> None:
    found = concluded(*ALIKE[:4], (math.inf, 100.5))
    assert found.verdict == "undecided"
    assert "the default itself did not reach the target in 1 of 5 runs" in found.reason


def test_four_pairs_are_too_few() -> None:
    found = concluded(*ALIKE[:4])
    assert (found.verdict, found.n_needed) == ("undecided", None)
    assert found.reason == "4 of at least 5 pairs were made"


def test_a_margin_is_written_as_it_was_given() -> None:
    found = conclude(pairs(*ALIKE), SETTINGS, 0.025, MEASURED)
    assert "less than 2.5% more steps" in found.reason
