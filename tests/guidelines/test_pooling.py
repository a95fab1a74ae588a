"""Effects over models: intervals hold what they say, where models of a family are alike."""

import numpy as np
import pytest

from tuner.guidelines.pooling import Observation, pool

MEAN, BETWEEN, WITHIN, ERROR = 0.2, 0.1, 0.05, 0.03


def draw(random: np.random.Generator, n_families: int, n_models: int) -> list[Observation]:
    found = []
    for family in range(n_families):
        shared = MEAN + random.normal(0, BETWEEN)
        for _ in range(n_models):
            value = shared + random.normal(0, WITHIN) + random.normal(0, ERROR)
            found.append(Observation(str(family), value, ERROR**2))
    return found


@pytest.mark.parametrize(("n_families", "n_models"), [(7, 2), (7, 1), (12, 3)])
def test_intervals_hold_the_mean_and_other_families(n_families: int, n_models: int) -> None:
    random = np.random.default_rng(n_families)
    of_mean, of_other, n = 0, 0, 400
    for _ in range(n):
        pooled = pool(draw(random, n_families, n_models))
        low, high = pooled.interval()
        of_mean += low <= MEAN <= high
        low, high = pooled.expected()
        other = MEAN + random.normal(0, BETWEEN) + random.normal(0, WITHIN)
        of_other += low <= other <= high
    assert 0.91 <= of_mean / n <= 0.99
    assert 0.85 <= of_other / n <= 0.95


def test_models_of_one_family_are_no_evidence_of_others() -> None:
    one = pool([Observation("cnn", 0.2 + i / 100, 1e-4) for i in range(6)])
    assert one.interval() == (-np.inf, np.inf)
    two = pool([Observation("cnn", 0.2, 1e-4)] * 20 + [Observation("mlp", 0.0, 1e-4)])
    assert two.mean == pytest.approx(0.1, abs=0.02)  # a family is a voice, however many models
    low, high = two.interval()
    assert low < 0 < high


def test_of_nothing_nothing_is_pooled() -> None:
    with pytest.raises(ValueError, match="no observation"):
        pool([])
