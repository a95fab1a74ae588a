"""A real CPU quota is found, and what it takes away makes a slice dirty."""

import time
from pathlib import Path

from tests.guest.inside.child import in_child
from tests.guest.inside.groups import control_group, enter
from tuner.host.identity import probe
from tuner.host.interference import Watch
from tuner.host.limits import read_quota
from tuner.record.launch import Interference

HALF_A_CPU = "50000 100000"


def _spin(seconds: float) -> Interference:
    watch = Watch()
    before = watch.read()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return watch.between(before, watch.read())


def _spin_inside(group: Path) -> Interference:
    enter(group)
    return _spin(1.0)


def _quota_inside(group: Path) -> tuple[float | None, float | None, int]:
    enter(group)
    host = probe()
    return read_quota(), host.limits.quota_cores, host.usable_cores


def test_the_quota_of_the_group_is_found() -> None:
    assert read_quota() is None
    with control_group("slow", cpu_max=HALF_A_CPU) as group:
        assert in_child(_quota_inside, group) == (0.5, 0.5, 1)


def test_a_quota_that_throttles_makes_a_slice_dirty() -> None:
    with control_group("slow", cpu_max=HALF_A_CPU) as group:
        seen = in_child(_spin_inside, group)
    assert seen.throttled_periods > 0
    assert any("throttled" in reason for reason in seen.dirty), seen.dirty


def test_without_a_quota_nothing_is_throttled() -> None:
    seen = in_child(_spin, 0.3)
    assert seen.throttled_periods == 0
    assert not any("throttled" in reason for reason in seen.dirty), seen.dirty
