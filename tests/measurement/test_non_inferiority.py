"""How often pairs of runs are judged wrongly, and how many are asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.measurement.non_inferiority import FIRST_PAIRS, judged, pairs_needed

N_STUDIES = 4_000


def _verdicts(ratio: float, scatter: float, margin: float) -> dict[str, float]:
    """Return the shares of verdicts, of studies with as many pairs as they ask for."""
    random = np.random.default_rng(3)
    found = {"as_good": 0, "worse": 0, "undecided": 0}
    for _ in range(N_STUDIES):
        d = list(math.log(ratio) + scatter * random.standard_normal(FIRST_PAIRS))
        n = pairs_needed(d, margin)
        d += list(math.log(ratio) + scatter * random.standard_normal(n - FIRST_PAIRS))
        found[judged(d, margin).verdict] += 1
    return {name: count / N_STUDIES for name, count in found.items()}


@pytest.mark.parametrize("scatter", [0.02, 0.06])
def test_one_that_needs_just_the_margin_passes_in_one_study_of_twenty(scatter: float) -> None:
    found = _verdicts(1.05, scatter, 0.05)
    assert found["as_good"] == pytest.approx(0.05, abs=0.012)
    assert found["worse"] == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize("scatter", [0.02, 0.06])
def test_equal_ones_pass_in_four_studies_of_five(scatter: float) -> None:
    found = _verdicts(1.0, scatter, 0.05)
    assert found["as_good"] > 0.79
    assert found["worse"] < 0.005


def test_one_that_needs_ten_percent_more_never_passes_for_want_of_pairs() -> None:
    assert _verdicts(1.1, 0.1, 0.05)["as_good"] < 0.01


def test_pairs_grow_with_the_square_of_their_scatter() -> None:
    first = [0.1, -0.1, 0.05, -0.05, 0.0]
    n = pairs_needed(first, 0.05)
    assert pairs_needed([2 * d for d in first], 0.05) == pytest.approx(4 * n, abs=4)
    assert pairs_needed([0.0] * FIRST_PAIRS, 0.05) == FIRST_PAIRS


def test_equal_runs_are_as_good() -> None:
    found = judged([0.0] * FIRST_PAIRS, 0.05)
    assert found.verdict == "as_good"
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.high) == (1.0, 1.0)


def test_a_run_that_did_not_reach_the_target_passes_nothing() -> None:
    assert judged([0.0] * FIRST_PAIRS, 0.05, is_censored=True).verdict == "undecided"
    assert judged([0.3, 0.31, 0.29, 0.3, 0.3], 0.05, is_censored=True) == ("worse", None)
