"""A space of which every configuration was measured: own recordings and Kernel Tuner's caches.

The file is a Kernel Tuner cache (JSON, gzipped where its name ends so), which that tool's
simulation mode reads as it is: `tune_params` names the settings with their values, `cache` holds an
entry for every combination of them, by its values joined with commas. Times there are milliseconds:

    time                what is minimised: per item, or a call's 99th percentile;
    "RuntimeFailedConfig"
                        where it never worked
    times               of each launch
    compile_time        a launch without its slices: start-up, preparation, warm-up, output check
    benchmark_time      a launch's slices

An own recording (benchmarks/record.py) has more, which Kernel Tuner ignores. Combinations with the
same effect name the canonical one in `same_as`; that one holds its raw `launches` (`Taken` below).
In `recording` stand title, workload, objective, host, versions, the baselines by name, the identity
of what was measured, and `pacer`: per session the slices of the resident default, [at, rate,
is_dirty]. Of times a session's clock is meant (seconds since its beginning).
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tuner.measurement.replication import SEARCH
from tuner.record.configuration import Configuration, Value

FAILED = "RuntimeFailedConfig"


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """A slice as it was measured."""

    at_s: float
    rate: float
    """Items per second; where the objective is p99, one over its seconds."""
    is_dirty: bool = False


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A launch as it was measured."""

    session: int
    at_s: float
    """When it began."""
    fixed_s: float
    """Its seconds without slices and output check."""
    slices: tuple[Cut, ...] = ()
    slice_s: float = 0.0
    """Seconds of a slice, with the discarded call before it."""
    check_s: float = 0.0
    outcome: str = "measured"
    reason: str = ""

    @property
    def level(self) -> float:
        """The median log rate of its clean slices; of all where none is clean."""
        clean = [s for s in self.slices if not s.is_dirty] or self.slices
        return statistics.median(math.log(s.rate) for s in clean)

    @property
    def total_s(self) -> float:
        """All seconds of the launch."""
        return self.fixed_s + self.check_s + self.slice_s * len(self.slices)


class Recording(msgspec.Struct):
    """What an own table says of itself."""

    name: str
    title: str
    model: str
    framework: str
    batch: int
    objective: str
    host: str
    versions: dict[str, str]
    identity: dict[str, str]
    dates: list[str]
    baselines: dict[str, dict[str, Value]]
    pacer: list[list[Cut]]


class Table:
    """Every configuration of a space with what was measured of it.

    choices: the settings with all their values, the default's first. same_as: every combination, in
    the order of itertools.product, as the canonical configuration with its effect.
    """

    def __init__(
        self,
        name: str,
        choices: Mapping[str, tuple[Value, ...]],
        same_as: Mapping[tuple[Value, ...], Configuration],
        launches: Mapping[Configuration, list[Taken]],
        recording: Recording | None = None,
    ) -> None:
        self.name = name
        self.choices = dict(choices)
        self.same_as = dict(same_as)
        self.launches = dict(launches)
        self.recording = recording
        self.knobs = tuple(self.choices)

    @property
    def default(self) -> Configuration | None:
        """The framework's default; None in a foreign table, which has none."""
        return Configuration() if self.recording is not None else None

    def values(self, configuration: Configuration) -> tuple[Value, ...]:
        """Return a value for every setting, defaults filled in."""
        set_ = configuration.as_dict()
        return tuple(set_.get(knob, choices[0]) for knob, choices in self.choices.items())

    def truth(self) -> dict[Configuration, float | None]:
        """Return each configuration's log rate: the mean over its launches; None if it fails.

        What failed in half of its launches or more is taken as failing: it cannot be shipped.
        """
        found: dict[Configuration, float | None] = {}
        for configuration, launches in self.launches.items():
            good = [t.level for t in launches if t.outcome == "measured" and t.slices]
            is_sound = len(good) > len(launches) / 2
            found[configuration] = statistics.fmean(good) if is_sound else None
        return found


def read_table(path: Path) -> Table:
    """Read an own recording, or any Kernel Tuner cache whose `time` is to be minimised."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    data = json.loads(text)
    if "recording" in data:
        return _own(data)
    return _foreign(path.name.removesuffix(".gz").removesuffix(".json"), data)


def _own(data: dict[str, Any]) -> Table:
    recording = msgspec.convert(data["recording"], Recording)
    choices = {knob: tuple(data["tune_params"][knob]) for knob in data["tune_params_keys"]}
    same_as, launches = {}, {}
    by_key: dict[str, Configuration] = {}
    entries = list(zip(itertools.product(*choices.values()), data["cache"].items(), strict=True))
    for _, (key, entry) in entries:
        if "same_as" not in entry:
            configuration = Configuration.of(entry["settings"])
            by_key[key] = configuration
            launches[configuration] = msgspec.convert(entry["launches"], list[Taken])
    for values, (key, entry) in entries:
        same_as[values] = by_key[entry.get("same_as", key)]
    return Table(recording.name, choices, same_as, launches, recording)


def _foreign(name: str, data: dict[str, Any]) -> Table:
    """Take a file of Kernel Tuner's own: a launch each. Its settings are called env.NAME here."""
    keys = data["tune_params_keys"]
    cache = data["cache"].values()
    choices = {
        f"env.{key}": tuple(
            sorted({entry[key] for entry in cache}, key=lambda v: (str(type(v)), v))
        )
        for key in keys
    }
    same_as, launches = {}, {}
    for entry in cache:
        values = tuple(entry[key] for key in keys)
        # all of them are written down: such a table has no default that could be left out
        configuration = Configuration.of(dict(zip(choices, values, strict=True)))
        same_as[values] = configuration
        launches[configuration] = [_foreign_launch(entry)]
    return Table(name, choices, same_as, launches)


def _foreign_launch(entry: dict[str, Any]) -> Taken:
    fixed_s = sum(float(entry.get(f"{part}_time") or 0) for part in ("compile", "verification"))
    time_ms = entry["time"]
    if isinstance(time_ms, str) or not math.isfinite(time_ms):
        return Taken(0, 0.0, fixed_s / 1000, outcome="crashed", reason=str(time_ms))
    benchmark_s = float(entry.get("benchmark_time") or 0) / 1000
    # as many slices as a study takes of a launch at the least, so that it pays for all of them
    cuts = (Cut(0.0, 1000 / time_ms),) * SEARCH.least
    return Taken(0, 0.0, fixed_s / 1000, cuts, benchmark_s / len(cuts))


def write_table(path: Path, table: Table) -> None:
    """Write an own recording, all of it or nothing."""
    assert table.recording is not None
    truth = table.truth()
    keys: dict[Configuration, str] = {}
    cache = {}
    for values, configuration in table.same_as.items():
        key = ",".join(map(str, values))
        entry: dict[str, Any] = dict(zip(table.knobs, values, strict=True))
        entry |= _summary(table.launches[configuration], truth[configuration])
        if configuration in keys:
            entry["same_as"] = keys[configuration]
        else:
            keys[configuration] = key
            entry["settings"] = configuration.as_dict()
            entry["launches"] = msgspec.to_builtins(table.launches[configuration])
        cache[key] = entry
    data = {
        "device_name": table.recording.host,
        "kernel_name": table.name,
        "problem_size": str(table.recording.batch),
        "tune_params_keys": list(table.knobs),
        "tune_params": {knob: list(choices) for knob, choices in table.choices.items()},
        "objective": "time",
        "recording": msgspec.to_builtins(table.recording),
        "cache": cache,
    }
    draft = path.with_name(f".{path.name}.new")
    # without a name and a moment in it the same recording is the same file
    draft.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0))
    draft.replace(path)


def _summary(launches: list[Taken], truth: float | None) -> dict[str, Any]:
    good = [t for t in launches if t.outcome == "measured" and t.slices]
    fixed = [t.fixed_s + t.check_s for t in launches]
    slicing = [t.slice_s * len(t.slices) for t in good]
    return {
        "time": FAILED if truth is None else 1000 * math.exp(-truth),
        "times": [round(1000 * math.exp(-t.level), 6) for t in good],
        "compile_time": round(1000 * statistics.fmean(fixed), 1) if fixed else 0.0,
        "verification_time": 0,
        "benchmark_time": round(1000 * statistics.fmean(slicing), 1) if slicing else 0.0,
        "strategy_time": 0,
        "framework_time": 0,
    }
