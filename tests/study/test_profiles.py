"""Who is profiled when, from launches that are written by a script."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.study.studies import BASELINE, is_granted, new_study
from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Profiled, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.forecast import Forecast
from tuner.study.steps import ExtraRound, Round
from tuner.study.study import Study

DEFAULT = Configuration()
SAME, REDUCED = Configuration.of({"fake.streams": 2}), Configuration.of({"fake.precision": "low"})
"""The winner of what keeps the numerics, and the one of all."""
RATES = {DEFAULT: 1.0, BASELINE: 0.2, SAME: 1.2, REDUCED: 1.4}
SLICE_S, LAUNCH_S = 2.0, 10.0
PROFILE_S = 3 * SLICE_S + 2.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        for number, (configuration, rate) in enumerate(RATES.items()):
            id = opened.next_launch_id()
            opened.launches[id] = LaunchRecord(
                LaunchRequest(id, configuration, 4, Purpose.SEARCH),
                prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
                slices=[Slice(4 * id + k, 1, 1, math.exp(-rate), id + k / 4) for k in range(4)],
                ending=Ending(Outcome.MEASURED),
                total_s=LAUNCH_S,
                slicing_s=4 * SLICE_S,
            )
            ending = Ending(Outcome.MEASURED)
            opened.add(TrialNoted(number, configuration, "script", ending, (id,), rate))
        yield opened


def profile(store: Store, *configurations: Configuration) -> None:
    """Write that these were profiled."""
    for record in store.launches.values():
        if record.request.configuration in configurations:
            record.profile = Profiled((), 1.0, 1, "a script", PROFILE_S)


class Unlaunched(Bench):
    """A bench whose rounds launch nothing, and note what they were asked for."""

    asked: dict[str, Any]

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **given: Any
    ) -> list[LaunchRecord]:
        self.asked = {"purpose": purpose, **given}
        return []


def asked_of(study: Study, step: Round | ExtraRound) -> dict[str, Any]:
    """Return what the bench is asked for by a step; nothing where that is refused."""
    study.bench.__class__ = Unlaunched
    assert isinstance(study.bench, Unlaunched)
    return study.bench.asked if is_granted(study, step) else {}


ARMS = [DEFAULT, SAME, REDUCED]


def test_the_confirmation_measures_nothing_that_decides_nothing(
    store: Store, tmp_path: Path
) -> None:
    asked = asked_of(new_study(store, tmp_path, 1e6), Round(ARMS, 1, Purpose.CONFIRM))
    assert not asked["beside_neighbour"]
    assert not asked["profiled"]


def test_after_the_verdict_a_round_tells_where_the_time_goes_and_what_a_neighbour_takes(
    store: Store, tmp_path: Path
) -> None:
    asked = asked_of(new_study(store, tmp_path, 1e6), ExtraRound(ARMS, 1))
    assert asked["purpose"] is Purpose.EXPLAIN
    assert asked["beside_neighbour"]
    assert asked["profiled"] == ARMS


def test_what_was_profiled_is_not_profiled_again(store: Store, tmp_path: Path) -> None:
    profile(store, DEFAULT, REDUCED)
    assert asked_of(new_study(store, tmp_path, 1e6), ExtraRound(ARMS, 1))["profiled"] == [SAME]


def test_the_default_alone_is_profiled_and_needs_no_neighbour(store: Store, tmp_path: Path) -> None:
    asked = asked_of(new_study(store, tmp_path / "a", 1e6), ExtraRound([DEFAULT], 1))
    assert (asked["beside_neighbour"], asked["profiled"]) == (False, [DEFAULT])
    profile(store, DEFAULT)
    assert asked_of(new_study(store, tmp_path / "b", 1e6), ExtraRound([DEFAULT], 1)) == {}


def test_such_a_round_is_made_only_if_it_fits(store: Store, tmp_path: Path) -> None:
    step = ExtraRound(ARMS, 1)
    cost_s = step.cost_s(Forecast(new_study(store, tmp_path / "a", 1e6)))
    assert cost_s > 3 * PROFILE_S
    assert asked_of(new_study(store, tmp_path / "b", cost_s + 60), step)
    assert asked_of(new_study(store, tmp_path / "c", cost_s - 1), step) == {}
