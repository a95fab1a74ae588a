"""The recorder: a whole space of the fake framework, in real processes."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.record import (
    BEST_LAUNCHES,
    PASSES,
    Sketch,
    due,
    empty_table,
    plan_of,
    record,
    sketches,
)
from benchmarks.table import Cut, Taken, read_table
from tests.benchmarks.tables import recorded
from tests.command import HANGS_S
from tests.space.spaces import defaults_on, machine, model

ROOT = Path(__file__).parents[2]
SMALL = Sketch(
    title="two settings",
    model="fake",
    framework="fake",
    hardware="fake",
    batch=4,
    set={"env.FAKE_THREADS": [4], "fake.layout": ["packed"]},
)


@pytest.mark.slow
def test_a_recording_goes_on_where_it_was_stopped_until_nothing_is_missing(
    tmp_path: Path,
) -> None:
    assert not record("small", SMALL, tmp_path, minutes=0.02)
    begun = read_table(tmp_path / "small.json.gz")
    n_begun = sum(len(launches) for launches in begun.launches.values())
    assert 0 < n_begun < 4 * PASSES
    for _ in range(20):
        if record("small", SMALL, tmp_path, minutes=0.5):
            break
    whole = read_table(tmp_path / "small.json.gz")
    assert {len(launches) for launches in whole.launches.values()} == {BEST_LAUNCHES}
    assert len(whole.launches) == 4
    for configuration, launches in begun.launches.items():
        assert whole.launches[configuration][: len(launches)] == launches
    assert whole.recording is not None
    n_sessions = len(whole.recording.pacer)
    assert n_sessions == len(whole.recording.dates) >= 2
    for launches in whole.launches.values():
        for taken in launches:
            assert taken.outcome == "measured"
            assert taken.fixed_s > 0
            pacer = whole.recording.pacer[taken.session]
            first, last = taken.slices[0].at_s, taken.slices[-1].at_s
            assert any(c.at_s <= first for c in pacer)
            assert any(c.at_s >= last for c in pacer)
    assert record("small", SMALL, tmp_path, minutes=0.1)  # and then does nothing


@pytest.mark.slow
def test_a_changed_space_is_not_mixed_with_what_was_recorded(tmp_path: Path) -> None:
    record("small", SMALL, tmp_path, minutes=0.05)
    other = Sketch("t", "fake", "fake", "fake", batch=4, set={"env.FAKE_THREADS": [8]})
    with pytest.raises(SystemExit, match="space changed since it was begun"):
        record("small", other, tmp_path, minutes=0.05)


@pytest.mark.parametrize("name", sketches())
def test_a_sketch_holds_what_it_names_and_is_small_enough(
    tmp_path: Path, described_once: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On a described host with every library, as small as those that record."""
    host, sketch = machine(tmp_path, cores=2), sketches()[name]
    host = replace(host, libraries={**host.libraries, "mimalloc": "/usr/lib/libmimalloc.so.2"})
    facts = model(defaults_on(host, sketch.framework))
    monkeypatch.setattr("tuner.app.plan.describe_model", lambda *_: facts)
    table = empty_table(name, sketch, plan_of(sketch, host), host)
    assert 96 <= len(table.launches) <= 200
    assert set(table.knobs) <= {*sketch.set, "workload.batch"}


def test_what_cannot_be_recorded_here_is_said_in_a_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.record", "nothing", "--folder", tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "nothing" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_passes_come_one_after_the_other_and_then_the_best_again() -> None:
    table = recorded(n_launches=0)
    taken = Taken(0, 0.0, 1.0, (Cut(0.0, 1.0),))
    launched = []
    for configuration in due(table):
        launched.append(configuration)
        table.launches[configuration].append(taken)
    n = len(table.launches)
    assert set(launched[:n]) == set(table.launches)
    assert set(launched[n : 2 * n]) == set(table.launches)
    assert launched[:n] != launched[n : 2 * n]
    counts = sorted(len(launches) for launches in table.launches.values())
    assert counts == [PASSES] * (n - 15) + [BEST_LAUNCHES] * 15


@pytest.mark.slow
def test_a_memory_limit_makes_a_launch_fail_for_real_and_is_lifted_again(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    sketch = Sketch(
        "t", "fake", "fake", "fake", batch=4, memory_gib=64.0, set={"env.FAKE_THREADS": [4]}
    )
    record("small", sketch, tmp_path, minutes=0.02)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.slow
def test_a_signal_ends_it_after_the_present_launch(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[small]\ntitle = "t"\nmodel = "fake"\nframework = "fake"\nhardware = "fake"\nbatch = 4\n'
        "set = {'env.FAKE_THREADS' = [4], 'fake.layout' = ['packed']}\n"
    )
    recorder = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.record", "small", "--folder", tmp_path,
         "--spaces", tmp_path / "mine.toml", "--minutes", "1"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    path = tmp_path / "small.json.gz"
    while True:
        if path.exists() or recorder.poll() is not None:
            break
        time.sleep(0.1)
    recorder.terminate()
    out, err = recorder.communicate(timeout=HANGS_S)
    assert recorder.returncode == 0, err
    assert "to be gone on with" in out
    assert sum(len(launches) for launches in read_table(path).launches.values()) >= 1
