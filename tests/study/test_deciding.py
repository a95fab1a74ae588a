"""How many more rounds would decide, and what they take, from rounds that are written by hand."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import BASELINE, Scripted, new_study
from tuner.measurement.confirmation import FIRST_LOOK, LOOKS
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase, RoundDone
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.deciding import open_in_extension, rounds_s, rounds_to_decide
from tuner.study.study import Study

DEFAULT = Configuration()
TUNED = Configuration.of({"fake.layout": "packed"})
LAUNCH_S = 10.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        for configuration in (DEFAULT, BASELINE, TUNED):
            add(opened, configuration, 1.0, Purpose.SEARCH)
        for winner_class in WinnerClass:
            opened.add(FinalistNamed(Phase.MINIMISE, winner_class, TUNED))
        yield opened


def add(store: Store, configuration: Configuration, log_rate: float, purpose: Purpose) -> int:
    id = store.next_launch_id()
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, purpose),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-log_rate), id + k / 10) for k in range(4)],
        ending=Ending(Outcome.MEASURED),
        total_s=LAUNCH_S,
    )
    return id


def rounds(store: Store, gain: float, n: int, half: float = 0.02) -> None:
    """Write rounds whose differences are by so much above and below the gain, in turns."""
    for number in range(1, n + 1):
        off = half * (-1) ** number
        ids = (
            add(store, DEFAULT, 1.0, Purpose.CONFIRM),
            add(store, TUNED, 1.0 + gain + off, Purpose.CONFIRM),
        )
        store.add(RoundDone(number, ids))


def needed(store: Store, folder: Path) -> dict[Configuration, int]:
    study = new_study(store, folder, 1000.0)
    claims, arms = open_in_extension(study)
    assert arms == [TUNED]
    return rounds_to_decide(study, claims, arms)


@pytest.mark.parametrize(("n", "n_more"), [(2, 2), (3, 1), (4, 1)])
def test_what_is_clear_needs_the_rest_of_a_first_look_and_at_least_a_round(
    store: Store, tmp_path: Path, n: int, n_more: int
) -> None:
    rounds(store, gain=0.5, n=n)
    assert needed(store, tmp_path) == {TUNED: n_more}


def test_the_smaller_a_gain_the_more_rounds(store: Store, tmp_path: Path) -> None:
    rounds(store, gain=0.02, n=4)
    found = needed(store, tmp_path)[TUNED]
    assert 1 < found <= LOOKS[-1]


@pytest.mark.parametrize("gain", [-0.1, 0.0])
def test_what_is_not_above_the_default_is_left_out(
    store: Store, tmp_path: Path, gain: float
) -> None:
    rounds(store, gain=gain, n=4)
    assert needed(store, tmp_path) == {}


def test_what_no_extension_decides_is_left_out(store: Store, tmp_path: Path) -> None:
    rounds(store, gain=0.02, n=4, half=0.5)
    assert needed(store, tmp_path) == {}


def test_before_two_rounds_the_search_tells(store: Store, tmp_path: Path) -> None:
    assert needed(store, tmp_path) == {}  # as fast as the default
    for _ in range(20):
        add(store, TUNED, 1.6, Purpose.RACE)
    assert needed(store, tmp_path) == {TUNED: FIRST_LOOK}


def test_baselines_take_part_in_the_first_look_alone(store: Store, tmp_path: Path) -> None:
    rounds(store, gain=0.1, n=4)
    study: Study = new_study(store, tmp_path, 1000.0, Scripted)
    claims, arms = open_in_extension(study)
    with_baseline_s = FIRST_LOOK * study.costs.round_s([DEFAULT, TUNED, BASELINE])
    later_s = study.costs.round_s([DEFAULT, TUNED])
    for n_rounds, n_later in ((1, 0), (FIRST_LOOK, 0), (FIRST_LOOK + 3, 3)):
        found = rounds_s(study, claims, arms, n_rounds)
        assert found == pytest.approx(with_baseline_s + n_later * later_s)


def test_a_finalist_that_failed_is_not_to_be_decided_on(store: Store, tmp_path: Path) -> None:
    id = add(store, TUNED, 1.0, Purpose.RACE)
    store.launches[id].ending = Ending(Outcome.CRASHED, "it crashed")
    _, arms = open_in_extension(new_study(store, tmp_path, 1000.0))
    assert arms == []
