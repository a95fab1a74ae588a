"""Which removals are believed, from launches that are written by hand or by a script."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import Scripted, new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase, TrialNoted, WinnerClass
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, ReadBack, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.ledger import Ledger
from tuner.study.minimise import launch_due, minimise

DEFAULT = Configuration()
SHORTER = Configuration.of({"fake.layout": "packed"})
OTHER = Configuration.of({"fake.streams": 2})
FULL = Configuration.of({"fake.layout": "packed", "fake.streams": 2})
TOLERANCE = 0.02


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def add(
    store: Store, configuration: Configuration, log_rate: float, unobservable: str = ""
) -> LaunchRecord:
    id = store.next_launch_id()
    echoed = ReadBack(unobservable, 1, None, "environment_only", "nothing shows it")
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, Purpose.SEARCH),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, (echoed,) if unobservable else ()),
        slices=[Slice(id, 1, 1, math.exp(-log_rate), float(id))],
        ending=Ending(Outcome.MEASURED),
        total_s=10.0,
    )
    return store.launches[id]


def due(store: Store, *, is_expected: bool = True) -> Configuration | None:
    return launch_due(Ledger(store, 4, (4,)), FULL, SHORTER, TOLERANCE, is_expected=is_expected)


def test_what_was_never_measured_is_launched(store: Store) -> None:
    add(store, FULL, 1.0)
    assert due(store) == SHORTER


def test_a_setting_that_no_trial_speaks_for_goes_after_one_launch(store: Store) -> None:
    add(store, FULL, 1.0)
    add(store, SHORTER, 1.01)
    assert due(store) is None


def test_a_setting_that_the_trials_speak_for_does_not_go_by_one_lucky_launch(store: Store) -> None:
    add(store, FULL, 1.0)
    add(store, SHORTER, 1.0)
    assert due(store, is_expected=False) == FULL
    add(store, FULL, 1.02)
    assert due(store, is_expected=False) == SHORTER
    add(store, SHORTER, 1.01)
    assert due(store, is_expected=False) is None


def test_a_loss_counts_after_the_finalist_was_launched_again(store: Store) -> None:
    add(store, FULL, 1.2)
    add(store, SHORTER, 1.0)
    assert due(store) == FULL
    add(store, FULL, 1.2)
    assert due(store) is None


def test_unclear_pairs_are_launched_three_times_at_most(store: Store) -> None:
    for k in range(3):
        assert due(store) is not None
        add(store, FULL, 1.03)
        add(store, SHORTER, 1.0 + 0.005 * (k - 1))
    assert due(store) is None


class AsWritten(Scripted):
    """A study whose further launches have the rate that is true."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, TRUE[configuration])


TRUE = {DEFAULT: 1.0, SHORTER: 1.1, OTHER: 1.15, FULL: 1.25}


class Flat(Scripted):
    """A study in which everything is as fast as the default."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, 1.0)


def name_finalist(store: Store, rates: dict[Configuration, float]) -> None:
    """Write a search that ended with FULL as the finalist of every class."""
    for number, (configuration, rate) in enumerate(rates.items()):
        record = add(store, configuration, rate)
        ending = Ending(Outcome.MEASURED)
        store.add(TrialNoted(number, configuration, "script", ending, (record.request.id,), rate))
    for klass in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, klass, FULL))


def reduced(store: Store, folder: Path, budget_s: float, unobservable: str = "") -> Configuration:
    """Minimise FULL after a search in which the shorter one was lucky: 0.15 above the truth."""
    for number, (configuration, true) in enumerate(TRUE.items()):
        rate = true + (0.15 if configuration == SHORTER else 0.0)
        record = add(store, configuration, rate, unobservable)
        ending = Ending(Outcome.MEASURED)
        store.add(TrialNoted(number, configuration, "script", ending, (record.request.id,), rate))
    for klass in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, klass, FULL))
    study = new_study(store, folder, budget_s, AsWritten)
    minimise(study)
    return study.finalists()[WinnerClass.SAME]


def test_one_lucky_launch_takes_no_setting_away(store: Store, tmp_path: Path) -> None:
    assert reduced(store, tmp_path, budget_s=1500.0) == FULL
    assert Ledger(store, 4, (4,)).n_launches(SHORTER) > 1


def test_the_last_setting_stays_for_the_confirmation_to_judge(store: Store, tmp_path: Path) -> None:
    """None does any good, and the search was lucky with both together."""
    rates = {DEFAULT: 1.0, SHORTER: 1.0, OTHER: 1.001, FULL: 1.004}
    name_finalist(store, rates)
    study = new_study(store, tmp_path, 1500.0, Flat)
    minimise(study)
    assert study.finalists()[WinnerClass.SAME] in (SHORTER, OTHER)


def test_what_does_not_lead_is_confirmed_as_it_is(store: Store, tmp_path: Path) -> None:
    name_finalist(store, {DEFAULT: 1.0, FULL: 0.99})
    before = len(store.launches)
    study = new_study(store, tmp_path, 1500.0, Flat)
    minimise(study)
    assert study.finalists()[WinnerClass.SAME] == FULL
    assert len(store.launches) == before


def test_without_the_time_to_make_sure_a_setting_stays(store: Store, tmp_path: Path) -> None:
    assert reduced(store, tmp_path, budget_s=1.0) == FULL
    assert Ledger(store, 4, (4,)).n_launches(SHORTER) == 1


def test_a_setting_that_nothing_shows_needs_no_second_launch_to_go(
    store: Store, tmp_path: Path
) -> None:
    assert reduced(store, tmp_path, budget_s=1.0, unobservable="fake.streams") == SHORTER
