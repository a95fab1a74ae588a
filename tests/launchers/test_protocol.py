"""The contract of the launch protocol, which processes and recorded launches both keep."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from benchmarks.deck import Deck, DeckSource
from benchmarks.table import Cut, Table, Taken
from tests.command import marked_processes
from tests.launchers.benches import Maker, OfBenches, launcher_of, pids_of
from tests.space.spaces import FAKE_DEFAULTS, model, workload
from tuner.host.identity import probe
from tuner.launchers.clock import VirtualClock
from tuner.launchers.protocol import Launch, Launcher, LauncherSpec
from tuner.launchers.recorded import Played, PlayedSlice, RecordedTestbed
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.record.numerics import Level
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Check
from tuner.record.store import Store

DEFAULT = Configuration()
CRASHING = Configuration.of({"fake.layout": "packed"})
"""It fails at its start."""
WRONG = Configuration.of({"fake.layout": "blocked"})
"""Its outputs are wrong."""
CHECK = Check(8, level=Level.SAME)


class Side(Protocol):
    """An implementation of the protocol, and what a test must do and see behind it."""

    store: Store

    @property
    def launcher(self) -> Launcher: ...
    def kill(self, launch: Launch) -> None:
        """Have a launch die before its next step ends."""

    def works(self) -> bool:
        """Tell whether launches work, or have worked since this was asked before."""


class Processes:
    """Workers that run the fake framework."""

    def __init__(self, bench_of: Maker, seed: str) -> None:
        self._seed = seed
        bench = bench_of(faults="fake.layout=packed:crash;fake.layout=blocked:wrong_output")
        self.store = bench.store
        self.launcher = launcher_of(bench)

    def kill(self, launch: Launch) -> None:
        (pid,) = pids_of(launch)
        os.kill(pid, 9)

    def works(self) -> bool:
        return marked_processes(self._seed) != [OfBenches._seed.pid]


class Dying:
    """A recorded launch that can be killed."""

    def __init__(self, played: Played, is_killed: Callable[[], bool]) -> None:
        self._played = played
        self._is_killed = is_killed
        self.fixed_s, self.check_s = played.fixed_s, played.check_s
        self.failure, self.has_slices = played.failure, played.has_slices
        self.memory_bytes = played.memory_bytes

    def slice(self) -> PlayedSlice | Ending:
        if self._is_killed():
            return Ending(Outcome.CRASHED, "killed by SIGKILL")
        return self._played.slice()


class Recorded:
    """Launches of a table, as a deck deals them; a source that can kill what it dealt."""

    def __init__(self, store: Store) -> None:
        cuts = (Cut(1.0, 100.0), Cut(2.0, 101.0))
        good = Taken(0, 0.0, 3.0, cuts, 0.5, 0.2)
        crashed = Taken(0, 0.0, 2.0, outcome="crashed", reason="SIGSEGV")
        wrong = Taken(0, 0.0, 3.0, cuts, 0.5, 0.2, outcome="wrong_output", reason="drift")
        table = Table(
            "written",
            {"fake.layout": ("plain", "packed", "blocked")},
            {("plain",): DEFAULT, ("packed",): CRASHING, ("blocked",): WRONG},
            {DEFAULT: [good], CRASHING: [crashed], WRONG: [wrong]},
        )
        self._source = DeckSource(Deck(table, 0.0, 0), lambda configuration: configuration)
        self._is_killed = False
        self._seen_s = 0.0
        self.store = store
        spec = LauncherSpec(
            store,
            probe(),
            workload("fake"),
            model(FAKE_DEFAULTS),
            THROUGHPUT,
            lambda _: None,
            session=1,
            draw=random.Random(0),
            seconds_left=lambda: 1e6,
            is_cut=False,
            on_end=lambda _: None,
            complete=lambda taken, _: taken,
        )
        testbed = RecordedTestbed(self, workload("fake").card, model(FAKE_DEFAULTS))
        self.launcher = testbed.launcher(spec)

    @property
    def clock(self) -> VirtualClock:
        return self._source.clock

    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        self._is_killed = False
        played = self._source.launch(configuration, purpose, round_number)
        return Dying(played, lambda: self._is_killed)

    def idle(self) -> tuple[str, ...]:
        return ()

    def kill(self, launch: Launch) -> None:
        self._is_killed = True

    def works(self) -> bool:
        now_s = self.clock.now_s()
        has_moved, self._seen_s = now_s > self._seen_s, now_s
        return has_moved


@pytest.fixture(params=["processes", "recorded"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    if request.param == "processes":
        yield Processes(request.getfixturevalue("bench_of"), request.getfixturevalue("seed"))
    else:
        with Store(tmp_path / "study") as store:
            yield Recorded(store)


def started(side: Side, configuration: Configuration = DEFAULT) -> Launch:
    return side.launcher.start(configuration, Purpose.SEARCH, pacer_block=7, round_number=3)


def take_every_step(launch: Launch) -> None:
    launch.pause()
    launch.take_slice(50, 0.2)
    launch.take_contended_slice(51, 0.2, 1)
    launch.check(CHECK)
    launch.profile(0.1)
    launch.pause()


def test_a_launch_is_started_sliced_paused_checked_and_finished(side: Side) -> None:
    launch = started(side)
    record = launch.record
    assert side.store.launches == {record.request.id: record}
    assert record.request.configuration == DEFAULT
    assert record.request.purpose is Purpose.SEARCH
    assert (record.request.pacer_block, record.request.round) == (7, 3)
    assert record.prepared is not None
    assert (launch.slice_s, record.slices) == (0.0, [])
    fixed_s = launch.fixed_s
    assert fixed_s > 0
    for index in (4, 5):
        launch.pause()
        launch.take_slice(index, 0.2)
    assert [s.index for s in record.slices] == [4, 5]
    assert all(s.rate > 0 and s.batch == record.request.batch for s in record.slices)
    assert launch.slice_s > 0
    launch.pause()
    launch.check(CHECK)
    assert record.check is not None
    went_on = launch.goes_on
    assert launch.finish() is record
    assert (went_on, launch.goes_on) == (True, False)
    assert record.ending == Ending(Outcome.MEASURED)
    assert record.slicing_s == pytest.approx(2 * launch.slice_s)
    assert record.total_s >= fixed_s + record.slicing_s


def test_several_are_started_together_each_as_if_alone(side: Side) -> None:
    other = Configuration.of({"fake.streams": 2})
    given = side.launcher.start_together(
        [DEFAULT, CRASHING], Purpose.SEARCH, pacer_block=7, round_number=3
    )
    good, crashed = given
    assert [launch.record.request.configuration for launch in given] == [DEFAULT, CRASHING]
    for launch in given:
        request = launch.record.request
        assert (request.purpose, request.pacer_block, request.round) == (Purpose.SEARCH, 7, 3)
        assert request.n_companions == 1
    assert good.goes_on
    assert good.record.prepared is not None
    good.take_slice(0, 0.2)
    assert good.finish().ending == Ending(Outcome.MEASURED)
    # it says nothing of the configuration that it failed beside others
    assert crashed.record.ending is not None
    assert crashed.record.ending.outcome is Outcome.INTERRUPTED
    assert crashed.record.slices == []
    assert 1 <= side.launcher.n_together([DEFAULT, other]) <= side.launcher.most_together
    assert side.launcher.n_together([DEFAULT, DEFAULT]) == 1


def fail_at_its_start(side: Side) -> Launch:
    return started(side, CRASHING)


def fail_in_a_slice(side: Side) -> Launch:
    launch = started(side)
    launch.take_slice(0, 0.2)
    launch.pause()
    side.kill(launch)
    launch.take_slice(1, 0.2)
    return launch


def fail_at_the_check(side: Side) -> Launch:
    launch = started(side, WRONG)
    launch.take_slice(0, 0.2)
    launch.check(CHECK)
    return launch


@pytest.mark.parametrize(
    ("fail", "outcome", "n_slices"),
    [
        (fail_at_its_start, Outcome.CRASHED, 0),
        (fail_in_a_slice, Outcome.CRASHED, 1),
        (fail_at_the_check, Outcome.WRONG_OUTPUT, 1),
    ],
)
def test_a_failure_is_a_value(
    side: Side, fail: Callable[[Side], Launch], outcome: Outcome, n_slices: int
) -> None:
    launch = fail(side)
    ending = launch.record.ending
    assert ending is not None
    assert ending.outcome is outcome
    assert ending.reason
    assert not launch.goes_on
    assert len(launch.record.slices) == n_slices
    assert launch.record.total_s > 0
    take_every_step(launch)
    assert launch.finish() is launch.record
    assert launch.record.ending is ending
    assert len(launch.record.slices) == n_slices
    assert started(side).goes_on  # the launcher goes on


def test_what_has_ended_takes_no_further_step(side: Side) -> None:
    launch = started(side)
    launch.take_slice(0, 0.2)
    hopeless = Ending(Outcome.PRUNED, "hopeless")
    record = launch.finish(hopeless)
    side.works()  # what it did until now
    before = (record.total_s, record.slicing_s)
    take_every_step(launch)
    launch.finish(Ending(Outcome.MEASURED))
    assert not side.works()
    assert record.ending is hopeless
    assert (len(record.slices), record.contended, record.check, record.profile) == (
        1,
        [],
        None,
        None,
    )
    assert (record.total_s, record.slicing_s) == before


def test_what_is_closed_works_no_more_and_stays_open_in_the_store(side: Side) -> None:
    launches = [started(side), started(side)]
    launches[0].take_slice(0, 0.2)
    launches[1].pause()
    assert side.works()
    side.launcher.close()
    for launch in launches:
        assert not launch.goes_on
        take_every_step(launch)
        launch.finish()
        assert launch.record.ending is None
    assert not side.works()
    assert [len(launch.record.slices) for launch in launches] == [1, 0]


def test_a_slice_beside_a_neighbour_stands_apart_where_there_is_one(side: Side) -> None:
    launch = started(side)
    launch.take_slice(0, 0.2)
    launch.pause()
    with side.launcher.neighbours() as n:
        if n:
            launch.take_contended_slice(1, 0.2, n)
    assert launch.goes_on
    assert launch.record.n_neighbours == n
    assert [s.index for s in launch.record.contended] == ([1] if n else [])
    assert [s.index for s in launch.record.slices] == [0]


def test_what_can_be_profiled_tells_where_its_time_goes(side: Side) -> None:
    launch = started(side)
    launch.profile(0.1)
    assert launch.goes_on
    assert (launch.record.profile is not None) is side.launcher.can_profile


def test_whether_launches_fit_side_by_side_is_asked_of_what_they_held(side: Side) -> None:
    record = started(side).record
    assert side.launcher.fit([record, record])
