"""Which removals are believed, from launches that are written by hand or by a script."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner.study.minimise
from tests.study.studies import Scripted, carried_out, new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase, PhaseDone, TrialNoted, WarningNoted
from tuner.record.launch import (
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Purpose,
    ReadBack,
    Slice,
)
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.knobs_of.launch import BATCH
from tuner.study.ablation import awaits_rounds, costly_settings, unjustified_costs
from tuner.study.evaluation import Evaluation
from tuner.study.minimise import launch_due, minimise, why_not
from tuner.study.steps import Launch, Step, TimeShare
from tuner.study.study import Study

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
    store: Store,
    configuration: Configuration,
    log_rate: float,
    unobservable: str = "",
    memory_bytes: int = 0,
    purpose: Purpose = Purpose.SEARCH,
) -> LaunchRecord:
    id, batch = store.next_launch_id(), int(configuration.get(BATCH) or 4)
    echoed = ReadBack(unobservable, 1, None, "environment_only", "nothing shows it")
    read_back = (echoed,) if unobservable else ()
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, batch, purpose),
        prepared=Prepared(0.1, 0.1, 0.5, True, memory_bytes, 0, read_back),
        slices=[Slice(id, batch, 1, batch * math.exp(-log_rate), float(id))],
        ending=Ending(Outcome.MEASURED),
        total_s=10.0,
    )
    return store.launches[id]


def due(store: Store, *, is_expected: bool = True) -> Configuration | None:
    return launch_due(Evaluation(store, 4, (4,)), FULL, SHORTER, TOLERANCE, is_expected=is_expected)


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
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, winner_class, FULL))


def reduced(store: Store, folder: Path, budget_s: float, unobservable: str = "") -> Configuration:
    """Minimise FULL after a search in which the shorter one was lucky: 0.15 above the truth."""
    for number, (configuration, true) in enumerate(TRUE.items()):
        rate = true + (0.15 if configuration == SHORTER else 0.0)
        record = add(store, configuration, rate, unobservable)
        ending = Ending(Outcome.MEASURED)
        store.add(TrialNoted(number, configuration, "script", ending, (record.request.id,), rate))
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, winner_class, FULL))
    study = new_study(store, folder, budget_s, AsWritten)
    carried_out(study, minimise(study))
    return study.candidates.finalists()[WinnerClass.SAME_PRECISION]


def test_one_lucky_launch_takes_no_setting_away(store: Store, tmp_path: Path) -> None:
    assert reduced(store, tmp_path, budget_s=1500.0) == FULL
    assert Evaluation(store, 4, (4,)).n_launches(SHORTER) > 1


def test_the_last_setting_stays_for_the_confirmation_to_judge(store: Store, tmp_path: Path) -> None:
    """None does any good, and the search was lucky with both together."""
    rates = {DEFAULT: 1.0, SHORTER: 1.0, OTHER: 1.001, FULL: 1.004}
    name_finalist(store, rates)
    study = new_study(store, tmp_path, 1500.0, Flat)
    carried_out(study, minimise(study))
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] in (SHORTER, OTHER)


def test_what_does_not_lead_is_confirmed_as_it_is(store: Store, tmp_path: Path) -> None:
    name_finalist(store, {DEFAULT: 1.0, FULL: 0.99})
    before = len(store.launches)
    study = new_study(store, tmp_path, 1500.0, Flat)
    carried_out(study, minimise(study))
    assert study.candidates.finalists()[WinnerClass.SAME_PRECISION] == FULL
    assert len(store.launches) == before


def test_without_the_time_to_make_sure_a_setting_stays(store: Store, tmp_path: Path) -> None:
    assert reduced(store, tmp_path, budget_s=1.0) == FULL
    assert Evaluation(store, 4, (4,)).n_launches(SHORTER) == 1


def test_a_setting_that_nothing_shows_needs_no_second_launch_to_go(
    store: Store, tmp_path: Path
) -> None:
    assert reduced(store, tmp_path, budget_s=1.0, unobservable="fake.streams") == SHORTER


# ---------------------------------------------------------------- what settings cost

MIB = 2**20
BLOCKED = Configuration.of({"fake.layout": "blocked"})


class Priced(Scripted):
    """A study in which a second stream takes three times the memory; it gains `worth`."""

    log_score = 0.0

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add_priced(self.store, configuration, self.log_score)


PRICED = {DEFAULT: 1.0, BLOCKED: 1.1, SHORTER: 1.3, OTHER: 1.0, FULL: 1.3}
"""Rates without the second stream's worth."""


def add_priced(store: Store, configuration: Configuration, log_score: float) -> LaunchRecord:
    has_streams = configuration.get("fake.streams") == 2
    rate = PRICED[configuration] + log_score * has_streams
    return add(store, configuration, rate, memory_bytes=(300 if has_streams else 100) * MIB)


def tell(store: Store, record: LaunchRecord) -> None:
    """Write that a launch was a trial, and that its configuration is the finalist of each class."""
    configuration, number = record.request.configuration, len(store.all(TrialNoted))
    ending, launches = Ending(Outcome.MEASURED), (record.request.id,)
    store.add(TrialNoted(number, configuration, "script", ending, launches, None))
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, winner_class, configuration))


def search(store: Store, *tried: Configuration, log_score: float = 0.0) -> None:
    """Write a search whose last configuration is the finalist of every class."""
    for configuration in tried:
        tell(store, add_priced(store, configuration, log_score))


def minimised(
    store: Store,
    folder: Path,
    budget_s: float = 1.0,
    log_score: float = 0.0,
    refuses: Callable[[Step[Any]], bool] = lambda _: False,
) -> Study:
    """Minimise what the search named; in a second, which is without any further launch."""
    study = new_study(store, folder, budget_s, Priced)
    study.log_score = log_score  # type: ignore[attr-defined]
    carried_out(study, minimise(study), refuses)
    return study


def only_in_shares(monkeypatch: pytest.MonkeyPatch, *granted: int) -> Callable[[Step[Any]], bool]:
    """Return what refuses the launches of all shares but these, by number from 0."""
    shares: list[TimeShare] = []

    class Counted(TimeShare):
        def __init__(self, n: int) -> None:
            super().__init__(n)
            shares.append(self)

    def refuses(step: Step[Any]) -> bool:
        assert isinstance(step, Launch)
        return step.share is not None and shares.index(step.share) not in granted

    monkeypatch.setattr(tuner.study.minimise, "TimeShare", Counted)
    return refuses


def winner_of(study: Study) -> Configuration:
    return study.candidates.finalists()[WinnerClass.SAME_PRECISION]


def test_what_gains_nothing_for_three_times_the_memory_goes_without_any_time_left(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, SHORTER, FULL, log_score=0.01)
    study = minimised(store, tmp_path)
    assert winner_of(study) == SHORTER
    assert why_not(study, FULL) == (
        "fake.streams raises memory from 100 MiB to 300 MiB (+200%), and launches without it do "
        "not prove that it is needed; --accept-cost memory accepts it (a new study)"
    )
    assert store.all(FinalistNamed)[-1].removed == ("fake.streams",)


def test_a_costly_setting_that_is_shown_to_be_needed_stays(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, SHORTER, FULL, log_score=0.2)
    add_priced(store, FULL, log_score=0.2)
    assert winner_of(minimised(store, tmp_path)) == FULL


def test_what_a_single_launch_of_the_finalist_speaks_for_is_left_to_the_rounds(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, SHORTER, FULL, log_score=0.2)
    study = minimised(store, tmp_path)
    assert winner_of(study) == FULL
    assert list(unjustified_costs(study, FULL)) == ["fake.streams"]
    assert not [note.text for note in store.all(WarningNoted) if "not recommended" in note.text]


def test_where_a_removal_was_dropped_early_the_setting_looks_needed(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, BLOCKED, OTHER, log_score=0.3)
    dropped = add_priced(store, SHORTER, log_score=0.0)
    dropped.ending = pruned = Ending(Outcome.PRUNED, "it was slow")
    store.add(TrialNoted(3, SHORTER, "script", pruned, (dropped.request.id,), 0.9))
    search(store, FULL, log_score=0.3)
    study = minimised(store, tmp_path, log_score=0.3)
    assert winner_of(study) == FULL
    assert awaits_rounds(study, FULL)


def test_what_is_costly_is_tried_without_before_anything_else(store: Store, tmp_path: Path) -> None:
    search(store, DEFAULT, BLOCKED, OTHER, FULL)
    n_searched = len(store.launches)
    study = minimised(store, tmp_path, budget_s=3000.0)
    launched = [r.request.configuration for r in store.launches.values()][n_searched:]
    assert launched[0] == SHORTER
    assert winner_of(study) == SHORTER


def test_without_time_to_measure_without_it_something_else_ships(
    store: Store, tmp_path: Path
) -> None:
    """That a second stream takes memory is known from a configuration that is nothing but it."""
    search(store, DEFAULT, BLOCKED, OTHER, FULL, log_score=0.1)
    assert winner_of(minimised(store, tmp_path, log_score=0.1)) == BLOCKED
    (warned,) = [note.text for note in store.all(WarningNoted) if "not recommended" in note.text]
    assert "fake.streams raises memory from about 110 MiB to 300 MiB (+174%)" in warned


def test_what_was_measured_for_a_later_class_stands_in_for_an_earlier_ones_refused_winner(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the classes' shares of the time only those after the first hold another launch."""
    search(store, DEFAULT, BLOCKED, OTHER, FULL)
    # for what is costly, each class has a share and what the others leave
    n_before = 2 * len(WinnerClass)
    refuses = only_in_shares(monkeypatch, n_before + 1, n_before + 2)
    study = minimised(store, tmp_path, 3000.0, refuses=refuses)
    assert study.candidates.finalists()[WinnerClass.REDUCED_PRECISION] == SHORTER
    assert winner_of(study) == SHORTER
    assert store.all(FinalistNamed)[-1].removed == ("fake.streams",)  # it gains nothing
    assert not [note.text for note in store.all(WarningNoted) if "not recommended" in note.text]


@pytest.mark.parametrize(("budget_s", "ships"), [(225.0, FULL), (200.0, OTHER)])
def test_what_is_refused_for_want_of_time_is_proved_in_what_hasty_rounds_leave(
    store: Store, tmp_path: Path, budget_s: float, ships: Configuration
) -> None:
    """Four rounds of the default at 10 s and the finalist at 40 s: 250 s, or 200 s in haste.

    These may take 10 s too long; a launch without the costly setting takes 10 s.
    """
    search(store, DEFAULT, BLOCKED, OTHER, FULL, log_score=0.3)
    for record in store.launches.values():
        if record.request.configuration == FULL:
            record.total_s = 40.0
    study = minimised(store, tmp_path, budget_s, log_score=0.3)
    assert winner_of(study) == ships
    refused = [note.text for note in store.all(WarningNoted) if "not recommended" in note.text]
    assert bool(refused) is (ships != FULL)


@pytest.mark.parametrize(("log_score", "ships"), [(0.8, True), (0.15, False)])
def test_where_a_removal_was_not_measured_the_trials_say_whether_a_setting_pays(
    store: Store, tmp_path: Path, log_score: float, ships: bool
) -> None:
    """A second stream takes 1.3 times the memory."""
    without = ((DEFAULT, 1.0, 100), (BLOCKED, 1.1, 100))
    tried = (*without, (OTHER, 1.0 + log_score, 130), (FULL, 1.1 + log_score, 130))
    for configuration, rate, mib in tried:
        tell(store, add(store, configuration, rate, memory_bytes=mib * MIB))
    study = minimised(store, tmp_path)
    assert (not unjustified_costs(study, FULL)) is ships


def test_of_settings_that_were_always_set_together_the_compiler_is_tried_without_first(
    store: Store, tmp_path: Path
) -> None:
    """A launch without it is short, and says that the other costs nothing."""
    both = Configuration.of({"fake.compile": "fast", "fake.layout": "packed"})
    for _ in range(2):
        tell(store, add(store, DEFAULT, 1.0, memory_bytes=1000 * MIB))
        tell(store, add(store, both, 1.5, memory_bytes=1300 * MIB))
    study = new_study(store, tmp_path, 1.0)
    assert list(costly_settings(study, both)) == ["fake.compile", "fake.layout"]
    tell(store, add(store, SHORTER, 1.1, memory_bytes=1000 * MIB))
    study.evaluation.refresh()
    assert list(costly_settings(study, both)) == ["fake.compile"]
    assert not unjustified_costs(study, both)


def test_what_the_classes_leave_of_their_shares_goes_to_costly_settings_first(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No class's share holds a launch; what is left for the last does."""
    many = FULL.with_value("fake.compile", "fast")
    monkeypatch.setitem(PRICED, many, 1.4)
    monkeypatch.setitem(PRICED, many.without("fake.streams"), 1.4)
    search(store, DEFAULT, BLOCKED, OTHER, log_score=0.3)
    search(store, many, log_score=0.3)
    add_priced(store, many, log_score=0.3)
    n_searched = len(store.launches)
    refuses = only_in_shares(monkeypatch, len(WinnerClass))
    study = minimised(store, tmp_path, budget_s=3000.0, log_score=0.3, refuses=refuses)
    launched = [r.request.configuration for r in store.launches.values()][n_searched:]
    assert launched == [many.without("fake.streams")]
    assert winner_of(study) == many


def test_an_unproven_setting_pays_over_the_best_that_does_without_it(
    store: Store, tmp_path: Path
) -> None:
    """It takes 1.3 times the memory, alone gains nothing, and four others were tried with it."""
    many = FULL.with_value("fake.compile", "fast").with_value("env.FAKE_THREADS", 4)
    many = many.with_value("launch.allocator", "tcmalloc")
    tried = ((DEFAULT, 1.0, 100), (BLOCKED, 1.1, 100), (OTHER, 1.0, 130), (many, 1.6, 130))
    for configuration, rate, mib in tried:
        tell(store, add(store, configuration, rate, memory_bytes=mib * MIB))
    assert winner_of(minimised(store, tmp_path)) == many


def test_a_setting_of_no_price_stays_without_time_to_measure_without_it(
    store: Store, tmp_path: Path
) -> None:
    for configuration, rate in ((DEFAULT, 1.0), (OTHER, 1.1), (FULL, 1.4)):
        tell(store, add(store, configuration, rate, memory_bytes=100 * MIB))
    assert winner_of(minimised(store, tmp_path)) == FULL


def test_that_nothing_works_without_it_shows_that_a_costly_setting_is_needed(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, SHORTER, FULL)
    store.launches[2].ending = Ending(Outcome.CRASHED, "it crashed")
    assert winner_of(minimised(store, tmp_path)) == FULL


def test_what_collapses_beside_a_neighbour_without_it_is_needed_where_that_is_the_goal(
    store: Store, tmp_path: Path
) -> None:
    search(store, DEFAULT, SHORTER, FULL)
    for record, share in zip(store.launches.values(), (0.8, 0.1, 0.8), strict=True):
        seconds = record.slices[0].seconds / share
        record.contended = [msgspec.structs.replace(record.slices[0], seconds=seconds)]
    study = new_study(store, tmp_path, 1.0, Priced)
    assert list(unjustified_costs(study, FULL)) == ["fake.streams"]
    study.evaluation.objective = Objective.of("throughput", goal="robust")
    study.evaluation.refresh()
    assert not unjustified_costs(study, FULL)


def test_what_does_not_lead_ships_nothing_costly_either(store: Store, tmp_path: Path) -> None:
    """The confirmation may find it faster all the same."""
    for configuration, rate, memory in (
        (DEFAULT, 1.31, 100),
        (SHORTER, 1.3, 100),
        (FULL, 1.305, 300),
    ):
        tell(store, add(store, configuration, rate, memory_bytes=memory * MIB))
    assert winner_of(minimised(store, tmp_path)) == SHORTER


# ---------------------------------------------------------------- what is launched, and said

THREADS = Configuration.of({"env.FAKE_THREADS": 4})
MANY = FULL.with_value("env.FAKE_THREADS", 4)


class OnlyTheLayout(Scripted):
    """A study in which the packed layout alone does any good."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, 1.3 if configuration.get("fake.layout") else 1.0)


def why_it_ended(store: Store) -> str:
    (reason,) = [note.reason for note in store.all(PhaseDone) if note.phase is Phase.MINIMISE]
    return reason


def test_all_that_looks_useless_goes_by_one_launch(store: Store, tmp_path: Path) -> None:
    both = OTHER.with_value("env.FAKE_THREADS", 4)
    compiled = Configuration.of({"fake.compile": "fast"})
    packed = compiled.with_value("fake.layout", "packed")
    for configuration in (DEFAULT, OTHER, THREADS, both, compiled, packed, MANY):
        tell(store, add(store, configuration, 1.3 if configuration.get("fake.layout") else 1.0))
    n_searched = len(store.launches)
    study = new_study(store, tmp_path, 1500.0, OnlyTheLayout)
    carried_out(study, minimise(study))
    launched = [r.request.configuration for r in store.launches.values()][n_searched:]
    assert launched[0] == SHORTER
    assert not {MANY.without("fake.streams"), MANY.without("env.FAKE_THREADS")} & {*launched}
    assert winner_of(study) == SHORTER
    assert set(store.all(FinalistNamed)[-1].removed) == {"fake.streams", "env.FAKE_THREADS"}
    assert why_it_ended(store) == "minimal"


def test_that_there_was_no_time_for_every_removal_is_said(store: Store, tmp_path: Path) -> None:
    reduced(store, tmp_path, budget_s=1.0)
    assert why_it_ended(store) == "no time to try every removal"
    warned = [note.text for note in store.all(WarningNoted)]
    assert any("to try without each setting" in text for text in warned)


def test_that_nothing_led_is_said(store: Store, tmp_path: Path) -> None:
    name_finalist(store, {DEFAULT: 1.0, FULL: 0.99})
    study = new_study(store, tmp_path, 1500.0, Flat)
    carried_out(study, minimise(study))
    assert why_it_ended(store) == "nothing led in the search: there was nothing to take away"
    assert not store.all(WarningNoted)


def test_a_refused_finalist_is_not_named(store: Store, tmp_path: Path) -> None:
    """A session that is stopped right after it would go on with what must not ship."""
    search(store, DEFAULT, BLOCKED, OTHER, FULL, log_score=0.1)
    minimised(store, tmp_path, log_score=0.1)
    named = [n for n in store.all(FinalistNamed) if n.phase is Phase.MINIMISE]
    assert sorted((n.winner_class, n.configuration) for n in named) == [
        (WinnerClass.NO_CODE, DEFAULT),
        (WinnerClass.REDUCED_PRECISION, BLOCKED),
        (WinnerClass.SAME_PRECISION, BLOCKED),
    ]


def test_what_a_stopped_session_has_reduced_is_not_reduced_again(
    store: Store, tmp_path: Path
) -> None:
    name_finalist(store, {DEFAULT: 1.0, OTHER: 1.0, FULL: 1.3})
    store.add(FinalistNamed(Phase.MINIMISE, WinnerClass.SAME_PRECISION, FULL, ("fake.compile",)))
    study = new_study(store, tmp_path, 3000.0, OnlyTheLayout)
    carried_out(study, minimise(study))
    named = {n.winner_class: n for n in store.all(FinalistNamed) if n.phase is Phase.MINIMISE}
    same = named[WinnerClass.SAME_PRECISION]
    assert (same.configuration, same.removed) == (FULL, ("fake.compile",))
    assert named[WinnerClass.REDUCED_PRECISION].configuration == SHORTER
    n_launches = len(store.launches)
    carried_out(study, minimise(study))  # it is done
    assert len(store.launches) == n_launches
