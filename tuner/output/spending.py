"""Where the seconds of a study went, in words: by activity and phase."""

from __future__ import annotations

import msgspec

from tuner.frameworks import FRAMEWORKS
from tuner.record.result import Result
from tuner.record.study_stats import PhaseSeconds

KINDS = {
    "timed": ("scored",),
    "pacer": ("pacer",),
    "starting": ("start_up", "imports", "build"),
    "compiling": ("first_call",),
    "warming up": ("warm_up", "discarded"),
    "checks": ("check", "profile", "neighbour"),
    "waiting": ("waiting", "disturbed"),
    "the tool": ("own", "ending"),
}
"""The parts that the report distinguishes, as fields of PhaseSeconds."""
MEANING = (
    "Timed: slices that nothing disturbed; only they, and the pacer's, tell how fast something is. "
    "Starting: processes, imports, the model. Compiling: the first call. Warming up: calls that "
    "are not timed. Checks: outputs compared, profiles, slices next to a busy neighbour. Waiting: "
    "for quiet, and slices that were disturbed. The tool: a look at the host and the model, its "
    "own work between launches, ending processes."
)
_MINUTES_FROM_S = 120.0
"""Shorter studies are printed in seconds."""


def went(result: Result) -> str:
    """Write the heading of the section on where the time went."""
    if not result.seconds_by_phase:
        return "Where the time went"
    wall_s = result.seconds.wall
    in_words = (
        f"{wall_s / 60:.0f} minutes" if wall_s >= _MINUTES_FROM_S else f"{wall_s:.0f} seconds"
    )
    return f"Where the {in_words} went"


def by_kind(result: Result) -> dict[str, float]:
    """Return the seconds of each kind on which any went; empty for results of earlier versions."""
    rows = [of_phase(row) for row in result.seconds_by_phase]
    sums = {kind: sum(row[kind] for row in rows) for kind in KINDS}
    return {kind: seconds for kind, seconds in sums.items() if in_seconds(seconds)}


def of_phase(row: PhaseSeconds) -> dict[str, float]:
    """Return the seconds of each kind in one phase."""
    return {kind: sum(getattr(row, name) for name in names) for kind, names in KINDS.items()}


def in_seconds(seconds: float) -> str:
    """Write seconds for a table; nothing if they are close to zero."""
    if seconds < 0.05:
        return ""
    return f"{seconds:.0f}" if seconds >= 9.5 else f"{seconds:.1f}"


def time_spent(result: Result) -> str:
    """Write where the seconds of a study went."""
    if not (kinds := by_kind(result)):
        return _of_launches(result)
    parts = [f"{kind} {in_seconds(seconds)} s" for kind, seconds in kinds.items()]
    return f"{used(result)}: {', '.join(parts)}."


def used(result: Result) -> str:
    """Write how much of the budget was used."""
    return f"{result.seconds.wall:.0f} s of {result.budget_s:.0f} s"


def _of_launches(result: Result) -> str:
    """Write what the launches reported about themselves, if no more is known."""
    spent = result.seconds
    known_s = sum(msgspec.structs.astuple(spent)) - spent.wall
    entry = FRAMEWORKS.get(result.framework)
    is_virtual = entry is not None and entry.is_virtual
    whose = "of the launches' virtual seconds: " if is_virtual else ""
    rest = (
        "" if is_virtual else f", the tool itself and ending processes {spent.wall - known_s:.0f} s"
    )
    return (
        f"{used(result)}: {whose}"
        f"scored {spent.scored:.0f} s, pacer {spent.pacer:.0f} s, warm-up, output checks and "
        f"profiles {spent.warm_up:.0f} s, compilation {spent.compile:.0f} s, start-up "
        f"{spent.start_up:.0f} s, waiting and disturbed slices {spent.waiting:.0f} s{rest}."
    )
