"""Among what a search looks: the whole of a small space, samples of a large one."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.space.spaces import FAKE_DEFAULTS, machine, resolved
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.search import pool as module
from tuner.search.pool import Pool
from tuner.space.catalogue import allowed_in
from tuner.space.space import Space


def gains(configurations: Sequence[Configuration]) -> np.ndarray:
    """Expect most of what has the most settings."""
    return np.array([len(c.settings) for c in configurations], dtype=float)


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return resolved(machine(tmp_path / "machine"), "fake", FAKE_DEFAULTS, "fake")


def test_a_small_space_is_looked_at_as_a_whole(space: Space) -> None:
    pool = Pool(space, random.Random(0))
    found = pool.candidates(WinnerClass.REDUCED_PRECISION, lambda _: True, gains, 1)
    assert set(found) == set(space.configurations())


def test_a_class_holds_nothing_that_it_does_not_allow(space: Space) -> None:
    pool = Pool(space, random.Random(0))
    for winner_class in WinnerClass:
        found = pool.candidates(winner_class, lambda _: True, gains, 1)
        assert found
        assert all(allowed_in(winner_class, c) for c in found)


def test_until_it_is_learnt_anew_the_most_promising_are_looked_at(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHORTLIST", 10)
    pool = Pool(space, random.Random(0))
    tried: set[Configuration] = set()
    most = max(len(c.settings) for c in space.configurations())
    seen = []
    for _ in range(25):  # more than the shortlist holds: then the others once more
        found = pool.candidates(WinnerClass.REDUCED_PRECISION, lambda c: c not in tried, gains, 1)
        assert len(found) <= 10
        assert not tried & set(found)
        seen.append(len(found[0].settings))
        tried.add(found[0])
    assert seen[0] == most


def test_of_a_large_space_the_most_promising_samples_are_kept(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 10)
    monkeypatch.setattr(module, "_KEPT", 30)
    pool = Pool(space, random.Random(0))
    assert pool.whole() is None
    means = []
    for _ in range(20):
        found = pool.candidates(WinnerClass.REDUCED_PRECISION, lambda _: True, gains, 1)
        assert len(found) <= 30
        assert all(space.contains(c) for c in found)
        means.append(float(gains(found).mean()))
    assert means[-1] > means[0]


def test_what_is_drawn_is_of_the_class_and_exists(space: Space) -> None:
    for listed in (20_000, 10):
        pool = Pool(space, random.Random(0))
        pool._is_small = None if listed > 10 else False
        drawn = [pool.at_random(WinnerClass.SAME_PRECISION) for _ in range(50)]
        found = [c for c in drawn if c is not None]
        assert len(set(found)) > 10
        assert all(allowed_in(WinnerClass.SAME_PRECISION, c) and space.contains(c) for c in found)
