"""The loss of accuracy under reduced precision, and its upper bound."""

import math
import random

import numpy as np
import pytest

from tuner.errors import UsageError
from tuner.worker.accuracy import LossOfAccuracy, loss_of_accuracy, scores_of


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (
            np.ones(7),
            r"shape \(7,\); it must return one number, or true or false for each of the 8",
        ),
        (np.ones((8, 1)), r"shape \(8, 1\)"),
        ("much", "returned str"),
        (float("nan"), "not finite"),
        ([1.0] * 7 + [math.inf], "not finite"),
        ([0.5] * 8, "returned 0.5 for a sample"),
    ],
)
def test_what_is_no_score_is_refused(returned: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        scores_of(returned, 8)


def test_one_number_has_no_bound() -> None:
    assert scores_of(np.ones(1), 8).shape == ()
    assert loss_of_accuracy(scores_of(0.90, 8), scores_of(0.92, 8)) is None


def compared(n: int, n_lost: int, n_gained: int, n_both_wrong: int = 0) -> LossOfAccuracy:
    own, default = np.ones(n), np.ones(n)
    own[:n_lost] = 0
    default[n_lost : n_lost + n_gained] = 0
    own[n - n_both_wrong :] = default[n - n_both_wrong :] = 0
    found = loss_of_accuracy(scores_of(own, n), scores_of(default > 0, n))
    assert found is not None
    return found


def test_samples_that_both_get_wrong_do_not_widen_the_bound() -> None:
    assert compared(500, 3, 2, n_both_wrong=250) == compared(500, 3, 2)


@pytest.mark.parametrize(
    ("n", "n_lost"),
    [(100, 0), (300, 5), (40, 20)],  # lost samples alone: it is Wilson's bound of their share
)
def test_the_bound_of_one_way_is_the_score_interval_of_a_share(n: int, n_lost: int) -> None:
    z, share = 1.6449, n_lost / n
    spread = z * math.sqrt(share * (1 - share) / n + (z / n) ** 2 / 4)
    wilson = (share + z * z / n / 2 + spread) / (1 + z * z / n)
    assert compared(n, n_lost, 0).most == pytest.approx(wilson, abs=1e-5)


def test_as_many_samples_as_are_said_to_be_needed_are_enough() -> None:
    loss = compared(200, 6, 5)
    assert loss.most > 0.02
    k = -(-loss.n_needed(0.02) // 200)
    assert compared(200 * k, 6 * k, 5 * k).most <= 0.02
    assert compared(200 * (k - 1), 6 * (k - 1), 5 * (k - 1)).most > 0.02
    assert compared(200, 9, 5).n_needed(0.02) == 0


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.03])
def test_the_bound_is_below_the_true_loss_in_one_of_twenty(loss: float) -> None:
    """3 % of the samples differ, by a simulation of 2,000 checks of 300 samples."""
    draw, n_below = random.Random(0), 0
    worse, better = 0.015 + loss / 2, 0.015 - loss / 2
    for _ in range(2000):
        seen = [draw.random() for _ in range(300)]
        n_lost = sum(each < worse for each in seen)
        n_gained = sum(worse <= each < worse + better for each in seen)
        n_below += LossOfAccuracy(300, n_lost, n_gained).most < loss
    assert n_below / 2000 <= 0.065
