"""Studies side by side: models, frameworks and hosts, and what changed between two of the same.

Speedups were measured together with their own default, so that they are comparable. A smaller one
is no loss if the default has become faster. Absolute values of different days include the days'
differences, of which their intervals know nothing.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from tuner.errors import UsageError
from tuner.output.values import bounds, value_of
from tuner.output.why import changes_of_default
from tuner.record.configuration import Value
from tuner.record.files import read_result, results_below
from tuner.record.identities import differing, said
from tuner.record.index import FLEET_FILE, Row, read_index
from tuner.record.interval import Interval
from tuner.record.result import Result

Figure = Literal["default's speed", "recommended speed", "speedup"]
Direction = Literal["faster", "slower", "larger", "smaller", "no change seen", "not known"]
"""Speeds become faster or slower, speedups larger or smaller: the interval does not hold 1."""
_HARDWARE = ("processor", "allowed_cpus", "physical_cores", "quota_cores", "numa_nodes", "gpus")


class StudyFound(msgspec.Struct, frozen=True):
    """A finished study and its name in the comparison."""

    name: str
    result: Result
    fleet: str = ""
    """The folder of the fleet that it belongs to, if it does."""
    row: Row | None = None
    """The fleet's index row: where it was made, and the results of other hosts."""

    @property
    def hosts(self) -> set[str]:
        """Return the hosts of the fleet on which it was made."""
        return set() if self.row is None else set(self.row.hosts)


class Shift(msgspec.Struct, frozen=True):
    """How one figure differs between two studies: the later over the earlier."""

    figure: Figure
    ratio: Interval | None
    direction: Direction
    note: str = ""
    """Why it is not known, or what else the ratio holds."""


class Change(msgspec.Struct, frozen=True):
    """Two studies of the same workload, one after the other or on two kinds of host of a fleet."""

    before: str
    after: str
    differs: list[str]
    """The differences: hosts, versions, settings."""
    shifts: list[Shift]
    is_regression: bool
    """Whether the same model became slower on the same hardware, by an interval without 1."""
    is_within_fleet: bool = False
    """Whether they are of two hosts of one fleet, neither of which replaces the other."""
    obstacle: str = ""
    """Why the speeds of the two say nothing about each other; empty if they do."""
    because: list[str] = []
    """Classes of operators that take another time, if both studies were explained."""

    @property
    def title(self) -> str:
        """Name the two."""
        return f"{self.before}{' beside ' if self.is_within_fleet else ', then '}{self.after}"


class Comparison(msgspec.Struct, frozen=True):
    """Studies in the order of time, and what changed between those of the same workload."""

    studies: list[StudyFound]
    changes: list[Change]


def find_studies(places: Iterable[Path]) -> list[StudyFound]:
    """Read every result in or below some folders, or named as a file.

    Raises UsageError if a place holds none, or if one cannot be read.
    """
    files: dict[Path, Path] = {}
    for place in places:
        try:
            is_file = place.is_file()
        except OSError as error:
            raise UsageError(f"{place}: {error.strerror}") from error
        for file in [place] if is_file else results_below(place):
            files[file.resolve()] = file
    names = _names(list(files.values()))
    fleets: dict[Path, dict[str, Row]] = {}
    return [_found(names[file], file, fleets) for file in files.values()]


def _found(name: str, file: Path, fleets: dict[Path, dict[str, Row]]) -> StudyFound:
    """Read a study; fleets: the rows of each, by folders, as far as known."""
    folder = file.resolve().parent
    fleet = folder.parent
    if not (fleet / FLEET_FILE).is_file():
        return StudyFound(name, read_result(file))
    if fleet not in fleets:
        fleets[fleet] = {row.folder: row for row in read_index(fleet).rows}
    return StudyFound(name, read_result(file), str(fleet), fleets[fleet].get(folder.name))


def _are_beside_each_other(a: StudyFound, b: StudyFound) -> bool:
    """Tell whether they are of different hosts of one fleet, not of one host before and after."""
    is_one_fleet = bool(a.fleet) and a.fleet == b.fleet
    return is_one_fleet and bool(a.hosts) and bool(b.hosts) and not a.hosts & b.hosts


def _names(files: Sequence[Path]) -> dict[Path, str]:
    """Call each study by its folder, with as many folders above as tell it from the others."""
    whole = {f: f.parent if f.name == "result.json" else f.with_suffix("") for f in files}
    for n_parts in range(1, max((len(p.parts) for p in whole.values()), default=0) + 1):
        names = {file: "/".join(path.parts[-n_parts:]) for file, path in whole.items()}
        if len(set(names.values())) == len(files):
            return {file: name or str(file) for file, name in names.items()}
    return {file: str(file) for file in files}


def compare(studies: list[StudyFound]) -> Comparison:
    """Put studies in the order of time and compare each with the one before it of its workload.

    The one before it on the same hardware; and between hosts, the latest of each.
    """
    ordered = sorted(studies, key=_when)
    by_workload: dict[tuple[object, ...], list[StudyFound]] = defaultdict(list)
    for study in ordered:
        by_workload[workload_of(study.result)].append(study)
    pairs = [pair for group in by_workload.values() for pair in _pairs(group)]
    pairs.sort(key=lambda pair: (_when(pair[1]), _when(pair[0])))
    return Comparison(ordered, [_change(before, after) for before, after in pairs])


def workload_of(result: Result) -> tuple[object, ...]:
    """Return what two studies have to share to be compared."""
    slo = result.objective.slo
    trace = None if slo is None or slo.trace is None else slo.trace.sha256
    bound = None if slo is None else (slo.quantile, f"{slo.seconds:.2g}", trace)
    load = (result.scenario, result.callers, bound, result.reference_batch)
    return (result.model, result.framework, *load, result.numerics)


def _when(study: StudyFound) -> tuple[str, str]:
    """Return the key that sorts studies by time; those of one second by their names."""
    return study.result.created, study.name


def _pairs(studies: Sequence[StudyFound]) -> list[tuple[StudyFound, StudyFound]]:
    """Return which studies of a workload are compared, the earlier one first.

    A fleet's studies alternate between its hosts: an upgrade shows on each host by itself.
    """
    by_hardware: dict[str, list[StudyFound]] = defaultdict(list)
    for study in studies:
        by_hardware[_hardware(study.result)].append(study)
    within = [pair for group in by_hardware.values() for pair in pairwise(group)]
    latest = sorted((group[-1] for group in by_hardware.values()), key=_when)
    return [*within, *pairwise(latest)]


def _hardware(result: Result) -> str:
    identity = result.host.identity
    return json.dumps({part: identity.get(part) for part in _HARDWARE}, sort_keys=True)


def _change(before: StudyFound, after: StudyFound) -> Change:
    a, b = before.result, after.result
    of_speeds: tuple[Direction, Direction] = ("faster", "slower")
    shifts = [
        _shift_of_default(a, b, of_speeds),
        _shift("recommended speed", _recommended_value(a), _recommended_value(b), of_speeds),
    ]
    without = _times(a.verdict != "faster", b.verdict != "faster")
    if without:
        note = f"nothing was recommended {without}"
        shifts.append(Shift("speedup", None, "not known", note))
    else:
        shifts.append(_shift("speedup", a.speedup, b.speedup, ("larger", "smaller")))
    is_within_fleet = _are_beside_each_other(before, after)
    obstacle = _obstacle(a, b, is_within_fleet)
    return Change(
        before.name,
        after.name,
        [
            *_differing_models(a, b),
            *_differing_hosts(a, b),
            *_differing_versions(a, b),
            *_differing_ways(a, b),
            *_differing_settings(a, b),
        ],
        shifts,
        not obstacle and any(shift.direction == "slower" for shift in shifts),
        is_within_fleet,
        obstacle,
        [] if obstacle or a.default.batch != b.default.batch else changes_of_default(a, b),
    )


def _obstacle(a: Result, b: Result, is_within_fleet: bool) -> str:
    """Return what keeps the speeds of two studies from being compared; empty if nothing does."""
    if is_within_fleet or _hardware(a) != _hardware(b):
        return "the hosts differ"
    return "the model's file has changed" if _differing_models(a, b) else ""


def _shift_of_default(a: Result, b: Result, words: tuple[Direction, Direction]) -> Shift:
    """Compare the defaults, each at the batch at which it was fastest."""
    shift = _shift("default's speed", _default_value(a), _default_value(b), words)
    if shift.ratio is None or a.default.batch == b.default.batch:
        return shift
    note = f"fastest at batch {a.default.batch}, then at {b.default.batch}"
    return msgspec.structs.replace(shift, note=note)


def _recommended_value(result: Result) -> Interval | None:
    """Return the speed of the study's recommendation, which may be the default."""
    if result.verdict != "faster":
        return _default_value(result)
    return _speed(value_of(result.winners[result.recommended_class]), result)


def _default_value(result: Result) -> Interval | None:
    return _speed(value_of(result.default), result)


def _speed(value: Interval | None, result: Result) -> Interval | None:
    """Turn a value so that more is better: quotients of speeds mean something."""
    return None if value is None else result.objective.in_unit(value)


def _shift(
    figure: Figure,
    before: Interval | None,
    after: Interval | None,
    words: tuple[Direction, Direction],
) -> Shift:
    if before is None or after is None:
        when = _times(before is None, after is None)
        return Shift(figure, None, "not known", f"too few rounds confirmed it {when}")
    ratio = _quotient(after, before)
    up, down = words
    direction: Direction = up if ratio.low > 1 else down if ratio.high < 1 else "no change seen"
    return Shift(figure, ratio, direction)


def _times(is_before: bool, is_after: bool) -> str:
    return " and ".join(["before"] * is_before + ["after"] * is_after)


def _quotient(a: Interval, b: Interval) -> Interval:
    """Divide two independent estimates: their half widths add up as squares, on the log scale."""
    point = a.point / b.point
    below = math.hypot(math.log(a.point / a.low), math.log(b.high / b.point))
    above = math.hypot(math.log(a.high / a.point), math.log(b.point / b.low))
    return Interval(
        point, point * math.exp(-below), point * math.exp(above), min(a.confidence, b.confidence)
    )


def _differing_models(a: Result, b: Result) -> list[str]:
    """Tell whether files of one name are two; results of earlier versions do not know."""
    old, new = a.source_sha256[:12], b.source_sha256[:12]
    return _arrows({"the model's file": (old, new)}) if old and new else []


def _differing_hosts(a: Result, b: Result) -> list[str]:
    if a.host.fingerprint == b.host.fingerprint:
        return []
    differences = differing(a.host.identity, b.host.identity)
    of_versions = {f"versions, {name}" for name in (*a.versions, *b.versions)}  # told by themselves
    found = _arrows(
        {name.replace("_", " "): v for name, v in differences.items() if name not in of_versions}
    )
    is_explained = found or _differing_versions(a, b)
    return found if is_explained else ["the host, in what its result does not name"]


def _differing_versions(a: Result, b: Result) -> list[str]:
    names = dict.fromkeys((*a.versions, *b.versions))
    return _arrows({name: (a.versions.get(name), b.versions.get(name)) for name in names})


def _differing_ways(a: Result, b: Result) -> list[str]:
    """Tell how the studies themselves differ."""
    return _arrows(
        {
            "goal": (a.goal, b.goal),
            "recommended class": (a.recommended_class, b.recommended_class),
            "default's batch": (a.default.batch, b.default.batch),
            "tolerance": (a.tolerance, b.tolerance),
            "bounds": (bounds(a) or "none", bounds(b) or "none"),
            "metric": (a.objective.metric, b.objective.metric),
        }
    )


def _differing_settings(a: Result, b: Result) -> list[str]:
    old, new = _recommended(a), _recommended(b)
    knobs = dict.fromkeys((*old, *new))
    return _arrows({k: (old.get(k, "default"), new.get(k, "default")) for k in knobs})


def _recommended(result: Result) -> dict[str, Value]:
    is_set = result.verdict == "faster"
    return result.winners[result.recommended_class].configuration if is_set else {}


def _arrows(differences: dict[str, tuple[object, object]]) -> list[str]:
    return [f"{name}: {said(a)} -> {said(b)}" for name, (a, b) in differences.items() if a != b]
