"""Waiting for quiet: beside a real neighbour, and on hosts whose noise is written by hand."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.host.interference import watch_idle
from tuner.measurement.interference_gate import InterferenceGate
from tuner.record.events import Event, WaitingForQuiet
from tuner.record.journal import Waited
from tuner.record.launch import Interference
from tuner.record.store import Store

BUSY = Interference(foreign=0.5, dirty=("other processes used 50% of the CPU time",))
STOLEN = Interference(steal=0.2, dirty=("the hypervisor stole 20% of the CPU time",))
THROTTLED = Interference(throttled_periods=3, dirty=("the cgroup's quota throttled 3 period(s)",))
CLEAN = Interference()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


class Host:
    """Is busy for so many looks."""

    def __init__(self, n_busy: int) -> None:
        self.n_busy = n_busy
        self.n_looks = 0

    def look(self, seconds: float) -> Interference:
        time.sleep(0.001)
        self.n_looks += 1
        return BUSY if self.n_looks <= self.n_busy else CLEAN


def quiet(
    store: Store, host: Host, allowance_s: float, seen: list[Event] | None = None
) -> InterferenceGate:
    listen = seen.append if seen is not None else lambda _: None
    return InterferenceGate(store, listen, allowance_s, lambda: 1e6, host.look)


def test_a_clean_slice_waits_for_nothing(store: Store) -> None:
    host = Host(0)
    quiet(store, host, 100.0).after(CLEAN)
    assert host.n_looks == 0
    assert store.all(Waited) == []


def test_what_the_own_quota_throttled_is_not_waited_for(store: Store) -> None:
    host = Host(5)
    quiet(store, host, 100.0).after(THROTTLED)
    assert host.n_looks == 0


def test_it_waits_until_the_others_have_ended_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.measurement.interference_gate._PROBE_S", 0.001)
    host, seen = Host(4), list[Event]()
    quiet(store, host, 100.0, seen).after(BUSY)
    assert host.n_looks == 5
    (note,) = store.all(Waited)
    assert note.is_quiet
    assert "50%" in note.reason
    told = [event for event in seen if isinstance(event, WaitingForQuiet)]
    assert len(told) == 4
    assert told[0].at_most_s == pytest.approx(50.0)


def test_a_host_that_never_calms_is_waited_for_within_the_allowance(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait takes half of what is left, so that a later burst is still waited for."""
    monkeypatch.setattr("tuner.measurement.interference_gate._PROBE_S", 0.02)
    host = Host(10**9)
    waiting = quiet(store, host, 0.4)
    for _ in range(20):
        waiting.after(BUSY)
    notes = store.all(Waited)
    assert len(notes) > 2
    assert not any(note.is_quiet for note in notes)
    assert notes[0].seconds >= 0.2
    assert waiting.left_s() <= 0.04


def test_stolen_time_that_idling_does_not_show_is_waited_for_longer_each_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.measurement.interference_gate._PROBE_S", 0.01)
    host = Host(0)
    waiting, n_looks = quiet(store, host, 100.0), []
    for interference in (STOLEN, STOLEN, STOLEN, STOLEN, CLEAN, STOLEN):
        before = host.n_looks
        waiting.after(interference)
        n_looks.append(host.n_looks - before)
    assert n_looks == [1, 2, 4, 8, 0, 1]


def test_what_is_left_of_the_budget_bounds_a_wait(store: Store) -> None:
    host = Host(10**9)
    InterferenceGate(store, lambda _: None, 100.0, lambda: 4.0, host.look).after(BUSY)
    assert host.n_looks == 0  # a tenth of 4 s is less than one look


def test_waits_of_earlier_sessions_count(store: Store) -> None:
    store.add(Waited(9.9, "others", False))
    host = Host(10**9)
    quiet(store, host, 10.0).after(BUSY)
    assert host.n_looks == 0


def test_a_real_neighbour_is_waited_for(store: Store) -> None:
    spin = "import time; e = time.time() + 2\nwhile time.time() < e: pass"
    spinners = [subprocess.Popen([sys.executable, "-c", spin]) for _ in os.sched_getaffinity(0)]
    try:
        time.sleep(0.2)
        seen = watch_idle(0.3)
        InterferenceGate(store, lambda _: None, 10.0, lambda: 1e6).after(seen)
    finally:
        for spinner in spinners:
            spinner.wait()
    assert any("other processes used" in each for each in seen.dirty)
    (note,) = store.all(Waited)
    if note.is_quiet:  # else the hypervisor may have stolen time ever since, and is named
        assert "other processes used" in note.reason
