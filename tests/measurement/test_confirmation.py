import math
import statistics

import numpy as np
import pytest

from benchmarks.looks import confirm, simulate_continued
from tuner.measurement.confirmation import (
    ALPHA,
    WEIGHTS,
    ArmSeries,
    Noise,
    decidable_gain,
    difference,
    early_interval,
    fallback_alphas,
    fit_rounds,
    judge,
    look_level,
    shared_alpha,
    t_interval,
)
from tuner.record.interval import Interval


@pytest.mark.parametrize("n_rounds", [4, 6, 18])
def test_studies_of_nothing_claim_something_in_at_most_five_percent(n_rounds: int) -> None:
    random, n_studies = np.random.default_rng(7), 300
    n_false = sum(
        any(each.is_faster for each in confirm(random.normal(0, 0.05, (n_rounds, 5))))
        for _ in range(n_studies)
    )
    assert n_false / n_studies < 0.025 + 3 * math.sqrt(0.025 / n_studies)  # one bound of two


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(2000):
        _, low, high = t_interval(random.normal(0.1, 0.05, 6).tolist(), 0.05)
        hits += low <= 0.1 <= high
    assert 0.935 < hits / 2000 < 0.965


@pytest.mark.parametrize("spread", [(0.02,) * 8, (0.01,) * 7 + (0.03,)], ids=["equal", "one noisy"])
@pytest.mark.parametrize("n_rounds", [4, 9])
def test_all_intervals_of_several_arms_hold_together(
    spread: tuple[float, ...], n_rounds: int
) -> None:
    """Eight arms beside the default, all of them covered in at least 95 % of simulated studies."""
    random, n_studies, covered = np.random.default_rng(4), 600, 0
    for _ in range(n_studies):
        default = random.normal(0, spread[0], n_rounds)
        arms = [random.normal(0, sd, n_rounds) for sd in spread]
        noise = fit_rounds(np.column_stack([default, *arms]).tolist()).noise
        assert noise is not None
        found = [difference((a - default).tolist(), noise) for a in arms]
        intervals = [each.interval(shared_alpha(8)) for each in found]
        covered += all(i.low <= 1 <= i.high for i in intervals)
    assert covered / n_studies > 0.95 - 3 * math.sqrt(0.05 * 0.95 / n_studies)


def test_an_arm_that_scatters_more_than_the_others_has_its_own_degrees_of_freedom() -> None:
    """Else it would be called faster too often: beside four quiet arms, three times as noisy."""
    random, n_studies, n_false = np.random.default_rng(5), 4000, 0
    for _ in range(n_studies):
        default, *arms = (random.normal(0, sd, 4) for sd in (0.01, 0.03, 0.01, 0.01, 0.01))
        noise = fit_rounds(np.column_stack([default, *arms]).tolist()).noise
        assert noise is not None
        found = difference((arms[0] - default).tolist(), noise).interval(ALPHA)
        n_false += found.low > 1
    assert n_false / n_studies < 0.025 + 3 * math.sqrt(0.025 / n_studies)  # one bound of two


def test_few_values_decide_nothing() -> None:
    assert t_interval([0.5], 0.05)[1:] == (-math.inf, math.inf)


def test_a_class_passes_its_level_on_where_it_is_rejected() -> None:
    assert fallback_alphas([0.001, 0.001, 0.9]) == pytest.approx([0.04, 0.045, 0.05])
    assert fallback_alphas([0.9, 0.001, 0.9]) == pytest.approx([0.04, 0.005, 0.01])
    assert fallback_alphas([0.9, 0.9]) == pytest.approx([0.05 * 8 / 9, 0.05 / 9])
    assert fallback_alphas([0.9]) == pytest.approx([0.05])
    assert fallback_alphas([]) == []


def test_the_scatter_of_all_arms_lends_its_degrees_of_freedom() -> None:
    quiet, loud = [0.1, 0.1, 0.1, 0.1], [0.0, 0.4, 0.0, 0.4]
    assert difference(quiet, Noise(0.02, 12)).freedom == 12
    assert difference(quiet, Noise(0.02, 12)).error == pytest.approx(0.02 * math.sqrt(2 / 4))
    assert difference(loud, Noise(0.02, 12)).freedom == 3
    assert difference(loud, Noise(0.02, 12)).error == pytest.approx(np.std(loud, ddof=1) / 2)


def test_differences_that_follow_each_other_widen_the_interval() -> None:
    alternating = [0.1, 0.3] * 6
    lasting = [0.1] * 6 + [0.3] * 6
    noise = Noise(0.01, 30)
    assert difference(lasting, noise).error > 2 * difference(alternating, noise).error
    short = lasting[3:-3]  # six rounds do not show it
    assert difference(short, noise).error == pytest.approx(np.std(short, ddof=1) / math.sqrt(6))


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(1.2, 1.1, 1.3, 0.95), "faster"),
        (Interval(1.2, 0.99, 1.4, 0.95), "ambiguous"),
        (Interval(1.015, 1.01, 1.03, 0.95), "ambiguous"),
        (Interval(1.012, 1.005, 1.018, 0.95), "ambiguous"),  # a small gain is one all the same
        (Interval(1.005, 0.99, 1.015, 0.95), "keep_default"),
        (Interval(0.8, 0.7, 0.9, 0.95), "keep_default"),
    ],
)
def test_verdicts(interval: Interval, verdict: str) -> None:
    assert judge(interval, floor=0.02) == verdict


@pytest.mark.parametrize(("high", "verdict"), [(1.09, "keep_default"), (1.19, "ambiguous")])
def test_that_noise_would_hide_a_gain_is_no_reason_to_keep_the_default(
    high: float, verdict: str
) -> None:
    assert judge(Interval(0.92, 0.7, high, 0.95), floor=0.925) == verdict


def test_the_noise_floor_follows_the_launches() -> None:
    random = np.random.default_rng(5)
    rounds, arms = 200, 4
    machine = random.normal(0, 0.3, (rounds, 1))  # what a round has in common does not count
    table = machine + random.normal([0.0, 0.1, 0.5, 0.9], 0.03, (rounds, arms))
    noise = fit_rounds(table.tolist()).noise
    assert noise is not None
    assert noise.launch_sd == pytest.approx(0.03, rel=0.1)
    assert noise.floor(200) == 0.01  # 200 rounds resolve less than the 1 % that is worth having
    few = fit_rounds(table[:4].tolist()).noise
    assert few is not None
    assert few.floor(4) > 0.02
    assert few.floor(18) < few.floor(4)
    assert fit_rounds([[1.0, 2.0]]).noise is None
    assert fit_rounds([]).noise is None


def test_arms_that_left_early_still_tell_of_the_noise() -> None:
    random = np.random.default_rng(5)
    full = random.normal(0, 0.02, (200, 4)) + random.normal(0, 0.3, (200, 1)) + [0, 0.1, 0.5, 1]
    table: list[list[float | None]] = [list(row) for row in full]
    for row in table[4:]:
        row[2] = row[3] = None
    noise = fit_rounds(table).noise
    assert noise is not None
    assert noise.launch_sd == pytest.approx(0.02, rel=0.1)


def test_series_are_compared_over_common_rounds() -> None:
    a = ArmSeries((1.0, 2.0, None, 4.0))
    b = ArmSeries((0.5, None, 0.5, 3.0))
    assert a.against(b) == [0.5, 1.0]
    assert a.known() == [1.0, 2.0, 4.0]


def test_a_ratio_is_made_of_log_differences() -> None:
    interval = difference([math.log(2)] * 4, Noise(0.01, 3)).interval(0.05)
    assert interval.point == pytest.approx(2.0)
    assert interval.confidence == 0.95


def test_a_single_round_makes_no_interval() -> None:
    assert early_interval([0.5], Noise(0.02, 5)) is None


def test_few_rounds_borrow_the_scatter_of_the_study_and_add_their_own() -> None:
    known = Noise(0.02, 5)
    agreeing, scattered = early_interval([0.5, 0.5], known), early_interval([0.3, 0.7], known)
    assert agreeing is not None
    assert scattered is not None
    # t of 5 + 1 degrees of freedom at 2.5 %: 2.4469; the two rounds add none of the squares
    sd = 0.02 * math.sqrt(2 * 5 / 6)
    half = 2.4469 * sd / math.sqrt(2)
    assert math.log(agreeing.high / agreeing.point) == pytest.approx(half, rel=1e-3)
    assert agreeing.high < scattered.high


def test_a_study_that_goes_on_twice_keeps_its_error_rate() -> None:
    """Nothing is faster, and the arm that looked best stays, with its rounds.

    At the whole error rate in each extent, or at the same arm's luckiest look, it would be above.
    """
    assert sum(map(look_level, range(30))) < ALPHA
    assert simulate_continued("normal, 3 %", 6, 2, 300, seed=1) <= ALPHA


def test_a_gain_that_can_be_decided_on_is_decided_four_times_out_of_five() -> None:
    """By the last look's level of the first class, of known scatter."""
    sd, n = 0.02, 9
    gain = decidable_gain(sd, n, 10**6)
    error = sd * math.sqrt(2 / n)
    critical = statistics.NormalDist().inv_cdf(1 - look_level(0) * WEIGHTS[0] / 2)
    power = 1 - statistics.NormalDist(gain, error).cdf(critical * error)
    assert power == pytest.approx(0.8, abs=0.005)
