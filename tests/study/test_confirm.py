"""Which arms the confirmation compares, from launches that are written by hand."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import BASELINE, new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import FinalistNamed, Phase, WarningNoted, WinnerClass
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.space.baselines import Baseline
from tuner.study.confirm import choose_arms

DEFAULT = Configuration()
LAUNCH_ONLY = Configuration.of({"launch.allocator": "jemalloc"})
SAME = Configuration.of({"fake.layout": "packed"})
LAUNCH_S = 10.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        for configuration, rate in ((DEFAULT, 1.0), (BASELINE, 1.1), (LAUNCH_ONLY, 1.2),
                                    (SAME, 1.3)):  # fmt: skip
            id = opened.next_launch_id()
            record = LaunchRecord(
                LaunchRequest(id, configuration, 4, Purpose.SEARCH),
                prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
                ending=Ending(Outcome.MEASURED),
                total_s=LAUNCH_S,
            )
            record.slices = [
                Slice(id * 10 + k, 1, 1, math.exp(-rate), id + k / 10) for k in range(8)
            ]
            opened.launches[id] = record
        yield opened


def name_finalists(store: Store, same: Configuration) -> None:
    for klass, finalist in (
        (WinnerClass.LAUNCH_ONLY, LAUNCH_ONLY),
        (WinnerClass.SAME, same),
        (WinnerClass.REDUCED, same),
    ):
        store.add(FinalistNamed(Phase.MINIMISE, klass, finalist))


def test_the_baseline_gives_way_where_the_first_look_would_not_fit(
    store: Store, tmp_path: Path
) -> None:
    """Four rounds of four arms take 160 s and a reserve, of three arms 120 s."""
    name_finalists(store, SAME)
    chosen = choose_arms(new_study(store, tmp_path, budget_s=170))
    assert chosen.arms == (LAUNCH_ONLY, SAME)
    assert chosen.best_baseline is None
    assert any("best baseline" in note.text for note in store.all(WarningNoted))


def test_with_time_for_all_the_baseline_is_confirmed(store: Store, tmp_path: Path) -> None:
    name_finalists(store, SAME)
    chosen = choose_arms(new_study(store, tmp_path, budget_s=250))
    assert chosen.arms == (LAUNCH_ONLY, SAME, BASELINE)
    assert chosen.best_baseline == BASELINE


def test_a_baseline_that_is_a_finalist_stays(store: Store, tmp_path: Path) -> None:
    name_finalists(store, BASELINE)
    chosen = choose_arms(new_study(store, tmp_path, budget_s=10))
    assert chosen.arms == (LAUNCH_ONLY, BASELINE)
    assert chosen.best_baseline == BASELINE


def test_a_winner_of_equal_numerics_is_compared_with_baselines_of_equal_numerics(
    store: Store, tmp_path: Path
) -> None:
    """A guide's bf16 is no match for it, however fast."""
    lower = Baseline(
        "low", "a guide", Configuration.of({"fake.precision": "bf16"}), True, "", None, ()
    )
    record = LaunchRecord(
        LaunchRequest(store.next_launch_id(), lower.configuration, 4, Purpose.BASELINE),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        ending=Ending(Outcome.MEASURED),
        slices=[Slice(99, 1, 1, 0.01, 99.0)],
        total_s=LAUNCH_S,
    )
    store.launches[record.request.id] = record
    same = new_study(store, tmp_path, budget_s=100)
    same.baselines.append(lower)
    same.ledger.refresh()
    assert same.best_baseline() == BASELINE
    same.widest = WinnerClass.REDUCED
    assert same.best_baseline() == lower.configuration


@pytest.mark.parametrize(
    ("budget_s", "reserve_s"), [(240.0, 200.0), (700.0, 700 / 3), (900.0, 300.0), (3600.0, 450.0)]
)
def test_cheap_rounds_are_given_the_time_to_decide(
    store: Store, tmp_path: Path, budget_s: float, reserve_s: float
) -> None:
    """A round of four arms is estimated at 50 s: a third of the budget, at least 4, at most 9."""
    name_finalists(store, SAME)
    assert new_study(store, tmp_path, budget_s).reserve_s() == pytest.approx(reserve_s)


def test_a_launch_that_was_cut_short_does_not_make_the_confirmation_free(
    store: Store, tmp_path: Path
) -> None:
    """A killed tool's first launch has no seconds: resumed, the study still plans."""
    store.launches.clear()
    store.launches[1] = LaunchRecord(
        LaunchRequest(1, DEFAULT, 4, Purpose.BASELINE),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        ending=Ending(Outcome.INTERRUPTED),
    )
    assert new_study(store, tmp_path, budget_s=600).reserve_s() > 0
