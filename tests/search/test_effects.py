"""What each setting seems to gain by everything that was tried together."""

import math
from pathlib import Path

import pytest

from tests.space.spaces import FAKE_DEFAULTS, machine, resolved
from tuner.record.configuration import Configuration
from tuner.search.effects import Effects

DEFAULT = Configuration()
LAYOUT = Configuration.of({"fake.layout": "packed"})
STREAMS = Configuration.of({"fake.streams": 2})
THREADS = Configuration.of({"env.FAKE_THREADS": 4})


def united(*parts: Configuration) -> Configuration:
    return Configuration(tuple(sorted(pair for part in parts for pair in part.settings)))


ALL = united(LAYOUT, STREAMS, THREADS)
TRUE = {LAYOUT: 0.4, STREAMS: -0.2, THREADS: 0.0}
PARTS = [[], [LAYOUT], [STREAMS], [THREADS], [LAYOUT, STREAMS], [LAYOUT, THREADS],
         [STREAMS, THREADS], [LAYOUT, STREAMS, THREADS]]  # fmt: skip
TRIED: dict[Configuration, float | None] = {
    united(*parts): 5.0 + sum(TRUE[part] for part in parts) for parts in PARTS
}


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(resolved(machine(tmp_path / "machine"), "fake", FAKE_DEFAULTS, "fake"))


def test_gains_are_told_apart_and_their_level_is_none(effects: Effects) -> None:
    """Whatever the speed of the default."""
    for level in (0.0, 100.0):
        tried = {c: None if s is None else s + level for c, s in TRIED.items()}
        found = effects.gains(ALL, tried)
        assert list(found) == [knob for knob, _ in ALL.settings]
        assert found["fake.layout"] == pytest.approx(0.4, abs=0.08)
        assert found["fake.streams"] == pytest.approx(-0.2, abs=0.08)
        assert found["env.FAKE_THREADS"] == pytest.approx(0.0, abs=0.02)
    assert effects.gains(DEFAULT, TRIED) == {}
    assert list(effects.gains(LAYOUT, TRIED)) == ["fake.layout"]


def test_a_value_that_was_never_tried_gains_nothing_but_what_the_default_loses(
    effects: Effects,
) -> None:
    other = Configuration.of({"fake.layout": "blocked"})
    least = min(score for score in effects.gains(LAYOUT, TRIED).values())
    assert 0 < effects.gains(other, TRIED)["fake.layout"] < least


def test_before_any_score_nothing_is_known(effects: Effects) -> None:
    assert effects.gains(ALL, {}) == {}
    assert effects.gains(ALL, {DEFAULT: None, LAYOUT: None}) == {}


def test_what_failed_counts_as_half_as_fast_as_the_slowest(effects: Effects) -> None:
    slowest = min(score for score in TRIED.values() if score is not None)
    fails = united(LAYOUT, STREAMS)
    as_slow = effects.effects(ALL, {
        c: slowest - math.log(2) if c == fails else score
        for c, score in TRIED.items()
        if score is not None
    })  # fmt: skip
    assert effects.gains(ALL, {**TRIED, fails: None}) == as_slow
    assert as_slow["fake.streams"] < effects.gains(ALL, TRIED)["fake.streams"]
