"""When a search has stalled, and when a class is settled, by proposals that are told by hand."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.space.spaces import FAKE_DEFAULTS, machine, resolved
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.search.sampler import PortfolioSampler
from tuner.search.terminator import PATIENCE, SearchState, Terminator

SAME, REDUCED = WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION
FIRST = Configuration.of({"fake.layout": "packed"})
BETTER = Configuration.of({"fake.layout": "blocked"})
FLOOR = 0.01
STALLED = 9
"""Proposals since the best one was found."""


class Told:
    """A study whose proposals are told by hand."""

    def __init__(self, folder: Path) -> None:
        space = resolved(machine(folder / "machine"), "fake", FAKE_DEFAULTS, "fake")
        self.scores: dict[Configuration, float | None] = {}
        self.sampler = PortfolioSampler(space, self._scores, 0)
        self.terminator = Terminator(self.sampler, self._scores)

    def _scores(self) -> Mapping[Configuration, float | None]:
        return self.scores

    def after(
        self,
        leader: Configuration,
        score: float,
        winner_class: WinnerClass = SAME,
        source: str = "surrogate",
        used_s: float = 1.0,
    ) -> str:
        """Tell of a proposal of a class, after which a configuration leads it."""
        self.scores[leader] = score
        state = SearchState({winner_class: (leader, score)}, FLOOR, 0.02, used_s, lambda: 10.0)
        return self.terminator.after(winner_class, source, state)


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_a_search_has_stalled_after_so_many_proposals_without_a_better_one(told: Told) -> None:
    for _ in range(STALLED):
        assert not told.terminator.has_stalled([SAME], 1)
        told.after(FIRST, 1.0)
    assert told.terminator.has_stalled([SAME], 1)


@pytest.mark.parametrize(("gain", "has_stalled"), [(0.5 * FLOOR, True), (2 * FLOOR, False)])
def test_only_what_is_better_by_more_than_the_noise_sets_it_going_again(
    told: Told, gain: float, has_stalled: bool
) -> None:
    for _ in range(2 * STALLED):
        told.after(FIRST, 1.0)
    told.after(BETTER, 1.0 + gain)
    assert told.terminator.has_stalled([SAME], 1) is has_stalled


def test_a_leader_that_fails_later_is_no_level_to_be_beaten(told: Told) -> None:
    for _ in range(2 * STALLED):
        told.after(FIRST, 1.0)
    told.scores[FIRST] = None
    told.after(BETTER, 0.5)
    assert not told.terminator.has_stalled([SAME], 1)


def test_half_of_all_proposals_must_have_brought_nothing(told: Told) -> None:
    for k in range(3 * STALLED):
        told.after((FIRST, BETTER)[k % 2], 1.0 + 2 * FLOOR * k)
    for n in range(1, 3 * STALLED):
        told.after(BETTER, 1.0)
        # the last better one counts as the first of those since
        is_half = n + 1 >= (3 * STALLED + n) / 2
        assert told.terminator.has_stalled([SAME], 1) is (is_half and n >= STALLED)


def test_classes_share_the_proposals_and_all_that_are_open_must_have_stalled(told: Told) -> None:
    for _ in range(4):
        told.after(FIRST, 1.0, SAME)
    assert told.terminator.has_stalled([SAME], 3)
    assert not told.terminator.has_stalled([SAME], 2)
    assert not told.terminator.has_stalled([SAME, REDUCED], 3)


def test_while_much_is_expected_no_class_is_settled(told: Told) -> None:
    for _ in range(5 * STALLED):
        assert told.after(FIRST, 1.0) == ""
    told.sampler.expected_gain[SAME] = 0.1
    assert told.after(FIRST, 1.0) == ""


@pytest.mark.parametrize(("source", "is_settled"), [("surrogate", True), ("random", False)])
def test_what_only_the_surrogate_can_say_settles_a_class(
    told: Told, source: str, is_settled: bool
) -> None:
    """After other proposals, and once all that differs from the leader in one setting is tried."""
    for _ in range(STALLED):
        told.after(FIRST, 1.0, source="random")
    told.scores |= dict.fromkeys(told.sampler.open_neighbours(FIRST, told.scores), 0.0)
    told.sampler.expected_gain[SAME] = 0.0001
    whys = [told.after(FIRST, 1.0, source=source) for _ in range(PATIENCE)]
    assert whys[:-1] == [""] * (PATIENCE - 1)
    assert whys[-1].startswith("settled: ") is is_settled
    if is_settled:
        assert whys[-1].endswith("is expected to gain 0.01%")
