"""Does the code of today do what it did? Whole studies on virtual clocks, launch by launch.

    python -m benchmarks.golden record [--only NAMES] [--seeds 30] [--into FOLDER]
    python -m benchmarks.golden compare [--only NAMES] [--seeds 30] [--recorded FOLDER]
                                        [--against REVISION]

Studies are replayed on recorded noise, with settings that are worth nothing, one that is worth
something, and several (benchmarks/replay.py), and on every own table (benchmarks/tabled.py), each
from so many seeds; what they do and say is one file a source (benchmarks/golden_file.py). `record`
writes the files; `compare` replays the same studies, names the first difference, and exits with 1
if there is one. --against: compare with what another revision of this repository does, which is
checked out into a temporary worktree, instead of with the files.

A study's course depends on nothing but code, source and seed: its clock is virtual, its host is
described, and it computes in processes of their own (EXACTLY below).
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from benchmarks import replay, tabled
from benchmarks.deck import Deck
from benchmarks.false_claims import recordings
from benchmarks.golden_file import (
    Claimed,
    Course,
    Ended,
    Golden,
    Launched,
    Named,
    Tried,
    first_difference,
    read_golden,
    write_golden,
)
from benchmarks.processes import ONE_THREAD, processes
from benchmarks.table import Table, read_table
from benchmarks.tape import Recording
from tuner.analysis.winners import recommended_class
from tuner.app.plan import Plan
from tuner.record.journal import FinalistNamed
from tuner.record.winner_class import WinnerClass
from tuner.study.confirm import make_claims
from tuner.study.planner import Planner
from tuner.study.steps import Steps
from tuner.study.study import Study

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).parent / "golden"
TABLES = Path(__file__).parent / "tables"
BUDGET_S = 600.0
"""Virtual seconds of each study: the budget where none is given."""
EXACTLY = {
    # more threads may sum in another order; the last digits did not differ in 20 studies with two
    **ONE_THREAD,
    # OpenBLAS and numpy compute with the widest instructions of the processor, each in an order of
    # its own, and one last digit may tip a choice: with AVX-512, final scores of 2 in 6 studies
    # differed in it; most x86-64 processors since 2013 have the instructions of Haswell
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
"""The environment of the processes that replay."""
ON_NOISE: Mapping[str, replay.Effects] = MappingProxyType(
    {
        "noise-nothing": {},
        "noise-one": {"launch.allocator=tcmalloc": math.log(1.1)},
        "noise-several": {
            "launch.allocator=tcmalloc": math.log(1.25),
            "env.FAKE_THREADS=4": math.log(1.4),
            "fake.streams=2": math.log(0.7),
            "fake.layout=blocked": math.log(0.8),
            "fake.compile=fast": math.log(1.5),
            "fake.precision=bf16": math.log(1.8),
        },
    }
)
"""Sources on recorded noise, quiet and busy in turns: what settings are worth."""


class Job(msgspec.Struct, frozen=True):
    """One study to replay."""

    source: str
    seed: int
    plan: Plan | None = None
    """The fake's, of a study on noise; None of one on a table."""


def sources() -> list[str]:
    """Return the name of every source of studies."""
    paths = sorted(TABLES.glob("*.json.gz"))
    return [*ON_NOISE, *(path.name.removesuffix(".json.gz") for path in paths)]


def play(job: Job) -> Course:
    """Carry out a study; return its course."""
    with _study_of(job) as (study, phases):
        ends, planner = [], Planner(study)
        for phase in phases:
            planner.run([phase])
            ends.append(Ended(phase.__name__, study.budget.used_s()))
        return _course_of(study, job.seed, ends)


@contextmanager
def _study_of(job: Job) -> Iterator[tuple[Study, Sequence[Callable[[Study], Steps[None]]]]]:
    if job.source in ON_NOISE:
        noises = _noises()
        noise = noises[job.seed % len(noises)]
        assert job.plan is not None
        effects = ON_NOISE[job.source]
        with replay.study_of(job.plan, noise, effects, BUDGET_S, job.seed) as study:
            yield study, replay.PHASES
    else:
        table = _table(job.source)
        deck = Deck(table, 0.0, job.seed)
        with tabled.study_of(table, deck, BUDGET_S, job.seed) as study:
            yield study, tabled.PHASES


@functools.cache
def _noises() -> list[Recording]:
    return recordings()


@functools.cache
def _table(name: str) -> Table:
    return read_table(TABLES / f"{name}.json.gz")


def _course_of(study: Study, seed: int, ends: Sequence[Ended]) -> Course:
    store, claims = study.store, make_claims(study)
    ids = {launch: n for n, launch in enumerate(store.launches, 1)}
    found = [(winner_class, claims.claim(winner_class)) for winner_class in WinnerClass]
    return Course(
        seed=seed,
        launches=tuple(
            Launched(
                record.request.configuration.label(),
                record.request.batch,
                str(record.request.purpose),
                record.request.round,
                len(record.slices),
                str(record.ending.outcome) if record.ending else "open",
            )
            for record in store.launches.values()
        ),
        trials=tuple(
            Tried(ids[t.launches[0]], t.source, t.score) for t in study.evaluation.trials()
        ),
        finalists=tuple(
            Named(
                str(note.phase),
                str(note.winner_class),
                note.configuration.label(),
                study.evaluation.score(note.configuration),
            )
            for note in store.all(FinalistNamed)
        ),
        claims=tuple(
            Claimed(
                str(winner_class),
                claim.configuration.label(),
                claim.verdict,
                claim.n_rounds,
                *((s.point, s.low, s.high) if (s := claim.speedup) else (None, None, None)),
            )
            for winner_class, claim in found
        ),
        recommended=str(recommended_class(claims, "both")),
        ends=tuple(ends),
        launch_sd=study.evaluation.estimates.launch_sd,
    )


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    names = ("numpy", "scipy", "optuna")
    return {"python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in names}}  # fmt: skip


def play_all(wanted: Sequence[tuple[str, int]]) -> Iterator[tuple[str, Course]]:
    """Carry out studies (source and seed) on all allowed CPUs; yield each with its source."""
    plan = replay.fake_plan() if any(source in ON_NOISE for source, _ in wanted) else None
    jobs = [Job(name, seed, plan if name in ON_NOISE else None) for name, seed in wanted]
    with processes(EXACTLY, most=len(jobs)) as pool:
        yield from zip((job.source for job in jobs), pool.map(play, jobs), strict=True)


def record(names: Sequence[str], n_seeds: int, into: Path) -> None:
    """Replay studies and write the file of each source as soon as it is complete."""
    into.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Course]] = {name: [] for name in names}
    wanted = [(name, seed) for name in names for seed in range(n_seeds)]
    for n, (name, course) in enumerate(play_all(wanted), 1):
        _tell(n, wanted)
        found[name].append(course)
        if len(found[name]) == n_seeds:
            write_golden(into / f"{name}.json.gz", Golden(versions(), tuple(found[name])))
    print(file=sys.stderr)


class Comparison(msgspec.Struct, frozen=True):
    """Studies that were replayed, and in what those differ that take another course."""

    n_studies: int
    differences: tuple[str, ...]
    other_versions: str
    """What they were recorded with, where that is not what computes here."""


def compare(names: Sequence[str], most: int, recorded: Path) -> Comparison:
    """Replay the recorded studies, at most so many of each source."""
    goldens = {name: read_golden(recorded / f"{name}.json.gz") for name in names}
    before = {(name, c.seed): c for name in names for c in goldens[name].courses[:most]}
    differences = []
    for n, (name, course) in enumerate(play_all(list(before)), 1):
        _tell(n, before)
        if why := first_difference(before[name, course.seed], course):
            differences.append(f"{name}, seed {course.seed}, {why}")
    print(file=sys.stderr)
    return Comparison(len(before), tuple(differences), _other_versions(goldens.values()))


def _other_versions(goldens: Iterable[Golden]) -> str:
    here = versions()
    pairs = {(k, v) for golden in goldens for k, v in golden.versions.items() if here.get(k) != v}
    return ", ".join(f"{k} {v} (here {here.get(k, 'none')})" for k, v in sorted(pairs))


@contextmanager
def recorded_at(revision: str, names: Sequence[str], n_seeds: int) -> Iterator[Path]:
    """Have another revision record its courses; yield the folder. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as temporary:
        tree, into = Path(temporary) / "tree", Path(temporary) / "golden"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", tree, revision], check=True)
        try:
            subprocess.run(
                [sys.executable, "-m", "benchmarks.golden", "record", "--only", ",".join(names),
                 "--seeds", str(n_seeds), "--into", into],
                cwd=tree, check=True,
                # before the installed package, which may be this revision's, in its children too
                env={**os.environ, "PYTHONPATH": str(tree)},
            )  # fmt: skip
            yield into
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def _tell(n: int, wanted: Collection[object]) -> None:
    print(f"\r{n} of {len(wanted)} studies", end="", file=sys.stderr, flush=True)


def tell(found: Comparison) -> int:
    """Print what came of a comparison; return the exit code."""
    if not found.differences:
        print(f"{found.n_studies} studies: identical")
        return 0
    print(f"{len(found.differences)} of {found.n_studies} studies differ; the first: "
          f"{found.differences[0]}")  # fmt: skip
    if found.other_versions:
        print(f"They were recorded with {found.other_versions}.")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="write what the studies do")
    comparing = commands.add_parser("compare", help="tell whether they do what was recorded")
    for each in (recording, comparing):
        each.add_argument("--only", help=f"some of {','.join(sources())}")
        each.add_argument("--seeds", type=int, default=30, help="studies of each source")
    recording.add_argument("--into", type=Path, default=FOLDER)
    comparing.add_argument("--recorded", type=Path, default=FOLDER)
    comparing.add_argument("--against", metavar="REVISION", help="what that one does, instead")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(words)
    names = arguments.only.split(",") if arguments.only else sources()
    for name in names:
        if name not in sources():
            parser.error(f"--only {name}: there are {', '.join(sources())}")
    if arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds}: give one at the least")
    if arguments.command == "record":
        record(names, arguments.seeds, arguments.into)
        return 0
    if arguments.against:
        try:
            with recorded_at(arguments.against, names, arguments.seeds) as folder:
                found = compare(names, arguments.seeds, folder)
        except subprocess.CalledProcessError as error:
            parser.error(f"--against {arguments.against}: {error}")
    else:
        if missing := [n for n in names if not (arguments.recorded / f"{n}.json.gz").is_file()]:
            parser.error(f"nothing is recorded of {', '.join(missing)}: begin with `record`")
        found = compare(names, arguments.seeds, arguments.recorded)
    return tell(found)


if __name__ == "__main__":
    sys.exit(main())
