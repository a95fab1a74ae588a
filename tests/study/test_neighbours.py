"""Beside a busy neighbour, from launches that are written by hand or by a script."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.study.studies import Scripted, carried_out, is_granted, new_study
from tuner.analysis.neighbours import beside_neighbour
from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    FinalistNamed,
    Phase,
    RoundDone,
    TrialNoted,
    WarningNoted,
)
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.confirm import make_claims
from tuner.study.minimise import minimise
from tuner.study.neighbours import is_fragile, probe_finalists
from tuner.study.race import race
from tuner.study.steps import ExtraRound, Round
from tuner.study.study import Study

DEFAULT = Configuration()
FRAGILE = Configuration.of({"fake.streams": 2})
FIRM = Configuration.of({"fake.layout": "packed"})
BOTH = Configuration.of({"fake.layout": "packed", "fake.streams": 2})
DEFAULT_16 = Configuration.of({"workload.batch": 16})
RATE = {DEFAULT: 0.0, DEFAULT_16: 0.01, FRAGILE: 0.5, FIRM: 0.2, BOTH: 0.505}
KEPT = {
    DEFAULT: math.log(0.4),
    DEFAULT_16: math.log(0.4),
    FRAGILE: math.log(0.05),
    FIRM: math.log(0.4),
    BOTH: math.log(0.4),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def add(
    store: Store,
    configuration: Configuration,
    purpose: Purpose,
    *,
    beside: bool = False,
    kept: Mapping[Configuration, float] = KEPT,
) -> LaunchRecord:
    id = store.next_launch_id()
    rate = RATE[configuration]
    record = LaunchRecord(
        LaunchRequest(id, configuration, 4, purpose),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-rate), id + k / 10) for k in range(4)],
        ending=Ending(Outcome.MEASURED),
        total_s=10.0,
        slicing_s=4.0,
    )
    if beside:
        busy = math.exp(-(rate + kept[configuration]))
        record.contended, record.n_neighbours = [Slice(id * 10 + 5, 1, 1, busy, id + 0.5)], 1
    store.launches[id] = record
    return record


def search(store: Store, *configurations: Configuration) -> None:
    for number, configuration in enumerate(configurations):
        record = add(store, configuration, Purpose.SEARCH)
        ending = Ending(Outcome.MEASURED)
        store.add(TrialNoted(number, configuration, "script", ending, (record.request.id,), 0.0))


class AsWritten(Scripted):
    """A study whose further launches are as is written above."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, purpose, beside=beside)


def robust(store: Store, folder: Path, budget_s: float = 2000.0) -> Study:
    study = new_study(store, folder, budget_s, AsWritten)
    study.evaluation.objective = Objective.of("throughput", goal="robust")
    return study


# ------------------------------------------------------------------------ what is reported


def rounds(
    store: Store,
    winner: Configuration,
    n: int,
    beside: int,
    others: tuple[Configuration, ...] = (),
) -> None:
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, winner))
    store.add(ArmsChosen((winner, *others), None, False, (4,)))
    for number in range(1, n + 1):
        arms = (DEFAULT, winner, *others)
        made = [add(store, c, Purpose.CONFIRM, beside=number <= beside) for c in arms]
        store.add(RoundDone(number, tuple(r.request.id for r in made)))


def test_a_winner_that_collapses_is_flagged(store: Store, tmp_path: Path) -> None:
    rounds(store, FRAGILE, n=5, beside=4)
    claims = make_claims(new_study(store, tmp_path, 2000.0))
    fared = beside_neighbour(claims, FRAGILE)
    assert fared is not None
    assert fared.collapses
    assert fared.kept == pytest.approx(0.05)
    assert fared.speedup == pytest.approx(math.exp(0.5) * 0.05 / 0.4)
    assert fared.interval is not None
    assert (fared.n_rounds, fared.processes) == (4, 1)
    default = beside_neighbour(claims, DEFAULT)
    assert default is not None
    assert default.kept == pytest.approx(0.4)
    assert not default.collapses


def test_a_winner_that_bears_a_neighbour_is_not(store: Store, tmp_path: Path) -> None:
    rounds(store, FIRM, n=4, beside=2)
    fared = beside_neighbour(make_claims(new_study(store, tmp_path, 2000.0)), FIRM)
    assert fared is not None
    assert not fared.collapses
    assert fared.speedup == pytest.approx(math.exp(0.2))
    assert fared.interval is None  # two rounds are no interval


def test_two_rounds_accuse_nobody(store: Store, tmp_path: Path) -> None:
    rounds(store, FRAGILE, n=4, beside=2)
    fared = beside_neighbour(make_claims(new_study(store, tmp_path, 2000.0)), FRAGILE)
    assert fared is not None
    assert fared.speedup < 1
    assert not fared.collapses


def test_where_no_round_had_a_neighbour_nothing_is_said(store: Store, tmp_path: Path) -> None:
    rounds(store, FIRM, n=4, beside=0)
    claims = make_claims(new_study(store, tmp_path, 2000.0))
    assert beside_neighbour(claims, FIRM) is None


class Unlaunched(Bench):
    """A bench whose rounds launch nothing, and note whether they end beside a neighbour."""

    is_beside: bool

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **given: Any
    ) -> list[LaunchRecord]:
        self.is_beside = given["beside_neighbour"]
        return []


def is_beside_neighbour(study: Study, step: Round | ExtraRound) -> bool:
    """Tell whether a round is made, and ends beside a neighbour."""
    study.bench.__class__ = Unlaunched
    assert isinstance(study.bench, Unlaunched)
    return is_granted(study, step) and study.bench.is_beside


def test_claims_rest_on_rounds_without_a_neighbour_and_later_rounds_have_one(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, FIRM)
    study = new_study(store, tmp_path, 2000.0)
    assert not is_beside_neighbour(study, Round([DEFAULT, FIRM], 1, Purpose.CONFIRM))
    assert is_beside_neighbour(study, ExtraRound([DEFAULT, FIRM], 1))


@pytest.mark.parametrize(("n_rounds", "wanted"), [(0, True), (3, True), (4, False)])
def test_where_winners_must_bear_one_the_first_rounds_end_beside_a_neighbour(
    store: Store, tmp_path: Path, n_rounds: int, wanted: bool
) -> None:
    search(store, DEFAULT, FIRM)
    step = Round([DEFAULT, FIRM], n_rounds + 1, Purpose.CONFIRM, n_rounds)
    assert is_beside_neighbour(robust(store, tmp_path), step) is wanted


def test_their_share_of_the_budget_is_kept(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, FIRM)
    study = new_study(store, tmp_path, 400.0)
    step = ExtraRound([DEFAULT, FIRM], 1)
    assert is_beside_neighbour(study, step)
    slow = add(store, FIRM, Purpose.EXPLAIN, beside=True)
    slow.contended = [Slice(99, 1, 1, 15.0, 99.0)]
    assert not is_beside_neighbour(study, step)


# ------------------------------------------------------------------------ --goal robust


def test_a_robust_finalist_does_not_collapse(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, FRAGILE, FIRM)
    study = robust(store, tmp_path)
    assert (
        study.candidates.candidate(WinnerClass.SAME_PRECISION) == FRAGILE
    )  # as long as nothing is known
    carried_out(study, probe_finalists(study))
    assert study.candidates.candidate(WinnerClass.SAME_PRECISION) == FIRM
    assert study.evaluation.row(FIRM).retained is not None
    study.evaluation.objective = Objective.of("throughput")
    study.evaluation.refresh()
    assert study.candidates.candidate(WinnerClass.SAME_PRECISION) == FRAGILE


@pytest.mark.parametrize(("budget_s", "named"), [(2000.0, FIRM), (80.0, FRAGILE)])
def test_the_race_names_no_finalist_that_collapses_where_there_is_time_to_see_it(
    store: Store, tmp_path: Path, budget_s: float, named: Configuration
) -> None:
    search(store, DEFAULT, FRAGILE, FIRM)
    study = robust(store, tmp_path, budget_s)
    carried_out(study, race(study))
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] == named


def test_the_default_may_be_known_at_another_batch(store: Store, tmp_path: Path) -> None:
    """Which batch is its best may change with every launch."""
    search(store, DEFAULT, FRAGILE, FIRM)
    study = robust(store, tmp_path)
    study.evaluation.batches = (4, 16)
    add(store, DEFAULT_16, Purpose.RACE, beside=True)
    add(store, FRAGILE, Purpose.RACE, beside=True)
    study.evaluation.refresh()
    assert study.evaluation.row(FRAGILE).degrades


def test_where_everything_collapses_the_default_is_not_proved(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, FRAGILE)
    study = robust(store, tmp_path)
    carried_out(study, probe_finalists(study))
    assert study.candidates.candidate(WinnerClass.SAME_PRECISION) == DEFAULT
    claim = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert "degrades next to a busy neighbour" in claim.reason


def test_without_time_to_see_it_says_so(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, FRAGILE, FIRM)
    study = robust(store, tmp_path, budget_s=80.0)
    carried_out(study, probe_finalists(study))
    assert any("next to a busy neighbour" in note.text for note in store.all(WarningNoted))


def test_a_setting_that_only_a_neighbour_makes_needed_stays(store: Store, tmp_path: Path) -> None:
    """Without the layout it is as fast, and collapses."""
    search(store, DEFAULT, FRAGILE, FIRM, BOTH)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, winner_class, BOTH))
    add(store, DEFAULT, Purpose.RACE, beside=True)
    study = robust(store, tmp_path)
    carried_out(study, minimise(study))
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] == BOTH


def test_with_the_goal_fastest_it_goes(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, FRAGILE, FIRM, BOTH)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, winner_class, BOTH))
    study = robust(store, tmp_path)
    study.evaluation.objective = Objective.of("throughput")
    study.evaluation.refresh()
    carried_out(study, minimise(study))
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] == FRAGILE


def test_that_there_was_no_time_to_see_every_finalist_beside_a_neighbour_is_said(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, FRAGILE, FIRM)
    study = robust(store, tmp_path, 1.0)
    n_launches = len(store.launches)
    carried_out(study, probe_finalists(study))
    assert len(store.launches) == n_launches
    assert [note.text for note in store.all(WarningNoted)] == [
        "the budget left no time to measure every finalist next to a busy neighbour"
    ]


class WithoutNeighbour(AsWritten):
    """A study on a host on which no neighbour can be started."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, purpose)


def test_where_no_neighbour_can_be_started_it_is_said_once_and_not_tried_again(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, FRAGILE)
    study = new_study(store, tmp_path, 2000.0, WithoutNeighbour)
    study.evaluation.objective = Objective.of("throughput", goal="robust")
    n_launches = len(store.launches)
    carried_out(study, probe_finalists(study))
    assert len(store.launches) == n_launches + 1
    assert [note.text for note in store.all(WarningNoted)] == [
        "default could not be measured next to a busy neighbour"
    ]


def test_where_winners_need_bear_none_nothing_is_launched_beside_one(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, FRAGILE)
    study = new_study(store, tmp_path, 2000.0, AsWritten)
    n_launches = len(store.launches)
    carried_out(study, probe_finalists(study))
    assert not carried_out(study, is_fragile(study, FRAGILE))
    assert len(store.launches) == n_launches


@pytest.mark.parametrize(
    ("shorter", "budget_s", "fragile"),
    [(FRAGILE, 2000.0, True), (FIRM, 2000.0, False), (FIRM, 1.0, True)],
)
def test_a_reduced_finalist_is_fragile_unless_it_was_seen_not_to_collapse(
    store: Store, tmp_path: Path, shorter: Configuration, budget_s: float, fragile: bool
) -> None:
    search(store, DEFAULT, FRAGILE, FIRM)
    add(store, DEFAULT, Purpose.RACE, beside=True)
    study = robust(store, tmp_path, budget_s)
    assert carried_out(study, is_fragile(study, shorter)) is fragile
    if budget_s > 1.0:
        n_launches = len(store.launches)
        assert carried_out(study, is_fragile(study, shorter)) is fragile  # it is known now
        assert len(store.launches) == n_launches
