"""What people do instead, on the same recorded noise (benchmarks/tape.py).

one run each      the best of 20 configurations, each run once, against the default's single run;
                  half of them hold the setting that is worth something, if one is
ten repeats       ten repeats in one process each, the candidate after the default: Welch's t
                  test and interval at 95 %
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy import stats

from benchmarks.tape import Recording, Tape

_CONFIGURATIONS = 20
_REPEATS = 10


class Habit(NamedTuple):
    """What a habit says: log ratios of the candidate to the default; no interval is nan."""

    truth: float
    point: float
    low: float = math.nan
    high: float = math.nan
    claims_faster: bool = False


def one_run_each(recording: Recording, effect: float, seed: int) -> Habit:
    """Run the default and many candidates once each, and believe the best."""
    tape = Tape(recording, seed)
    truths = [effect * (i % 2) for i in range(_CONFIGURATIONS)]
    rates = []
    for truth in [0.0, *truths]:
        tape.seek()
        launch = tape.any_launch()
        rates.append(math.log(launch.slice(tape.pass_).rate) + truth)
        tape.clock.advance(launch.fixed_s + launch.slice_s)
    default, *candidates = rates
    best = max(range(_CONFIGURATIONS), key=candidates.__getitem__)
    point = candidates[best] - default
    return Habit(truths[best], point, claims_faster=point > 0)


def ten_repeats(recording: Recording, effect: float, seed: int) -> Habit:
    """Run the default, then the candidate, ten times in one process each, and test."""
    tape = Tape(recording, seed)
    samples = []
    for truth in (0.0, effect):
        tape.seek()
        launch = tape.any_launch()
        samples.append(
            [math.log(launch.slice(tape.pass_ + k).rate) + truth for k in range(_REPEATS)]
        )
        tape.clock.advance(launch.fixed_s + _REPEATS * launch.slice_s)
    default, candidate = samples
    test = stats.ttest_ind(candidate, default, equal_var=False)
    low, high = test.confidence_interval(0.95)
    point = math.fsum(candidate) / _REPEATS - math.fsum(default) / _REPEATS
    return Habit(effect, point, float(low), float(high), bool(low > 0))
