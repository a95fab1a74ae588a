import os
import subprocess
import sys
import time

from tuner.host.interference import MAX_FOREIGN, MAX_STEAL, Reading, Watch


def reading(**changes: float) -> Reading:
    base = dict(at=0.0, busy_s=0.0, steal_s=0.0, own_s=0.0, throttled=0, pressure_s=0.0,
                involuntary_switches=0)  # fmt: skip
    return Reading(**{**base, **changes})  # type: ignore[arg-type]


def test_own_work_is_not_interference() -> None:
    n = len(os.sched_getaffinity(0))
    found = Watch().between(reading(), reading(at=1.0, busy_s=1.0 * n, own_s=1.0 * n))
    assert found.dirty == ()
    assert found.foreign == 0.0


def test_a_thread_that_is_bound_later_still_watches_all_cpus() -> None:
    """OpenMP binds the initial thread under OMP_PROC_BIND; its mask is then one CPU."""
    allowed = os.sched_getaffinity(0)
    watch = Watch()
    n = len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        bound = watch.between(watch.read(), watch.read())
        found = watch.between(reading(), reading(at=1.0, busy_s=0.5 * n))
    finally:
        os.sched_setaffinity(0, allowed)
    assert bound.foreign >= 0
    assert found.foreign == 0.5


def test_foreign_work_steal_and_throttling_make_a_slice_dirty() -> None:
    n = len(os.sched_getaffinity(0))
    foreign = Watch().between(reading(), reading(at=1.0, busy_s=0.5 * n))
    assert foreign.foreign > MAX_FOREIGN
    assert "other processes" in foreign.dirty[0]
    steal = Watch().between(reading(), reading(at=1.0, steal_s=0.2 * n))
    assert steal.steal > MAX_STEAL
    assert "hypervisor" in steal.dirty[0]
    throttled = Watch().between(reading(), reading(at=1.0, throttled=2))
    assert "throttled 2" in throttled.dirty[0]


def test_a_rounded_tick_is_not_interference() -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    found = Watch().between(reading(), reading(at=0.3, busy_s=tick, steal_s=tick))
    assert found.dirty == ()


def test_a_busy_neighbour_is_seen() -> None:
    watch = Watch()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        time.sleep(0.2)
        before = watch.read()
        time.sleep(1.0)
        found = watch.between(before, watch.read())
        neighbour.kill()
    assert found.dirty
    assert found.foreign > 0.5 / len(os.sched_getaffinity(0))
