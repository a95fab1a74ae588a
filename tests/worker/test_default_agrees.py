"""The denominator of every speedup is what a user's own twenty lines achieve."""

import math
from pathlib import Path

import pytest

from benchmarks.default_agrees import log_ratios
from tests.worker.workers import TINY, needs
from tuner.measurement.confirmation import t_interval


@pytest.mark.alone
@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=needs("torch")),
     pytest.param("tensorflow", marks=needs("tensorflow"))],
)  # fmt: skip
def test_the_default_is_as_fast_as_a_script_of_twenty_lines(tmp_path: Path, framework: str) -> None:
    """A ratio of interleaved launches, at a level by which one run in 1,000 fails by luck."""
    found = log_ratios(TINY, framework, 8, tmp_path)
    mean, low, high = t_interval(found, 1e-3)
    assert abs(mean) < 0.1
    assert low <= 0 <= high, [math.exp(v) for v in found]
