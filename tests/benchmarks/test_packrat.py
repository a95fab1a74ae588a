"""Cores divided among instances by what one of them did."""

from benchmarks.packrat import divide, profiled


def test_what_is_profiled() -> None:
    assert profiled(2, (4, 16)) == [(1, 4), (1, 16), (2, 4), (2, 16)]
    assert [t for t, _ in profiled(6, (1,))] == [1, 2, 4, 6]


def test_instances_that_scale_badly_are_many_and_small() -> None:
    assert divide(4, {(1, 4): 10.0, (2, 4): 15.0, (4, 4): 20.0}) == [(1, 4)] * 4


def test_one_instance_where_threads_gain_more() -> None:
    assert divide(4, {(1, 4): 10.0, (2, 4): 25.0, (4, 4): 60.0, (4, 16): 61.0}) == [(4, 16)]


def test_what_is_left_is_used() -> None:
    found = divide(3, {(1, 4): 10.0, (2, 4): 25.0})
    assert sorted(found) == [(1, 4), (2, 4)]
