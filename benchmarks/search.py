"""This search against others on recorded tables: how soon it finds what is good, and how surely.

    python benchmarks/search.py --tables FILES... [--seeds 50] [--noise 0.05] [--only NAMES]
                                [--learn-from TABLE] [--json OUT]

FILES are own recordings (benchmarks/tables/) or Kernel Tuner caches, gzipped or not. Every search
(benchmarks/rivals.py) runs with so many seeds on every table, for twice the time that random search
needs to all but find the best. benchmarks/score.py defines the figures; in brackets stand 95 %
intervals, bootstrapped over seeds. --noise: SD of the log rate that is added to each launch of a
foreign table, which has none of its own. --learn-from: another table that the tool's own search
went over before, with another seed; a second one, "warm", learns from that, whose time is not
counted. Searches that compute for long (gp, smac)
are cut off after --most launches; where that is before their time, their last recommendation stands
from then on.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the root of the repository instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import msgspec
import numpy as np

from benchmarks.deck import Deck
from benchmarks.rivals import RIVALS, rival_on
from benchmarks.score import (
    Run,
    Truth,
    Window,
    bootstrap,
    expected_seconds,
    oracle_pulls,
    replay_scores,
    window,
)
from benchmarks.table import Table, read_table
from benchmarks.tabled import earlier_on, study_on

OWN = "tune-framework"
WARM = "warm"
"""Our own search after one on another table."""
_EARLIER = 20_000
"""Seeds of the searches that are learnt from."""
_SLOW = ("gp", "smac")
_RANDOMS = 200
"""Random searches from which the window is found: with few of them it is a matter of luck."""
_BUDGET = 2.0
"""Of the time in which random search closes 95 % of the way."""


class Figures(msgspec.Struct):
    """What one search came to on one table; each interval is of 95 %."""

    table: str
    noise: float
    search: str
    n_runs: int
    score: float
    score_interval: tuple[float, float]
    to_5_s: float
    to_2_s: float
    regret: float
    regret_median: float
    regret_worst: float
    duplicates: float
    n_launches: float
    oracle: float | None = None
    """Launches of the search and its race, over those of an oracle; own search only."""
    oracle_end_to_end: float | None = None
    settled: list[float | None] = []
    ended: dict[str, int] = {}
    """How often the own search's exploring ended for which reason."""
    scores: list[float] = []


@functools.lru_cache(maxsize=2)
def _table(path: Path) -> Table:
    return read_table(path)


class Job(msgspec.Struct, frozen=True):
    """One search on a table."""

    path: Path
    noise: float
    name: str
    budget_s: float
    seed: int
    most: int
    learn_from: Path | None = None


def _one(job: Job) -> Run:
    table, noise, name, seed = _table(job.path), job.noise, job.name, job.seed
    budget_s, most = job.budget_s, job.most
    if name in (OWN, WARM):
        earlier = []
        if name == WARM:
            assert job.learn_from is not None
            other = _table(job.learn_from)
            earlier.append(
                earlier_on(other, Deck(other, noise, _EARLIER + seed), budget_s, _EARLIER + seed)
            )
        return study_on(table, Deck(table, noise, seed), budget_s, seed, earlier)
    return rival_on(name, table, noise, budget_s, seed, most if name in _SLOW else 1_000_000)


def figures(
    table: Table, truth: Truth, noise: float, name: str, runs: list[Run], window: Window
) -> Figures:
    """Sum up the runs of one search."""
    scores = replay_scores(truth, runs, window)
    regrets = [truth.regret(run) for run in runs]
    found = Figures(
        table=table.name,
        noise=noise,
        search=name,
        n_runs=len(runs),
        score=float(scores.mean()),
        score_interval=bootstrap(len(runs), lambda i: float(scores[i].mean())),
        to_5_s=expected_seconds(truth, runs, 0.05),
        to_2_s=expected_seconds(truth, runs, 0.02),
        regret=statistics.fmean(regrets),
        regret_median=statistics.median(regrets),
        regret_worst=max(regrets),
        duplicates=statistics.fmean(run.n_duplicates / max(1, run.n_launches) for run in runs),
        n_launches=statistics.fmean(run.n_launches for run in runs),
        settled=[truth.settles_s(run, 0.05) for run in runs],
        scores=[round(float(s), 4) for s in scores],
    )
    if name in (OWN, WARM):
        found.ended = dict(Counter(run.why.partition(":")[0] for run in runs))
        oracles = [_oracle(truth, run) for run in runs]
        found.oracle = statistics.median(
            run.n_pulls / o for run, o in zip(runs, oracles, strict=True)
        )
        found.oracle_end_to_end = statistics.median(
            run.n_all / o for run, o in zip(runs, oracles, strict=True)
        )
    return found


def _oracle(truth: Truth, run: Run) -> float:
    levels = [truth.level(row) for row, n in run.pulls.items() if n]
    return oracle_pulls(levels, [max(truth.launch_sd, 1e-3)] * len(levels))


def compare(
    path: Path,
    noise: float,
    names: list[str],
    n_seeds: int,
    most: int,
    pool: ProcessPoolExecutor,
    learn_from: Path | None = None,
) -> list[Figures]:
    """Run every search on a table; return their figures."""
    table = _table(path)
    truth = Truth(table, noise)
    everything = sum(launches[0].total_s for launches in table.launches.values())
    jobs = [Job(path, noise, "random", everything, 10_000 + n, most) for n in range(_RANDOMS)]
    seen = window(truth, list(pool.map(_one, jobs, chunksize=8)))
    budget_s = max(_BUDGET * seen.end_s, _least_s(table))
    print(f"\n{table.name}{f', noise {noise:.0%}' if noise else ''}: {len(table.launches)} "
          f"configurations, median {math.exp(truth.median - truth.best):.2f} of the best; random "
          f"closes half of that in {seen.n_evaluations:.0f} launches, nearly all in "
          f"{seen.end_s:.0f} s; each search has {budget_s:.0f} s", flush=True)  # fmt: skip
    found = []
    for name in names:
        jobs = [Job(path, noise, name, budget_s, seed, most, learn_from) for seed in range(n_seeds)]
        runs = list(pool.map(_one, jobs))
        found.append(figures(table, truth, noise, name, runs, seen))
        print(_line(found[-1]), flush=True)
    return found


def _least_s(table: Table) -> float:
    """Return what a study needs at the least: a few launches and its confirmation."""
    per_launch = statistics.fmean(launches[0].total_s for launches in table.launches.values())
    return 20 * per_launch


def _line(f: Figures) -> str:
    low, high = f.score_interval
    own = ""
    if f.oracle is not None:
        own = f"  oracle x{f.oracle:.2f}, to the end x{f.oracle_end_to_end:.2f}"
    return (
        f"  {f.search:15s} score {f.score:6.2f} [{low:6.2f}, {high:6.2f}]"
        f"  to 5 % {f.to_5_s:7.0f} s  to 2 % {f.to_2_s:7.0f} s"
        f"  regret {f.regret:6.2%} (median {f.regret_median:.2%}, worst {f.regret_worst:.1%})"
        f"  duplicates {f.duplicates:4.0%}  {f.n_launches:6.0f} launches{own}"
    )


def summarise(found: list[Figures]) -> None:
    """Print the mean score of every search over the tables, and seconds against our own."""
    names = list(dict.fromkeys(f.search for f in found))
    tables = list(dict.fromkeys((f.table, f.noise) for f in found))
    by = {(f.table, f.noise, f.search): f for f in found}
    print("\nmean over tables (interval over tables):")
    for name in names:
        scores = np.array([by[*table, name].score for table in tables])
        low, high = bootstrap(len(scores), lambda i, s=scores: float(s[i].mean()))  # type: ignore[misc]
        line = f"  {name:15s} score {scores.mean():6.2f} [{low:6.2f}, {high:6.2f}]"
        if OWN in names and name != OWN:
            line += f"  seconds to 5 % over ours: {_against(by, tables, name)}"
        print(line)


def _against(
    by: dict[tuple[str, float, str], Figures], tables: list[tuple[str, float]], name: str
) -> str:
    """Say how many times as long another search needs to stay within 5 %, table by table."""
    said, ratios = [], []
    for table in tables:
        other, own = by[*table, name].to_5_s, by[*table, OWN].to_5_s
        if math.isfinite(other) and math.isfinite(own) and own > 0:
            ratios.append(other / own)
            said.append(f"{ratios[-1]:.1f}")
        else:
            said.append("ours never" if not math.isfinite(own) else "never")
    mean = f"{math.exp(statistics.fmean(map(math.log, ratios))):.1f}" if ratios else "-"
    return f"{mean} (geometric mean of {len(ratios)}: {', '.join(said)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.05],
                        help="SDs added to foreign tables; own ones have their own")  # fmt: skip
    parser.add_argument("--learn-from", type=Path, help="a table searched before the others")
    parser.add_argument("--only", help=f"some of {OWN},{','.join(RIVALS)}")
    parser.add_argument("--most", type=int, default=150, help="launches of gp and smac")
    parser.add_argument("--json", type=Path, help="write every figure there as well")
    arguments = parser.parse_args()
    known = [OWN, *([WARM] if arguments.learn_from else []), *RIVALS]
    names = arguments.only.split(",") if arguments.only else known
    for name in names:
        if name not in known:
            parser.error(f"--only {name}: there are {', '.join(known)}")
    for path in [*arguments.tables, *([arguments.learn_from] if arguments.learn_from else [])]:
        if not path.is_file():
            parser.error(f"{path}: there is no such file")
    if arguments.learn_from in arguments.tables:
        parser.error(f"--learn-from {arguments.learn_from}: that is one of --tables")
    found: list[Figures] = []
    # BLAS threads beside as many processes as CPUs would take turns
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for path in arguments.tables:
            is_own = _table(path).recording is not None
            for noise in [0.0] if is_own else arguments.noise:
                found += compare(
                    path, noise, names, arguments.seeds, arguments.most, pool, arguments.learn_from
                )
    if arguments.json:
        data: Any = {"seeds": arguments.seeds, "figures": [msgspec.to_builtins(f) for f in found]}
        arguments.json.write_text(json.dumps(data, indent=1) + "\n")
    summarise(found)


if __name__ == "__main__":
    main()
