"""What runs to a quality target show: pairs of the default and a configuration, seed by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuner.measurement.non_inferiority import FIRST_PAIRS, judged, pairs_needed
from tuner.record.configuration import Value
from tuner.record.interval import Interval
from tuner.record.time_to_target import Pair, QualityVerdict, TargetArm, TimeToTarget, TrainingRun

_OLYMPIC = 3
"""Runs from which on the mean without the lowest and the highest is one of anything."""


class Speed(NamedTuple):
    """What is known of the seconds of a step."""

    default_step_s: float = 0.0
    """0 if no study confirmed a speedup: runs are not measured side by side, and tell no time."""
    speedup: Interval | None = None
    """Of a step."""
    price_per_hour: float | None = None


def log_ratios(pairs: Sequence[Pair]) -> tuple[list[float], bool]:
    """Return the log ratio of the steps of each pair, and whether some are lower bounds.

    The default reached its target in each. A configuration that did not has at least the ratio of
    the most steps that it was given.
    """
    found, is_censored = [], False
    for default, tuned in pairs:
        steps = tuned.steps_to_target()
        if not math.isfinite(steps):
            is_censored, steps = True, float(tuned.target.most_steps)
        found.append(math.log(steps / default.steps_to_target()))
    return found, is_censored


def conclude(
    pairs: Mapping[int, Pair],
    configuration: Mapping[str, Value],
    margin: float,
    speed: Speed,
) -> TimeToTarget:
    """Conclude from the pairs so far, one at least. pairs: by seed, in the order of the seeds."""
    default = [pair[0] for pair in pairs.values()]
    tuned = [pair[1] for pair in pairs.values()]
    reached = [pair for pair in pairs.values() if math.isfinite(pair[0].steps_to_target())]
    n_missed = len(pairs) - len(reached)
    verdict: QualityVerdict = "undecided"
    ratio, n_needed = None, None
    if n_missed:
        reason = (
            f"the default itself did not reach the target in {n_missed} of {len(pairs)} runs: "
            "state a lower one, or more steps"
        )
    elif len(reached) < FIRST_PAIRS:
        reason = f"{len(reached)} of at least {FIRST_PAIRS} pairs were made"
    else:
        ratios, is_censored = log_ratios(reached)
        n_needed = pairs_needed(ratios[:FIRST_PAIRS], margin)
        found, ratio = judged(ratios, margin, is_censored=is_censored)
        verdict = found if len(reached) >= n_needed else "undecided"  # to stop early is to choose
        n_tuned_missed = sum(not math.isfinite(run.steps_to_target()) for run in tuned)
        reason = _reason(verdict, margin, len(reached), n_needed, n_tuned_missed)
    step_s = speed.default_step_s
    tuned_s = 0.0 if speed.speedup is None else step_s / speed.speedup.point
    return TimeToTarget(
        default[0].target,
        list(pairs),
        _arm({}, default, step_s, speed.price_per_hour),
        _arm(configuration, tuned, tuned_s, speed.price_per_hour),
        margin,
        verdict,
        reason,
        ratio,
        n_needed,
        None if ratio is None or speed.speedup is None else _quotient(speed.speedup, ratio),
    )


def _reason(verdict: QualityVerdict, margin: float, n: int, n_needed: int, n_missed: int) -> str:
    """Say what the pairs show, and what is lacking."""
    more = f"{100 * margin:.3g}% more steps"
    if verdict == "as_good":
        return f"it needs less than {more} (one-sided 95 %, {n} pairs)"
    missed = f"; it did not reach the target in {n_missed} of {n} runs" if n_missed else ""
    if verdict == "worse":
        return f"it needs more than {more} (one-sided 95 %, {n} pairs){missed}"
    if n < n_needed:
        return (
            f"the scatter of the first pairs asks for {n_needed} pairs, and there are {n}{missed}"
        )
    return f"{n} pairs do not show whether it needs {more}{missed}"


def _arm(
    configuration: Mapping[str, Value],
    runs: Sequence[TrainingRun],
    step_s: float,
    price_per_hour: float | None,
) -> TargetArm:
    steps = [run.steps_to_target() for run in runs]
    median = statistics.median(steps) if steps else math.inf
    olympic = None
    if len(steps) >= _OLYMPIC:
        inner = statistics.fmean(sorted(steps)[1:-1])
        olympic = inner if math.isfinite(inner) else None
    is_reached = math.isfinite(median)
    seconds = median * step_s if is_reached and step_s else None
    cost = None if seconds is None or price_per_hour is None else seconds / 3600 * price_per_hour
    return TargetArm(
        dict(configuration),
        [each if math.isfinite(each) else None for each in steps],
        median if is_reached else None,
        olympic,
        seconds,
        cost,
    )


def _quotient(speedup: Interval, ratio: Interval) -> Interval:
    """Return the speedup of the time to the target; both intervals are independent.

    Their log half-widths add up in squares, as standard errors do.
    """
    point = math.log(speedup.point / ratio.point)
    down = math.hypot(math.log(speedup.point / speedup.low), math.log(ratio.high / ratio.point))
    up = math.hypot(math.log(speedup.high / speedup.point), math.log(ratio.point / ratio.low))
    return Interval(
        math.exp(point), math.exp(point - down), math.exp(point + up), speedup.confidence
    )
