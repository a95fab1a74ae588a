"""Measure a whole space on this host, launch by launch: a table on which searches are replayed.

    python -m benchmarks.record NAME... [--folder benchmarks/tables] [--minutes 90] [--spaces FILE]

NAME is a table of benchmarks/tables/spaces.toml, or of the FILE given instead; its file is
NAME.json.gz (benchmarks/table.py says what is in it). Every configuration is launched three times,
each time all of them in another random order, then the fifteen best until each has ten. Beside
every launch the pacer is measured, as in a study. The file is written after every launch: stop at
any time (Ctrl-C or SIGTERM ends after the present launch), and the same command goes on. Run
nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.table import Cut, Recording, Table, Taken, read_table, write_table
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.errors import TuneError
from tuner.galleries import MODELS, SEARCH_SPACES
from tuner.host.identity import Host, probe
from tuner.launchers.describe import find_model, make_reference
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.bench import Bench, bench_on
from tuner.measurement.interference_gate import WAITING_SHARE
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.space.baselines import to_measure
from tuner.space.profile_file import load_profile
from tuner.space.resolve import knob_ids
from tuner.space.restrictions import Restrictions

HERE = Path(__file__).with_name("tables")
SPACES = HERE / "spaces.toml"
PASSES = 3
"""Launches of every configuration."""
BEST, BEST_LAUNCHES = 15, 10
_LEAST_SLICES = Scatter(1.0, 0.0)
"""Where launches scatter so much, slices are not worth their time: a launch takes the least. More
launches tell more of a table than longer ones."""
_COMPARED = ("hardware", "versions", "space")
"""Parts of a study's identity that must not change between sessions of a recording."""


class Sketch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be recorded, as spaces.toml says it."""

    title: str
    model: str
    framework: str
    hardware: str = "auto"
    """The profile whose values and baselines are meant."""
    batch: int | None = None
    objective: Literal["rate", "p99"] = "rate"
    memory_gib: float | None = None
    set: dict[str, list[Value]] = {}
    fix: dict[str, Value] = {}


def sketches(spaces: Path = SPACES) -> dict[str, Sketch]:
    """Return every table of a file like spaces.toml."""
    data = tomllib.loads(spaces.read_text())
    return {name: msgspec.convert(each, Sketch) for name, each in data.items()}


def plan_of(sketch: Sketch, host: Host) -> Plan:
    """Resolve the space of a sketch on this host: what it does not name is excluded."""
    _, card = find_model(sketch.model, MODELS)
    known = knob_ids(load_profile(sketch.hardware, SEARCH_SPACES), (sketch.framework,), card.form)
    named = {*sketch.set, *sketch.fix, "workload.batch"}
    restrictions = Restrictions(
        values={knob: tuple(values) for knob, values in sketch.set.items()},
        fixed=dict(sketch.fix),
        excluded=tuple(knob for knob in known if knob not in named),
    )
    request = Request(
        model=sketch.model,
        hardware=sketch.hardware,
        frameworks=(sketch.framework,),
        batch=sketch.batch,
        restrictions=restrictions,
    )
    return plan(request, host)[0]


def empty_table(name: str, sketch: Sketch, plan: Plan, host: Host) -> Table:
    """Return the table of a plan's space, with nothing measured."""
    space = plan.space
    choices = {
        knob.id: (knob.default, *(c for c in knob.choices if c != knob.default))
        for knob in space.searched
    }
    fixed = space.fixed_by_user()
    same_as = {
        values: space.canonical({**fixed, **dict(zip(choices, values, strict=True))})
        for values in itertools.product(*choices.values())
    }
    baselines = {
        b.name: b.configuration.as_dict()
        for b in to_measure(plan.baselines)
        if b.configuration in set(same_as.values())
    }
    recording = Recording(
        name=name,
        title=sketch.title,
        model=sketch.model,
        framework=sketch.framework,
        batch=plan.workload.card.reference_batch,
        objective=sketch.objective,
        host=host.summary(),
        versions={**host.versions, **plan.facts.versions},
        identity={part: plan.identity_parts[part] for part in _COMPARED},
        dates=[],
        baselines=baselines,
        pacer=[],
    )
    launches: dict[Configuration, list[Taken]] = {c: [] for c in same_as.values()}
    return Table(name, choices, same_as, launches, recording)


def due(table: Table) -> Iterator[Configuration]:
    """Yield what to launch next until nothing is missing; `table` grows meanwhile.

    A launch that was interrupted is not in the table and is yielded again.
    """
    for number, configurations in itertools.groupby(_passes(table), key=lambda pair: pair[0]):
        print(f"{table.name}: pass {number}", file=sys.stderr, flush=True)
        for _, configuration in configurations:
            yield configuration


def _passes(table: Table) -> Iterator[tuple[int, Configuration]]:
    for number in range(1, BEST_LAUNCHES + 1):
        wanted = list(table.launches) if number <= PASSES else _best(table)
        missing = [c for c in wanted if len(table.launches[c]) < number]
        order = random.Random(f"{table.name} {number}").sample(missing, len(missing))
        yield from ((number, configuration) for configuration in order)


def _best(table: Table) -> list[Configuration]:
    truth = {c: level for c, level in table.truth().items() if level is not None}
    return sorted(truth, key=truth.__getitem__, reverse=True)[:BEST]


def taken(record: LaunchRecord, objective: str, session: int, began: float) -> Taken:
    """Return what a table keeps of a launch."""
    ending = record.ending or Ending(Outcome.MEASURED)
    n_slices = len(record.slices)
    slice_s = record.slicing_s / n_slices if n_slices else 0.0
    return Taken(
        session=session,
        at_s=round(record.request.started_s, 2),
        fixed_s=round(record.total_s - record.slicing_s - record.check_s, 3),
        slices=tuple(cut(s, objective, began) for s in record.slices),
        slice_s=round(slice_s, 4),
        check_s=round(record.check_s, 3),
        outcome=str(ending.outcome),
        reason=ending.reason[:200],
    )


def cut(taken_slice: Slice, objective: str, began: float) -> Cut:
    """Return what a table keeps of a slice."""
    rate = taken_slice.rate
    if objective == "p99":
        assert taken_slice.latency is not None
        rate = 1 / taken_slice.latency.p99_s
    at_s = round(taken_slice.at - began, 2)
    return Cut(at_s, float(f"{rate:.7g}"), bool(taken_slice.interference.dirty))


@contextmanager
def stopped_gently() -> Iterator[list[bool]]:
    """Let Ctrl-C and SIGTERM end the recording after this launch; the list then holds one."""
    asked: list[bool] = []
    previous = {
        number: signal.signal(number, lambda *_: asked.append(True))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def record(name: str, sketch: Sketch, folder: Path, minutes: float) -> bool:
    """Go on with a table for so many minutes, but for a launch at least.

    Returns whether it is complete.
    """
    host = probe()
    planned = plan_of(sketch, host)
    path = folder / f"{name}.json.gz"
    table = fresh = empty_table(name, sketch, planned, host)
    assert fresh.recording is not None
    if path.exists():
        table = read_table(path)
        _refuse_another(path, table, fresh.recording.identity)
    assert table.recording is not None
    if next(due(table), None) is None:
        return True
    session, began = len(table.recording.pacer), time.monotonic()
    table.recording.pacer.append([])
    table.recording.dates.append(datetime.date.today().isoformat())
    with tempfile.TemporaryDirectory() as place, Store(Path(place) / "study") as store:
        store.used_s = lambda: time.monotonic() - began
        bench = _bench(store, host, planned, minutes)
        try:
            with stopped_gently() as asked, _memory_limit(sketch.memory_gib):
                bench.measure(Configuration(), Purpose.BASELINE, noise=_LEAST_SLICES)
                for n_taken, configuration in enumerate(due(table)):
                    if asked or (n_taken and time.monotonic() - began > 60 * minutes):
                        return False
                    found = bench.measure(configuration, Purpose.SEARCH, noise=_LEAST_SLICES)
                    table.launches[configuration].append(
                        taken(found, sketch.objective, session, began)
                    )
                    table.recording.pacer[session] = [
                        cut(s, sketch.objective, began)
                        for r in store.launches.values()
                        if r.request.purpose is Purpose.PACER
                        for s in r.slices
                    ]
                    write_table(path, table)
        finally:
            bench.close()
    return True


def _bench(store: Store, host: Host, planned: Plan, minutes: float) -> Bench:
    workload = planned.workload
    make_reference(
        workload.model,
        workload.framework,
        workload.seed,
        store.reference_path,
        max(workload.card.n_check_inputs(changes_numerics=c) for c in (False, True)),
    )
    return bench_on(
        THIS_HOST,
        store,
        host,
        workload,
        planned.facts,
        THROUGHPUT,
        lambda _: None,
        session=1,
        seed=0,
        seconds_left=lambda: 3600.0,
        waiting_s=WAITING_SHARE * 60 * minutes,
    )


@contextmanager
def _memory_limit(gib: float | None) -> Iterator[None]:
    """Limit the private memory of what is launched meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if gib is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _refuse_another(path: Path, table: Table, identity: Mapping[str, str]) -> None:
    assert table.recording is not None
    changed = [part for part in _COMPARED if table.recording.identity.get(part) != identity[part]]
    if changed:
        sys.exit(f"{path}: {', '.join(changed)} changed since it was begun: record it anew "
                 "elsewhere with --folder")  # fmt: skip


def _outline(name: str, sketch: Sketch) -> str:
    host = probe()
    table = empty_table(name, sketch, plan_of(sketch, host), host)
    assert table.recording is not None
    sizes: Any = {knob: len(choices) for knob, choices in table.choices.items()}
    return (f"{name}: {len(table.launches)} configurations of {len(table.same_as)} combinations "
            f"{sizes}, baselines {list(table.recording.baselines)}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--spaces", type=Path, default=SPACES)
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--outline", action="store_true", help="only say what would be measured")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"--folder {arguments.folder} is no folder: make it first")
    known = sketches(arguments.spaces)
    for name in arguments.names:
        if name not in known:
            parser.error(f"no table {name!r} in {arguments.spaces}; there are: {', '.join(known)}")
    for name in arguments.names:
        sketch = known[name]
        if arguments.outline:
            print(_outline(name, sketch))
            continue
        try:
            is_whole = record(name, sketch, arguments.folder, arguments.minutes)
        except TuneError as error:
            sys.exit(f"{name}: {error}")
        print(f"{name}: {'complete' if is_whole else 'to be gone on with'}")
        if not is_whole:
            break


if __name__ == "__main__":
    main()
