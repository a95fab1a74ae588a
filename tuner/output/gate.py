"""A condition on two studies for a pipeline: fail if the later one is surely slower."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tuner.errors import UsageError
from tuner.output.compare import Change, Comparison
from tuner.output.values import ratio

Outcome = Literal["passed", "failed", "undecided"]
_FORM = re.compile(r"slower:([0-9]+(?:\.[0-9]+)?)%")


class Judged(msgspec.Struct, frozen=True):
    """What a condition says of two studies, and why."""

    outcome: Outcome
    text: str


def parse_condition(text: str) -> float:
    """Read slower:5% into 0.05; raises UsageError."""
    found = _FORM.fullmatch(text.strip())
    share = float(found[1]) / 100 if found else 1.0
    if not share < 1:
        raise UsageError(
            f"--fail-if {text!r} is not a condition: write slower:5%, with a share below 100%"
        )
    return share


def judge(comparison: Comparison, share: float) -> list[Judged]:
    """Return, for each pair of studies of one workload, whether it is slower by more than a share.

    It is if the whole interval of the recommended speeds' ratio is below 1 - share. Raises
    UsageError if no two studies are of one workload.
    """
    if not comparison.changes:
        raise UsageError(
            "--fail-if compares two studies of the same model, framework and scenario, and these "
            "hold no two; name an earlier and a later one"
        )
    return [_judged(change, share) for change in comparison.changes]


def _judged(change: Change, share: float) -> Judged:
    (shift,) = (each for each in change.shifts if each.figure == "recommended speed")
    if not change.is_same_hardware:
        return Judged("undecided", f"{change.title}: the hosts differ, so speeds do not compare")
    if shift.ratio is None:
        return Judged("undecided", f"{change.title}: {shift.note}")
    is_slower = shift.ratio.high < 1 - share
    limit = f"{1 - share:.4g}x"
    said = f"surely below {limit}" if is_slower else f"not surely below {limit}"
    return Judged(
        "failed" if is_slower else "passed",
        f"{change.title}: the recommended speed is {ratio(shift.ratio)}, {said}",
    )
