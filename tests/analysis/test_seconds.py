"""Where the wall clock of a study went, from lines that are written by hand."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tuner.analysis.seconds import seconds_by_phase
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    Phase,
    PhaseDone,
    SliceTaken,
    Started,
    StudyOpened,
    Waited,
    WarningNoted,
)
from tuner.record.launch import (
    Built,
    Checked,
    Compiled,
    Interference,
    LaunchRequest,
    Prepared,
    Profiled,
    Purpose,
    Slice,
)
from tuner.record.outcome import Ending, Outcome
from tuner.record.output_check import OutputCheck
from tuner.record.store import LaunchFile, Store
from tuner.record.study_stats import BEFORE

BUILT = Built(1.0, 0.5, {})
PREPARED = Prepared(6.0, 0.5, 2.0, True, 0, 0, ())
CHECKED = Checked(OutputCheck(0.0, 32), 0.7)
QUIET, BUSY = Interference(), Interference(foreign=0.5, dirty=("others",))


class Clock:
    """What a store writes on its lines."""

    now_s = 0.0

    def at(self, seconds: float) -> None:
        self.now_s = seconds

    def used_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        opened.used_s = clock.used_s
        opened.add(StudyOpened("identity", {}, "2026-11-22", "0"))
        yield opened


def launch(store: Store, purpose: Purpose = Purpose.SEARCH) -> LaunchFile:
    return store.open_launch(LaunchRequest(store.next_launch_id(), Configuration(), 4, purpose))


def taken(
    store: Store, seconds: float, interference: Interference = QUIET, n_neighbours: int = 0
) -> SliceTaken:
    index = store.next_slice_index()
    return SliceTaken(Slice(index, 4, 1, seconds, float(index), interference), n_neighbours)


def spent(store: Store, wall_s: float) -> dict[str, dict[str, float]]:
    """Return what is not 0, by phase, after a look at the sum."""
    rows = [msgspec.structs.asdict(row) for row in seconds_by_phase(store, wall_s)]
    found = {row.pop("phase"): {k: v for k, v in row.items() if v} for row in rows}
    assert list(found) == [BEFORE, *(phase for phase in Phase if phase is not Phase.DESIGN)]
    assert all(v > 0 for row in found.values() for v in row.values())
    assert sum(sum(row.values()) for row in found.values()) == pytest.approx(wall_s)
    return {phase: row for phase, row in found.items() if row}


def test_every_second_stands_once_where_it_went(store: Store, clock: Clock) -> None:
    clock.at(3.0)
    first = launch(store)
    clock.at(4.0)
    first.add(Started(1.0))
    clock.at(5.5)
    first.add(BUILT)
    clock.at(13.75)
    first.add(PREPARED)
    clock.at(14.75)
    first.add(taken(store, 0.5, BUSY))
    clock.at(16.75)
    store.add(Waited(2.0, "others", is_quiet=True))
    clock.at(17.25)
    first.add(taken(store, 0.5))
    clock.at(18.0)
    first.add(taken(store, 0.5, n_neighbours=2))
    clock.at(18.75)
    first.add(CHECKED)
    clock.at(19.0)
    first.add(Profiled((), 0.5, 1, "", 0.25))
    clock.at(19.5)
    first.end(Ending(Outcome.MEASURED), 14.0, 1.0)
    clock.at(20.0)
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    assert spent(store, 21.0) == {
        BEFORE: {"own": 3.0},
        "baselines": {
            "start_up": 1.0, "imports": 1.0, "build": 0.5, "first_call": 6.0, "warm_up": 2.25,
            "disturbed": 0.5, "waiting": 2.0, "scored": 0.5, "neighbour": 0.5, "check": 0.75,
            "discarded": 0.75, "profile": 0.25, "ending": 0.5, "own": 0.5,
        },
        "explain": {"own": 1.0},
    }  # fmt: skip


def test_launches_that_are_prepared_side_by_side_share_the_wall_clock(
    store: Store, clock: Clock
) -> None:
    """Each tells six seconds of a first call; eight passed, and no more are counted."""
    one, other = launch(store), launch(store)
    for file, at_s in ((one, 7.0), (other, 8.0)):
        clock.at(at_s)
        file.add(PREPARED)
    store.add(PhaseDone(Phase.BASELINES, ""))
    assert spent(store, 8.0)["baselines"] == {"first_call": 7.0, "warm_up": 1.0}


def test_a_first_call_that_has_its_own_line_ends_there(store: Store, clock: Clock) -> None:
    one, other = launch(store), launch(store)
    for file, at_s in ((one, 4.0), (other, 7.0)):
        clock.at(at_s)
        file.add(Compiled(6.0))
    for file, at_s in ((one, 7.5), (other, 8.0)):
        clock.at(at_s)
        file.add(PREPARED)
    store.add(PhaseDone(Phase.BASELINES, ""))
    assert spent(store, 8.0)["baselines"] == {"first_call": 7.0, "warm_up": 1.0}


def test_what_is_proposed_and_paced_stands_in_its_phase(store: Store, clock: Clock) -> None:
    pacer = launch(store, Purpose.PACER)
    clock.at(1.0)
    store.add(PhaseDone(Phase.BASELINES, ""))
    clock.at(4.0)
    searched = launch(store)
    clock.at(5.0)
    pacer.add(taken(store, 0.75, BUSY))
    clock.at(6.0)
    searched.end(Ending(Outcome.CRASHED, "at its first call"), 1.0, 0.0)
    store.add(PhaseDone(Phase.EXPLORE, ""))
    assert spent(store, 6.0) == {
        "baselines": {"own": 1.0},
        "explore": {"own": 3.0, "pacer": 0.75, "discarded": 0.25, "ending": 1.0},
    }


def test_a_resumed_study_goes_on_with_its_seconds(store: Store, clock: Clock) -> None:
    clock.at(2.0)
    killed = launch(store)
    clock.at(5.0)
    killed.add(Started(3.0))
    store.close()
    with Store(store.folder) as resumed:
        assert resumed.used_before_s == 5.0
        resumed.used_s = clock.used_s
        clock.at(6.5)
        resumed.add(WarningNoted("the host is shaky"))
        clock.at(7.0)
        resumed.add(PhaseDone(Phase.BASELINES, ""))
        assert spent(resumed, 7.0) == {
            BEFORE: {"own": 2.0},
            "baselines": {"start_up": 3.0, "own": 2.0},
        }
