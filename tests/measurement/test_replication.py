"""How many slices a launch gets, and what a round's passes tell."""

import math

import numpy as np
import pytest

from tuner.measurement.passes import passes_of
from tuner.measurement.replication import (
    CONFIRM,
    SEARCH,
    Replication,
    Scatter,
    n_needed,
    scatter,
    variance_of_median,
    wants_more,
)
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, LaunchRequest, Purpose, Slice
from tuner.record.objective import THROUGHPUT

WIDE = Replication(1, 1000)


def test_no_other_number_of_slices_makes_precision_cheaper() -> None:
    """Variance of a launch's number times its seconds is least at the number that is asked for."""
    slice_sd, launch_sd, launch_s, slice_s = 0.06, 0.02, 12.0, 0.7

    def price(n: int) -> float:
        variance = launch_sd**2 + math.pi / 2 * slice_sd**2 / n
        return variance * (launch_s + n * slice_s)

    best = min(range(1, 200), key=price)
    assert abs(n_needed(WIDE, Scatter(launch_sd, slice_sd), launch_s, slice_s) - best) <= 1


@pytest.mark.parametrize("planned", [SEARCH, CONFIRM])
def test_quiet_slices_are_few_and_noisy_ones_many_within_bounds(planned: Replication) -> None:
    assert n_needed(planned, Scatter(0.02, 0.0001), 10.0, 1.0) == planned.least
    assert n_needed(planned, Scatter(0.02, 1.0), 10.0, 1.0) == planned.most
    assert n_needed(planned, Scatter(0.02, 0.1), 10.0, 0.0) == planned.least
    assert n_needed(planned, Scatter(0.0, 0.01), 10.0, 1.0) == planned.most


def test_the_variance_of_a_median_is_that_of_simulated_ones() -> None:
    random = np.random.default_rng(5)
    draws = random.normal(0, 0.03, (4000, 15))
    estimated = np.mean([variance_of_median(row.tolist()) for row in draws])
    assert estimated == pytest.approx(np.var(np.median(draws, axis=1)), rel=0.15)


@pytest.mark.parametrize("n", [3, 4, 8, 15])
def test_a_few_values_do_not_scatter_less_by_their_number(n: int) -> None:
    random = np.random.default_rng(6)
    found = np.mean([scatter(row) for row in random.normal(0, 0.03, (4000, n))])
    assert found == pytest.approx(0.03, rel=0.05)


def test_a_lucky_start_does_not_end_a_launch() -> None:
    """Three slices that agree by chance, where slices are known to scatter."""
    known = Scatter(0.02, 0.04)
    assert n_needed(WIDE, known.with_slices(0.0, 3), 10.0, 1.2) > 5
    assert known.with_slices(0.04, 50).within == pytest.approx(0.04)
    assert known.with_slices(0.2, 50).within > 0.15


def test_the_first_launch_of_all_is_not_sliced_on_and_on_where_slices_scatter() -> None:
    guess = Scatter(0.02, 0.01, is_guess=True)
    assert guess.with_slices(0.0, 0) == guess
    seen = guess.with_slices(0.15, 3)
    assert (seen.between, seen.within, seen.is_guess) == (0.15, 0.15, False)
    assert n_needed(WIDE, seen, 3.0, 0.6) == 3
    assert n_needed(WIDE, Scatter(0.02, 0.15), 3.0, 0.6) > 15
    assert guess.with_slices(0.005, 3).between == 0.02


@pytest.mark.parametrize("n_launches", [1, 2, 6])
def test_the_scatter_of_slices_does_not_depend_on_how_many_launches_there_are(
    n_launches: int,
) -> None:
    random = np.random.default_rng(8)
    found = [
        passes_of(
            [launch(i, random.normal(0, 0.03, 12).tolist()) for i in range(n_launches)],
            THROUGHPUT,
        ).scatter()
        for _ in range(300)
    ]
    assert np.mean(found) == pytest.approx(0.03, rel=0.07)


def test_a_stray_slice_counts_little() -> None:
    assert scatter([1.0, 1.01, 0.99, 1.0, 9.0]) < 0.02


@pytest.mark.parametrize(
    ("clean", "taken", "more"),
    [(0, 0, True), (3, 3, True), (4, 4, False), (3, 5, True), (3, 6, False), (0, 6, False)],
)
def test_disturbed_slices_are_taken_again_half_as_many_at_most(
    clean: int, taken: int, more: bool
) -> None:
    assert wants_more(clean, taken, 4) is more


def launch(id: int, log_rates: list[float], dirty: tuple[int, ...] = ()) -> LaunchRecord:
    return LaunchRecord(
        LaunchRequest(id, Configuration(), 1, Purpose.CONFIRM),
        slices=[
            Slice(id * 100 + k, 1, 1, math.exp(-y), float(k),
                  Interference(dirty=("others",) if k in dirty else ()))
            for k, y in enumerate(log_rates)
        ],
    )  # fmt: skip


def test_what_a_pass_has_in_common_is_no_scatter() -> None:
    swings = [0.0, -0.8, 0.3, -0.5]
    passes = passes_of([launch(1, swings), launch(2, [y + 0.2 for y in swings])], THROUGHPUT)
    assert passes.scatter() == pytest.approx(0.0, abs=1e-12)
    slow, fast = passes.values()
    assert fast - slow == pytest.approx(0.2)
    assert passes_of([launch(1, swings)], THROUGHPUT).n_taken == 4


def test_a_pass_in_which_anything_was_disturbed_does_not_count() -> None:
    passes = passes_of([launch(1, [0.0, 0.0, 0.0], (1,)), launch(2, [0.1, 9.0, 0.1])], THROUGHPUT)
    assert (passes.n_taken, passes.n_clean) == (3, 2)
    assert passes.values()[1] - passes.values()[0] == pytest.approx(0.1)
    none_clean = passes_of([launch(1, [0.0, 0.0], (0, 1))], THROUGHPUT)
    assert (none_clean.n_taken, none_clean.n_clean) == (2, 0)
    assert len(none_clean.values()) == 1


def test_before_the_first_pass_nothing_scatters() -> None:
    assert passes_of([launch(1, []), launch(2, [])], THROUGHPUT).scatter() == 0.0
