"""Searches on a recorded table, each from a random start of its own, one on every CPU at a time."""

from __future__ import annotations

import functools
import importlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.deck import Deck
from benchmarks.guided import expected_on
from benchmarks.rivals import rival_on
from benchmarks.score import Run, Truth, Window, window
from benchmarks.table import Table, read_table
from benchmarks.tabled import earlier_on, study_on
from tuner.search.transfer import Earlier

OWN = "tune-framework"
WARM = "warm"
"""Our own search after one on another table."""
GUIDED = "guided"
"""Our own search with rules of other families of models."""
_EARLIER = 20_000
"""Seeds of the searches that are learnt from."""
SLOW = ("gp", "smac", "kt-vndx", "kt-genetic")
"""Searches that compute for long."""
_RANDOMS = 200
"""Random searches from which the window is found: with few of them it is a matter of luck."""
_BUDGET = 2.0
"""Of the time in which random search closes 95 % of the way."""
_USUAL_S = 600.0
"""The budget of a study where none is given; every search on an own table has that at the least."""

Constants = Mapping[str, Any]
"""Values by name, such as tuner.study.explore.PROVED."""


@functools.lru_cache(maxsize=2)
def table_of(path: Path) -> Table:
    """Read a table, once."""
    return read_table(path)


class Job(msgspec.Struct, frozen=True):
    """One search on a table."""

    path: Path
    noise: float
    """SD of the log rate that is added to a foreign table's launches."""
    name: str
    budget_s: float
    seed: int
    most: int = 1_000_000
    """Launches of a search that computes for long."""
    learn_from: Path | None = None
    """Of WARM, a table; of GUIDED, recordings."""
    constants: dict[str, Any] = {}
    """Of our own search, other than as they are."""


def play(job: Job) -> Run:
    """Carry out a search."""
    table = table_of(job.path)
    deck = Deck(table, job.noise, job.seed)
    if job.name in (OWN, WARM, GUIDED):
        earlier = _earlier_of(job)
        with other_constants(job.constants):
            return study_on(table, deck, job.budget_s, job.seed, earlier)
    most = job.most if job.name in SLOW else 1_000_000
    return rival_on(job.name, table, job.noise, job.budget_s, job.seed, most)


def _earlier_of(job: Job) -> list[Earlier]:
    """Search the table that is learnt from, where one is, or ask the rules."""
    if job.learn_from is None or job.name not in (WARM, GUIDED):
        return []
    if job.name == GUIDED:
        return expected_on(table_of(job.path), job.learn_from, job.seed)
    other, seed = table_of(job.learn_from), _EARLIER + job.seed
    return [earlier_on(other, Deck(other, job.noise, seed), job.budget_s, seed)]


@contextmanager
def other_constants(constants: Constants) -> Iterator[None]:
    """Give constants other values meanwhile. Raises AttributeError where there is no such one."""
    places = {name: name.rpartition(".") for name in constants}
    modules = {name: importlib.import_module(place[0]) for name, place in places.items()}
    before = {name: getattr(module, places[name][2]) for name, module in modules.items()}
    try:
        for name, value in constants.items():
            setattr(modules[name], places[name][2], value)
        yield
    finally:
        for name, value in before.items():
            setattr(modules[name], places[name][2], value)


class Contest:
    """A table with what all searches on it are measured by."""

    def __init__(self, path: Path, noise: float, pool: Executor) -> None:
        self.path = path
        self.noise = noise
        self.table = table_of(path)
        self.truth = Truth(self.table, noise)
        self._pool = pool
        everything_s = sum(launches[0].total_s for launches in self.table.launches.values())
        jobs = [Job(path, noise, "random", everything_s, 10_000 + n) for n in range(_RANDOMS)]
        self.window: Window = window(self.truth, list(pool.map(play, jobs, chunksize=8)))
        self.budget_s = max(_BUDGET * self.window.end_s, _least_s(self.table))

    def runs(
        self,
        name: str,
        seeds: Sequence[int],
        *,
        most: int = 1_000_000,
        learn_from: Path | None = None,
        constants: Constants | None = None,
    ) -> list[Run]:
        """Carry out a search from each start."""
        jobs = [
            Job(self.path, self.noise, name, self.budget_s, seed, most, learn_from,
                dict(constants or {}))
            for seed in seeds
        ]  # fmt: skip
        return list(self._pool.map(play, jobs))


def contests(paths: Sequence[Path], noises: Sequence[float], pool: Executor) -> Iterator[Contest]:
    """Yield every table, a foreign one with each noise; an own one has its own."""
    for path in paths:
        is_own = table_of(path).recording is not None
        for noise in [0.0] if is_own else noises:
            yield Contest(path, noise, pool)


def _least_s(table: Table) -> float:
    """Return what a study needs at the least: a few launches and its confirmation."""
    few_s = 20 * statistics.fmean(launches[0].total_s for launches in table.launches.values())
    return few_s if table.recording is None else max(few_s, _USUAL_S)
