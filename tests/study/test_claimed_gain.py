"""How much of a claimed gain fresh rounds show."""

import math

import msgspec
import numpy as np
import pytest

from tuner.record.interval import Interval
from tuner.record.recommendation import ShippedClaim
from tuner.study.claimed_gain import Gain, gain_of, is_precise

CLAIM = ShippedClaim(
    "faster", 6, 0.01, Interval(1.3, 1.23, 1.37, 0.95), launch_sd=0.03, launch_freedom=5
)


def rounds(speedup: float, launch_sd: float, n: int, seed: int = 0) -> list[float]:
    """Return log speedups of exactly this mean and scatter."""
    drawn = np.random.default_rng(seed).standard_normal(n)
    drawn = (drawn - drawn.mean()) / drawn.std(ddof=1)
    return [float(each) for each in math.log(speedup) + math.sqrt(2) * launch_sd * drawn]


def of(ratios: list[float], claim: ShippedClaim = CLAIM) -> Gain:
    found = gain_of(ratios, claim)
    assert found is not None
    return found


def test_half_of_a_gain_is_less_though_the_intervals_overlap() -> None:
    found = of(rounds(1.16, 0.04, 6))
    assert CLAIM.speedup is not None
    assert found.speedup.high > CLAIM.speedup.low  # what counted as agreement
    assert found.is_less
    assert found.share is not None
    assert found.share.point == pytest.approx(0.16 / 0.3)
    assert 0 < found.share.low < found.share.point < found.share.high < 1


def test_all_of_it_is_all_of_it() -> None:
    found = of(rounds(1.3, 0.03, 6))
    assert not found.is_less and not found.is_more
    assert found.share is not None
    assert found.share.low < 1 < found.share.high
    assert found.share.point == pytest.approx(1.0)


def test_what_is_surely_faster_has_some_of_the_gain_however_unsure_the_claim() -> None:
    unsure = ShippedClaim("predicted", 0, 0.0, Interval(1.5, 0.5, 4.5, 0.9))
    found = of(rounds(1.1, 0.01, 6), unsure)
    assert found.speedup.low > 1
    assert found.share is not None and 0 < found.share.low < 0.2


def test_a_difference_within_the_noise_floor_is_none_however_sure() -> None:
    steady = msgspec.structs.replace(CLAIM, launch_sd=1e-4)
    assert not of(rounds(1.295, 1e-4, 9), steady).is_less
    assert of(rounds(1.28, 1e-4, 9), steady).is_less
    assert not of(rounds(1.305, 1e-4, 9), steady).is_more
    assert of(rounds(1.32, 1e-4, 9), steady).is_more


def test_a_claim_from_a_noisy_hour_is_not_taken_for_a_quiet_one() -> None:
    """Its error is its own, whatever many quiet rounds here scatter by."""
    noisy = msgspec.structs.replace(CLAIM, launch_sd=0.1)
    quiet = of(rounds(1.2, 0.01, 12), noisy)
    assert not quiet.is_less
    assert of(rounds(1.2, 0.01, 12)).is_less


def test_of_an_older_file_the_interval_tells_the_scatter() -> None:
    older = msgspec.structs.replace(CLAIM, launch_sd=None, launch_freedom=0)
    assert of(rounds(1.12, 0.03, 6), older).is_less
    assert not of(rounds(1.25, 0.03, 6), older).is_less


def test_a_prediction_has_the_error_of_its_interval() -> None:
    """It rests on no rounds here, so that more of them do not make it surer."""
    wide = ShippedClaim("predicted", 0, 0.0, Interval(1.5, 1.2, 1.9, 0.9))
    narrow = ShippedClaim("predicted", 0, 0.0, Interval(1.5, 1.45, 1.55, 0.9))
    ratios = rounds(1.3, 0.01, 12)
    assert not of(ratios, wide).is_less
    assert of(ratios, wide).is_limited_by_claim
    assert of(ratios, narrow).is_less
    assert not of(rounds(1.3, 0.1, 4), narrow).is_limited_by_claim
    assert is_precise(rounds(1.3, 0.01, 4), wide)


def test_without_a_claimed_gain_there_is_no_share() -> None:
    for speedup in (None, Interval(1.0, 0.9, 1.1, 0.95)):
        claim = msgspec.structs.replace(CLAIM, speedup=speedup)
        assert of(rounds(1.2, 0.01, 4), claim).share is None
        assert is_precise(rounds(1.2, 0.01, 4), claim)
        assert not is_precise(rounds(1.2, 0.3, 4), claim)


def test_fewer_rounds_than_a_first_look_count_where_their_scatter_is_known() -> None:
    ratios = rounds(1.3, 0.03, 2)
    assert gain_of(ratios, CLAIM) is None
    early = gain_of(ratios, CLAIM, is_scatter_known=True)
    assert early is not None and early.share is not None
    assert early.share.low < 1 < early.share.high
    assert gain_of(ratios[:1], CLAIM, is_scatter_known=True) is None
    assert not is_precise(ratios, CLAIM)


def test_rounds_are_enough_by_their_scatter_and_not_by_what_they_say() -> None:
    for speedup in (1.0, 1.15, 1.3, 1.6):
        assert is_precise(rounds(speedup, 0.02, 6), CLAIM)
        assert not is_precise(rounds(speedup, 0.1, 6), CLAIM)
    assert not is_precise(rounds(1.3, 0.02, 6), CLAIM, at_least=0.9)


def test_identical_rounds_of_an_exact_claim_differ_by_nothing() -> None:
    exact = msgspec.structs.replace(CLAIM, launch_sd=0.0)
    found = of([math.log(1.3)] * 4, exact)
    assert found.share is not None
    assert found.share.low == pytest.approx(1.0) and found.share.high == pytest.approx(1.0)
    assert not found.is_less and is_precise([math.log(1.3)] * 4, exact)
