"""Who is profiled when, from launches that are written by a script."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import BASELINE, new_study
from tuner.measurement.confirmation import FIRST_LOOK
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Profiled, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.profiles import to_profile
from tuner.study.schedule import Schedule

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
    assert to_profile(study, arms, 0) == profiled


def test_what_was_profiled_is_not_profiled_again(store: Store, tmp_path: Path) -> None:
    profile(store, DEFAULT, REDUCED)
    study = new_study(store, tmp_path, 1e6)
    assert to_profile(study, [DEFAULT, SAME, REDUCED], 0) == [SAME]


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
    assert Schedule(study).phases.profiling_s() == pytest.approx(2 * PROFILE_S)
    before_s = Schedule(study).after_search_s(LAUNCH_S)
    profile(store, DEFAULT, SAME)
    assert Schedule(study).phases.profiling_s() == 0.0
    assert before_s - Schedule(study).after_search_s(LAUNCH_S) == pytest.approx(kept_s)
