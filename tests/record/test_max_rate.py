"""Edges of servers whose latency is a known function of the rate."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from tuner.record.max_rate import Trial, edge_of, next_rate

BOUND_S = 0.1


def smooth(rate: float) -> float:
    """Crosses the bound at 50."""
    return 0.02 + 0.08 * (rate / 50) ** 3


def cliff(rate: float) -> float:
    return 0.03 if rate < 50 else 2.0


def explored(
    latency: Callable[[float], float], start: float, *, noise: float = 0.0, seed: int = 0
) -> list[Trial]:
    random = np.random.default_rng(seed)
    trials: list[Trial] = []
    while (rate := next_rate(trials, BOUND_S, start=start, least=1.0)) is not None:
        noisy = latency(rate) * math.exp(float(random.normal(0, noise)))
        trials.append(Trial(rate, noisy, 100))
    return trials


@pytest.mark.parametrize("start", [10.0, 35.0, 50.0, 70.0, 200.0])
def test_the_edge_is_found_wherever_it_was_expected(start: float) -> None:
    trials = explored(smooth, start)
    found = edge_of(trials, BOUND_S)
    assert 5 <= len(trials) <= 10
    assert found.rate == pytest.approx(50, rel=0.03)
    assert found.low * (1 - 1e-9) <= found.rate <= found.high
    assert not found.is_cliff


def test_a_few_trials_settle_it_where_it_was_expected() -> None:
    assert len(explored(smooth, 50.0)) <= 7


def test_a_cliff_is_told_from_a_slope() -> None:
    found = edge_of(explored(cliff, 45.0), BOUND_S)
    assert found.is_cliff
    assert 50 / 1.1 < found.low < 50 <= found.high < 50 * 1.1


def test_noise_moves_the_edge_by_less_than_itself() -> None:
    """A noise of 10 % of the latency, on a slope of 2.4, is about 4 % of the rate a trial."""
    found = [
        edge_of(explored(smooth, 45.0, noise=0.1, seed=seed), BOUND_S).rate for seed in range(40)
    ]
    assert np.mean(found) == pytest.approx(50, rel=0.03)
    assert np.std(np.log(found)) < 0.06


def test_trials_out_of_order_are_made_monotone() -> None:
    trials = [Trial(40, 0.12, 100), Trial(45, 0.08, 100), Trial(60, 0.3, 100)]
    found = edge_of(trials, BOUND_S)  # 40 and 45 share a latency just below the bound
    assert 45 < found.rate < 60


def test_what_never_keeps_within_the_bound_has_no_edge_and_is_given_up() -> None:
    trials = explored(lambda rate: 0.5 + rate / 1000, start=5.0)
    assert edge_of(trials, BOUND_S).rate == 0.0
    assert 1.0 <= min(trial.rate for trial in trials) < 1.2  # where nobody looks any further
    assert len(trials) <= 10


def test_what_always_keeps_within_it_is_worth_the_highest_rate_that_was_tried() -> None:
    trials = explored(lambda _: 0.01, start=5.0)
    found = edge_of(trials, BOUND_S)
    assert (found.rate, found.high) == (max(t.rate for t in trials), math.inf)
