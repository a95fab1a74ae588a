"""What settings are worth, from launches that are written by hand or by a script."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.study.studies import carried_out, new_study
from tuner.analysis.winners import contributions
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    AblationRound,
    ArmsChosen,
    FinalistNamed,
    Phase,
    PhaseDone,
    RoundDone,
)
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.result import Contribution
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.explain import explain
from tuner.study.study import Study

DEFAULT = Configuration()
LAYOUT = Configuration.of({"fake.layout": "packed"})
STREAMS = Configuration.of({"fake.streams": 2})
WINNER = Configuration.of({"fake.layout": "packed", "fake.streams": 2})
TRUE = {DEFAULT: 0.0, LAYOUT: 0.3, STREAMS: 0.1, WINNER: 0.4}
LAUNCH_S = 10.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        for configuration in TRUE:
            add(opened, configuration, Purpose.SEARCH)
        yield opened


RANDOM = np.random.default_rng(6)


def add(store: Store, configuration: Configuration, purpose: Purpose, fails: bool = False) -> int:
    id = store.next_launch_id()
    rate = TRUE[configuration] + RANDOM.normal(0, 0.005)
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, purpose),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-rate), id + k / 10) for k in range(4)],
        ending=Ending(Outcome.CRASHED, "it crashed") if fails else Ending(Outcome.MEASURED),
        total_s=LAUNCH_S,
    )
    return id


def confirm(store: Store, *arms: Configuration) -> None:
    """Write four rounds in which the winner is confirmed, beside other arms."""
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, WINNER))
    store.add(ArmsChosen((WINNER, *arms), None, False, (4,)))
    for number in range(1, 5):
        launches = tuple(add(store, c, Purpose.CONFIRM) for c in (DEFAULT, WINNER, *arms))
        store.add(RoundDone(number, launches))
    store.add(PhaseDone(Phase.CONFIRM, "decided"))


class ScriptedBench:
    """Measures rounds as they are true."""

    memory_bytes = 16.0 * 2**30

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rounds: list[list[Configuration]] = []
        self.beside: list[list[Configuration]] = []
        """Those that end beside a neighbour."""
        self.profiled: list[Configuration] = []
        self.failing: Configuration | None = None

    def measure_round(
        self,
        arms: list[Configuration],
        number: int,
        purpose: Purpose,
        *,
        beside_neighbour: bool = False,
        profiled: Sequence[Configuration] = (),
        **_: object,
    ) -> list[LaunchRecord]:
        assert purpose is Purpose.EXPLAIN
        self.profiled += profiled
        if beside_neighbour:
            self.beside.append(arms)
        elif not profiled:
            self.rounds.append(arms)
        ids = [add(self.store, arm, purpose, fails=arm == self.failing) for arm in arms]
        return [self.store.launches[i] for i in ids]

    def may_profile(self, configuration: Configuration) -> bool:
        return configuration not in self.profiled


def explained(
    store: Store, folder: Path, budget_s: float, failing: Configuration | None = None
) -> tuple[Study, list[list[Configuration]]]:
    study = new_study(store, folder, budget_s)
    bench = ScriptedBench(store)
    bench.failing = failing
    study.bench = bench  # type: ignore[assignment]
    carried_out(study, explain(study))
    return study, bench.rounds


def log_score(found: list[Contribution]) -> dict[str, tuple[float, int]]:
    return {c.knob: (math.log(c.ratio), c.n_rounds) for c in found}


def test_each_setting_is_worth_what_is_lost_without_it(store: Store, tmp_path: Path) -> None:
    confirm(store)
    study, rounds = explained(store, tmp_path, budget_s=1000.0)
    assert study.bench.profiled == [DEFAULT, WINNER]  # type: ignore[attr-defined]
    beside: list[list[Configuration]] = study.bench.beside  # type: ignore[attr-defined]
    assert beside == [[DEFAULT, WINNER]] * 4  # after the verdict
    assert len(rounds) == 4
    (phase,) = [n for n in store.all(PhaseDone) if n.phase is Phase.EXPLAIN]
    assert phase.reason == "every setting of the winners was measured"
    assert all(set(arms) == {WINNER, LAYOUT, STREAMS} for arms in rounds)
    found = contributions(study, WINNER)
    assert [c.knob for c in found] == ["fake.layout", "fake.streams"]  # the most first
    values = log_score(found)
    assert values["fake.layout"] == pytest.approx((0.3, 4), abs=0.03)
    assert values["fake.streams"] == pytest.approx((0.1, 4), abs=0.03)
    assert all(c.speedup and c.speedup.low < c.ratio < c.speedup.high for c in found)


def test_without_time_the_searchs_launches_tell(store: Store, tmp_path: Path) -> None:
    confirm(store)
    study, rounds = explained(store, tmp_path, budget_s=1.0)
    assert rounds == []
    found = contributions(study, WINNER)
    assert log_score(found)["fake.layout"] == pytest.approx((0.3, 0), abs=0.03)
    assert all(c.speedup is None for c in found)  # a hint has no interval
    (phase,) = [n for n in store.all(PhaseDone) if n.phase is Phase.EXPLAIN]
    assert phase.reason == "the budget left no time for all"


def test_what_the_confirmation_compared_is_its_own_interval(store: Store, tmp_path: Path) -> None:
    confirm(store, LAYOUT)
    study, _ = explained(store, tmp_path, budget_s=1.0)
    values = log_score(contributions(study, WINNER))
    assert values["fake.streams"] == pytest.approx((0.1, 4), abs=0.03)
    assert values["fake.layout"][1] == 0


def test_a_stopped_explanation_goes_on_where_it_was(store: Store, tmp_path: Path) -> None:
    confirm(store)
    for _ in range(3):
        launches = tuple(add(store, c, Purpose.EXPLAIN) for c in (WINNER, LAYOUT, STREAMS))
        store.add(AblationRound(WINNER, launches))
    _, rounds = explained(store, tmp_path, budget_s=1000.0)
    assert len(rounds) == 1


def test_a_setting_without_which_it_fails_has_no_worth(store: Store, tmp_path: Path) -> None:
    confirm(store)
    study, _ = explained(store, tmp_path, budget_s=1000.0, failing=LAYOUT)
    assert set(log_score(contributions(study, WINNER))) == {"fake.layout"}


def test_where_nothing_is_faster_nothing_is_explained(store: Store, tmp_path: Path) -> None:
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, DEFAULT))
    study, rounds = explained(store, tmp_path, budget_s=1000.0)
    assert rounds == []
    assert study.bench.beside == []  # type: ignore[attr-defined]
    assert study.bench.profiled == [DEFAULT]  # type: ignore[attr-defined]
    assert store.all(PhaseDone)[-1].reason == "there is no winner"
