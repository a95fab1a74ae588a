"""Launches that are prepared side by side: what is measured is measured alone."""

import time
from pathlib import Path

import msgspec
import pytest

from tests.launchers.benches import Maker, launcher_of, limit_memory, pids_of
from tuner.measurement.bench import Bench
from tuner.measurement.replication import CONFIRM, SEARCH, Scatter
from tuner.record.configuration import Configuration
from tuner.record.events import Event, LaunchStage
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.lines import LaunchFileLine
from tuner.record.outcome import Ending, Outcome

NOISE = Scatter(0.02, 0.01)
DEFAULT = Configuration()
PACKED = Configuration.of({"fake.layout": "packed"})
STREAMS = Configuration.of({"fake.streams": 2})
SLOW = "fake.streams=2:slow_start"
"""The other is beside one that starts slowly, whatever the host does."""


@pytest.fixture
def company_of(bench_of: Maker, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """Make benches on which two may be prepared side by side, however many cores there are."""
    from tuner.launchers.processes import ProcessLauncher

    monkeypatch.setattr(ProcessLauncher, "most_together", 2)

    def make(faults: str = SLOW) -> Bench:
        bench = bench_of(faults=faults)
        bench.measure(DEFAULT, Purpose.BASELINE, noise=NOISE)
        return bench

    return make


def several(bench: Bench, *arms: Configuration) -> list[LaunchRecord]:
    return bench.measure_several(arms, Purpose.SEARCH, noise=NOISE)


def lines_of(bench: Bench, record: LaunchRecord) -> dict[str, float]:
    """Return when each kind of line of a launch was stored first."""
    text = bench.store.log_of(record.request.id).with_suffix(".jsonl").read_text()
    decode = msgspec.json.Decoder(LaunchFileLine).decode
    found: dict[str, float] = {}
    for line in map(decode, text.splitlines()):
        found.setdefault(type(line.note).__name__, line.used_s)
    return found


def on_a_clock(bench: Bench) -> Bench:
    began = time.monotonic()
    bench.store.used_s = lambda: time.monotonic() - began
    return bench


def test_two_are_prepared_side_by_side_and_measured_one_after_another(company_of: Maker) -> None:
    bench = on_a_clock(company_of())
    records = several(bench, PACKED, STREAMS)
    assert [r.request.configuration for r in records] == [PACKED, STREAMS]
    assert [r.request.n_companions for r in records] == [1, 1]
    for record in records:
        assert record.ending == Ending(Outcome.MEASURED)
        assert len(record.slices) >= SEARCH.least
    first, second = (lines_of(bench, record) for record in records)
    assert first["LaunchOpened"] < second["LaunchOpened"] < first["Built"] < second["Built"]
    # nothing was measured before both were prepared, and the second after the first had ended
    assert max(first["Prepared"], second["Prepared"]) < first["SliceTaken"]
    assert first["LaunchEnded"] < second["SliceTaken"]


def test_they_wait_stopped_until_their_turn(company_of: Maker) -> None:
    bench = company_of()
    launches = launcher_of(bench).start_together([PACKED, STREAMS], Purpose.SEARCH)
    states = []
    for launch in launches:
        (pid,) = pids_of(launch)
        states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    assert states == ["T", "T"]


def test_the_seconds_of_all_launches_are_those_of_the_wall_clock(company_of: Maker) -> None:
    bench = company_of()
    bench.pacer.retire()
    began = time.monotonic()
    records = bench.measure_round([PACKED, STREAMS], 1, Purpose.CONFIRM, noise=NOISE)
    wall_s = time.monotonic() - began
    charged_s = sum(r.total_s for r in records)
    assert charged_s <= wall_s
    # each alone took longer than its share: the sum of what the two tell is more than the clock's
    apart_s = sum(r.built.build_s for r in records if r.built)
    assert all(r.total_s > r.slicing_s for r in records)
    assert charged_s > apart_s / 2


@pytest.mark.parametrize("in_round", [False, True])
def test_one_that_dies_beside_others_is_launched_again_alone(
    company_of: Maker, started: None, in_round: bool
) -> None:
    """It knows the others by their command lines, which forks of one seed do not have."""
    bench = company_of(f"fake.layout=packed:crowded;{SLOW}")
    if in_round:
        bench.pacer.retire()
        records = bench.measure_round([PACKED, STREAMS], 1, Purpose.CONFIRM, noise=NOISE)
    else:
        records = several(bench, PACKED, STREAMS)
    assert [r.ending for r in records] == [Ending(Outcome.MEASURED)] * 2
    assert [r.request.n_companions for r in records] == [0, 1]
    assert all(len(r.slices) >= (CONFIRM if in_round else SEARCH).least for r in records)
    (died,) = [
        r
        for r in bench.store.launches.values()
        if r.request.configuration == PACKED and r is not records[0]
    ]
    assert died.ending is not None
    assert died.ending.outcome is Outcome.INTERRUPTED
    said = "crashed while 1 other was prepared beside it: killed by SIGKILL"
    assert died.ending.reason.startswith(said)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("crash", Outcome.CRASHED),
        ("exit", Outcome.CRASHED),
        ("exception", Outcome.CRASHED),
        ("memory", Outcome.OUT_OF_MEMORY),
    ],
)
def test_one_that_dies_alone_as_well_has_that_outcome(
    company_of: Maker, fault: str, outcome: Outcome
) -> None:
    bench = company_of(f"fake.layout=packed:{fault};{SLOW}")
    failed, other = several(bench, PACKED, STREAMS)
    assert failed.ending is not None
    assert failed.ending.outcome is outcome
    assert failed.request.n_companions == 0
    assert other.ending == Ending(Outcome.MEASURED)


def test_a_hang_beside_another_is_timed_out_alone(
    company_of: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.launchers import processes as module
    from tuner.launchers.process_launch import Timeouts

    bench = company_of("fake.layout=packed:hang")
    bench.pacer.block()
    monkeypatch.setattr(module, "Timeouts", lambda *_: Timeouts(1.0, 1.0, 1.0))
    hanging, other = several(bench, PACKED, STREAMS)
    assert hanging.ending is not None
    assert hanging.ending.outcome is Outcome.TIMED_OUT
    assert other.ending == Ending(Outcome.MEASURED)


def test_settings_that_have_no_meaning_need_no_second_try(company_of: Maker) -> None:
    bench = company_of(f"fake.layout=packed:ignored;{SLOW}")
    ignored, other = several(bench, PACKED, STREAMS)
    assert ignored.ending is not None
    assert ignored.ending.outcome is Outcome.NOT_APPLICABLE
    assert ignored.request.n_companions == 1
    assert other.ending == Ending(Outcome.MEASURED)


def test_a_wrong_output_in_company_is_one(company_of: Maker) -> None:
    bench = company_of(f"fake.layout=packed:wrong_output;{SLOW}")
    wrong, _ = several(bench, PACKED, STREAMS)
    assert wrong.ending is not None
    assert wrong.ending.outcome is Outcome.WRONG_OUTPUT


def test_two_launches_of_one_configuration_are_never_prepared_together(company_of: Maker) -> None:
    bench = company_of()
    assert launcher_of(bench).n_together([PACKED, PACKED, STREAMS]) == 1
    assert [r.request.n_companions for r in several(bench, PACKED, PACKED)] == [0, 0]


def test_no_more_are_prepared_together_than_there_are_cores_for(company_of: Maker) -> None:
    launcher = launcher_of(company_of())
    assert launcher.n_together([PACKED]) == 1
    assert launcher.n_together([DEFAULT, PACKED, STREAMS]) == 2
    team = Configuration.of({"launch.instances": 2})
    assert launcher.n_together([team, PACKED]) == 1
    assert launcher.n_together([PACKED, team]) == 1


def test_what_measures_itself_while_it_compiles_is_prepared_alone(company_of: Maker) -> None:
    launcher = launcher_of(company_of())
    tuning = Configuration.of({"torch.compile.max_autotune": True})
    assert launcher.n_together([PACKED, tuning]) == 1
    assert launcher.n_together([tuning, PACKED]) == 1
    quiet = Configuration.of({"torch.compile.max_autotune": False})
    assert launcher.n_together([quiet, PACKED]) == 2


def test_no_more_are_prepared_together_than_memory_bears(company_of: Maker) -> None:
    bench = company_of()
    launcher = launcher_of(bench)
    (peak,) = {
        r.prepared.memory_peak_bytes
        for r in bench.store.launches.values()
        if r.prepared and r.request.purpose is Purpose.BASELINE
    }
    held = sum(
        r.record.prepared.memory_private_bytes for r in launcher.running if r.record.prepared
    )
    limit_memory(bench, (held + 2.5 * peak) / 0.9)
    assert launcher.n_together([PACKED, STREAMS]) == 2
    limit_memory(bench, (held + 1.5 * peak) / 0.9)
    assert launcher.n_together([PACKED, STREAMS]) == 1


def test_before_anything_is_known_of_memory_each_is_prepared_alone(bench_of: Maker) -> None:
    assert launcher_of(bench_of()).n_together([PACKED, STREAMS]) == 1


def test_what_is_raised_while_they_are_prepared_leaves_nothing(bench_of: Maker) -> None:
    def heard(event: Event) -> None:
        if isinstance(event, LaunchStage) and event.stage == "building" and event.launch == 2:
            raise OSError("the disk is full")

    bench = bench_of(listen=heard, faults="fake.layout=packed:slow_start")
    with pytest.raises(OSError, match="disk is full"):
        launcher_of(bench).start_together([PACKED, STREAMS], Purpose.SEARCH)
