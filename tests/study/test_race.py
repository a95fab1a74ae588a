"""Whom the race launches again, whom it names, and why it ends; launches are by a script."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import Scripted, carried_out, new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase, PhaseDone, TrialNoted, WarningNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.race import race
from tuner.study.study import Study

DEFAULT = Configuration()
NO_CODE = Configuration.of({"env.FAKE_THREADS": 4})
SAME = Configuration.of({"fake.layout": "packed"})
RIVAL = Configuration.of({"fake.layout": "blocked"})
REDUCED = Configuration.of({"fake.precision": "bf16"})
LAUNCH_S = 10.0
MEASURED = Ending(Outcome.MEASURED)
CLEAR = "every class has a clear leader, or its runners were launched often enough"
NO_TIME = "the rest of the budget is for minimising and the confirmation"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def add(
    store: Store,
    configuration: Configuration,
    purpose: Purpose,
    log_rate: float,
    ending: Ending = MEASURED,
) -> LaunchRecord:
    id = store.next_launch_id()
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, purpose),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-log_rate), id + k / 10) for k in range(6)],
        ending=ending,
        total_s=LAUNCH_S,
    )
    return store.launches[id]


def search(store: Store, rates: dict[Configuration, float]) -> None:
    for number, (configuration, rate) in enumerate(rates.items()):
        record = add(store, configuration, Purpose.SEARCH, rate)
        told = (record.request.id,)
        store.add(TrialNoted(number, configuration, "script", MEASURED, told, rate))


class LuckyOnce(Scripted):
    """A study in which RIVAL is worse than SAME whenever it is launched again."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, purpose, 1.1 if configuration == RIVAL else 1.29)


class Crashing(Scripted):
    """A study in which nothing works twice."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        ending = Ending(Outcome.CRASHED, "it crashed")
        return add(self.store, configuration, purpose, 1.0, ending)


def raced(
    store: Store, folder: Path, kind: type[Study], budget_s: float = 3000.0
) -> tuple[Study, list[Configuration], str]:
    """Return a study after its race, what that launched, and why it ended."""
    n_before = len(store.launches)
    study = new_study(store, folder, budget_s, kind)
    carried_out(study, race(study))
    launched = list(store.launches.values())[n_before:]
    assert {r.request.purpose for r in launched} <= {Purpose.RACE}
    (reason,) = [note.reason for note in store.all(PhaseDone) if note.phase is Phase.RACE]
    return study, [r.request.configuration for r in launched], reason


def test_a_clear_leader_of_each_class_is_named_without_a_launch(
    store: Store, tmp_path: Path
) -> None:
    search(store, {DEFAULT: 1.0, NO_CODE: 1.3, SAME: 1.6, REDUCED: 1.9})
    study, launched, reason = raced(store, tmp_path, LuckyOnce)
    assert (launched, reason) == ([], CLEAR)
    named = {
        n.winner_class: n.configuration for n in store.all(FinalistNamed) if n.phase is Phase.RACE
    }
    assert (
        named
        == study.candidates.finalists()
        == {
            WinnerClass.NO_CODE: NO_CODE,
            WinnerClass.SAME_PRECISION: SAME,
            WinnerClass.REDUCED_PRECISION: REDUCED,
        }
    )


def test_what_was_lucky_once_is_launched_again_and_overtaken(store: Store, tmp_path: Path) -> None:
    search(store, {DEFAULT: 1.0, SAME: 1.29, RIVAL: 1.3})
    study, launched, reason = raced(store, tmp_path, LuckyOnce)
    assert {*launched} == {RIVAL}
    assert reason == CLEAR
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] == SAME
    n_launches = len(store.launches)
    carried_out(study, race(study))  # it is done
    assert len(store.launches) == n_launches


def test_without_time_the_luckiest_is_named_and_it_is_said_why(
    store: Store, tmp_path: Path
) -> None:
    search(store, {DEFAULT: 1.0, SAME: 1.29, RIVAL: 1.3})
    study, launched, reason = raced(store, tmp_path, LuckyOnce, budget_s=1.0)
    assert (launched, reason) == ([], NO_TIME)
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] == RIVAL


def test_what_fails_when_it_is_launched_again_is_out_and_named_in_a_warning(
    store: Store, tmp_path: Path
) -> None:
    search(store, {DEFAULT: 1.0, SAME: 1.29, RIVAL: 1.3})
    study, launched, _ = raced(store, tmp_path, Crashing)
    assert launched
    assert launched[0] not in study.candidates.finalists().values()
    assert [note.text for note in store.all(WarningNoted)] == [
        f"{c.label()} failed when it was launched again, and is out" for c in launched
    ]
