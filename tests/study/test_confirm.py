"""Which arms the confirmation compares, from launches that are written by hand."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.space.spaces import FAKE_DEFAULTS, machine, model, resolved, workload
from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration
from tuner.record.events import Event
from tuner.record.journal import FinalistNamed, Phase, WarningNoted, WinnerClass
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.search.trials import Trials
from tuner.space.baselines import Baseline
from tuner.study.budget import Budget
from tuner.study.confirm import choose_arms
from tuner.study.ledger import Ledger
from tuner.study.study import Study

DEFAULT = Configuration()
BASELINE = Configuration.of({"env.FAKE_THREADS": 4})
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


def study(store: Store, folder: Path, budget_s: float) -> Study:
    host = machine(folder / "machine")
    space = resolved(host, "fake", FAKE_DEFAULTS, "fake")
    ledger = Ledger(store, 4, (4,))
    budget = Budget(budget_s)
    said: list[Event] = []
    facts = model(FAKE_DEFAULTS)
    bench = Bench(store, host, workload("fake"), facts, said.append, session=1, seed=0,
                  seconds_left=budget.left_s)  # fmt: skip
    baselines = [Baseline("vendor", "a guide", BASELINE, True, "", None, ())]
    trials = Trials(folder / "study.db", space, ledger.tried, 0)
    return Study(store, space, baselines, bench, ledger, trials, budget, said.append)


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
    chosen = choose_arms(study(store, tmp_path, budget_s=170))
    assert chosen.arms == (LAUNCH_ONLY, SAME)
    assert chosen.best_baseline is None
    assert any("best baseline" in note.text for note in store.all(WarningNoted))


def test_with_time_for_all_the_baseline_is_confirmed(store: Store, tmp_path: Path) -> None:
    name_finalists(store, SAME)
    chosen = choose_arms(study(store, tmp_path, budget_s=250))
    assert chosen.arms == (LAUNCH_ONLY, SAME, BASELINE)
    assert chosen.best_baseline == BASELINE


def test_a_baseline_that_is_a_finalist_stays(store: Store, tmp_path: Path) -> None:
    name_finalists(store, BASELINE)
    chosen = choose_arms(study(store, tmp_path, budget_s=10))
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
    same = study(store, tmp_path, budget_s=100)
    same.baselines.append(lower)
    same.ledger.refresh()
    assert same.best_baseline() == BASELINE
    same.widest = WinnerClass.REDUCED
    assert same.best_baseline() == lower.configuration
