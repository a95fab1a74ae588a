"""A condition on two studies for a pipeline: fail if the later one is surely slower."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tuner.errors import UsageError
from tuner.output.compare import Comparison, StudyFound, compare, workload_of
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
    """Return, for each workload, whether its last study is slower than its first by a share.

    It is if the whole interval of the recommended speeds' ratio is below 1 - share. Raises
    UsageError if no two studies are of one workload.
    """
    pairs = _first_and_last(comparison)
    if not pairs:
        raise UsageError(
            "--fail-if compares two studies of the same model, framework and scenario, and these "
            "hold no two; name an earlier and a later one"
        )
    return [_judged(first, last, share) for first, last in pairs]


def _first_and_last(comparison: Comparison) -> list[tuple[StudyFound, StudyFound]]:
    by_workload: dict[object, list[StudyFound]] = {}
    for study in comparison.studies:  # in the order of time
        by_workload.setdefault(workload_of(study.result), []).append(study)
    return [(each[0], each[-1]) for each in by_workload.values() if len(each) > 1]


def _judged(first: StudyFound, last: StudyFound, share: float) -> Judged:
    change = compare([first, last]).changes[0]
    (shift,) = (each for each in change.shifts if each.figure == "recommended speed")
    if change.obstacle:
        return Judged("undecided", f"{change.title}: {change.obstacle}, so speeds do not compare")
    if undecided := [each.name for each in (first, last) if each.result.verdict == "ambiguous"]:
        return Judged("undecided", f"{change.title}: {' and '.join(undecided)} decided nothing")
    if shift.ratio is None:
        return Judged("undecided", f"{change.title}: {shift.note}")
    is_slower = shift.ratio.high < 1 - share
    limit = f"{1 - share:.4g}x"
    said = f"surely below {limit}" if is_slower else f"not surely below {limit}"
    return Judged(
        "failed" if is_slower else "passed",
        f"{change.title}: the recommended speed is {ratio(shift.ratio)}, {said}",
    )
