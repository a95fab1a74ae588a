"""Who is profiled when, from launches that are written by a script."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.study.studies import BASELINE, is_granted, new_study
from tuner.measurement.bench import Bench
from tuner.measurement.confirmation import FIRST_LOOK
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Profiled, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.forecast import Forecast
from tuner.study.planner import Planner
from tuner.study.steps import Round
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
    """A bench whose rounds launch nothing, and note what they were to profile."""

    to_profile: list[Configuration]

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **given: Any
    ) -> list[LaunchRecord]:
        self.to_profile = given["profiled"]
        return []


def profiled_in_a_round(study: Study, arms: list[Configuration]) -> list[Configuration]:
    """Return what the first round of the confirmation is to profile."""
    study.bench.__class__ = Unlaunched
    assert is_granted(study, Round(arms, 1, Purpose.CONFIRM))
    assert isinstance(study.bench, Unlaunched)
    return study.bench.to_profile


@pytest.mark.parametrize(
    ("spare_s", "profiled"),
    [
        (4 * PROFILE_S, [DEFAULT, SAME, REDUCED]),
        (2.5 * PROFILE_S, [DEFAULT, SAME]),  # what ships by default
        (1.5 * PROFILE_S, []),
    ],
)
def test_profiles_take_what_the_first_look_leaves(
    store: Store, tmp_path: Path, spare_s: float, profiled: list[Configuration]
) -> None:
    arms = [DEFAULT, SAME, REDUCED, BASELINE]
    looking_s = FIRST_LOOK * new_study(store, tmp_path / "a", 1e6).costs.round_s(arms)
    study = new_study(store, tmp_path / "b", looking_s + spare_s)
    assert profiled_in_a_round(study, arms) == profiled


def test_what_was_profiled_is_not_profiled_again(store: Store, tmp_path: Path) -> None:
    profile(store, DEFAULT, REDUCED)
    study = new_study(store, tmp_path, 1e6)
    assert profiled_in_a_round(study, [DEFAULT, SAME, REDUCED]) == [SAME]


@pytest.mark.parametrize(
    ("budget_s", "kept_s"),
    [
        (1000.0, 2 * PROFILE_S),  # of the default and of what ships
        (300.0, 0.0),  # too much of so small a budget
    ],
)
def test_the_search_leaves_time_for_two_profiles(
    store: Store, tmp_path: Path, budget_s: float, kept_s: float
) -> None:
    study = new_study(store, tmp_path, budget_s)
    assert Forecast(study).profiling_s() == pytest.approx(2 * PROFILE_S)
    before_s = Planner(study).after_search_s(LAUNCH_S)
    profile(store, DEFAULT, SAME)
    assert Forecast(study).profiling_s() == 0.0
    assert before_s - Planner(study).after_search_s(LAUNCH_S) == pytest.approx(kept_s)
