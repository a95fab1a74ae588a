"""Preparing side by side on more cores: the model's limits are those of arithmetic."""

import pytest

from benchmarks.many_cores import Work, in_groups_s, together_s, work_of


def test_work_is_what_the_seconds_say() -> None:
    # a second on one core, then four seconds' work on both
    assert work_of(wall_s=3.0, cpu_s=5.0, n_cores=2) == Work(serial_s=1.0, parallel_s=4.0)
    assert work_of(wall_s=3.0, cpu_s=2.0, n_cores=2) == Work(serial_s=3.0, parallel_s=0.0)
    mixed = work_of(wall_s=3.0, cpu_s=5.0, n_cores=2)
    assert mixed.alone_s(2) == 3.0
    assert mixed.width(2) == pytest.approx(5 / 3)


def test_what_one_core_can_do_runs_side_by_side_and_what_takes_all_gains_nothing() -> None:
    serial, wide = Work(6.0, 0.0), Work(0.0, 6.0)
    assert together_s([serial] * 2, 2) == 6.0
    assert together_s([wide] * 2, 2) == pytest.approx(6.0)
    assert in_groups_s([serial] * 4, 2) == 12.0
    assert in_groups_s([serial] * 4, 16) == 6.0
    # the short one leaves its share to the other
    assert together_s([Work(0.0, 2.0), Work(0.0, 6.0)], 2) == pytest.approx(4.0)


def test_nothing_takes_less_than_its_work_or_its_longest_part() -> None:
    works = [Work(1.0, 3.0), Work(2.0, 8.0), Work(5.0, 0.5)]
    for n_cores in (2, 4, 16, 64):
        taken = together_s(works, n_cores)
        assert taken >= max(work.alone_s(n_cores) for work in works) - 1e-9
        assert taken >= sum(work.serial_s + work.parallel_s for work in works) / n_cores - 1e-9
        assert taken <= sum(work.alone_s(n_cores) for work in works) + 1e-9
