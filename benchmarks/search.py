"""This search against others on recorded tables: how soon it finds what is good, and how surely.

    python benchmarks/search.py --tables FILES... [--seeds 50] [--noise 0.05] [--only NAMES]
                                [--slow-seeds 10] [--learn-from TABLE]
                                [--guidelines RECORDINGS] [--json OUT]

FILES are own recordings (benchmarks/tables/) or Kernel Tuner caches, gzipped or not. Every search
(benchmarks/rivals.py) runs with so many seeds on every table, for twice the time that random search
needs to all but find the best; on an own table for ten minutes at the least, the budget of a study
where none is given. benchmarks/score.py defines the figures; in brackets stand 95 %
intervals, bootstrapped over seeds. --noise: SD of the log rate that is added to each launch of a
foreign table, which has none of its own. --learn-from: another table that the tool's own search
went over before, with another seed; a second one, "warm", learns from that, whose time is not
counted. --guidelines: recordings (tune-framework guidelines leaves them in studies/), of which a
third one, "guided", is told the rules without those of the table's family, on tables of
throughput. Searches that compute for long (gp, smac, Kernel Tuner's) have --slow-seeds starts and
are cut off after --most launches; where that is before their time, their last recommendation stands
from then on.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the root of the repository instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import msgspec
import numpy as np

from benchmarks.contest import GUIDED, OWN, SLOW, WARM, Contest, contests
from benchmarks.guided import is_asked
from benchmarks.processes import processes
from benchmarks.rivals import RIVALS
from benchmarks.score import (
    Run,
    Truth,
    Window,
    bootstrap,
    expected_seconds,
    oracle_pulls,
    replay_scores,
)
from benchmarks.table import Table


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
    if name in (OWN, WARM, GUIDED):
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
    contest: Contest,
    names: list[str],
    n_seeds: Callable[[str], int],
    most: int,
    learn_from: Mapping[str, Path],
) -> list[Figures]:
    """Run every search on a table; return their figures. learn_from: what some learn from."""
    table, truth, noise, seen = contest.table, contest.truth, contest.noise, contest.window
    print(f"\n{table.name}{f', noise {noise:.0%}' if noise else ''}: {len(table.launches)} "
          f"configurations, median {math.exp(truth.median - truth.best):.2f} of the best; random "
          f"closes {seen.share:.0%} of that in {seen.n_evaluations:.0f} launches, nearly all in "
          f"{seen.end_s:.0f} s; each search has {contest.budget_s:.0f} s", flush=True)  # fmt: skip
    found = []
    for name in names:
        if name == GUIDED and not is_asked(table):
            continue
        seeds = range(n_seeds(name))
        runs = contest.runs(name, seeds, most=most, learn_from=learn_from.get(name))
        found.append(figures(table, truth, noise, name, runs, seen))
        print(_line(found[-1]), flush=True)
    return found


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
        own = [table for table in tables if (*table, name) in by]
        scores = np.array([by[*table, name].score for table in own])
        low, high = bootstrap(len(scores), lambda i, s=scores: float(s[i].mean()))  # type: ignore[misc]
        line = f"  {name:15s} score {scores.mean():6.2f} [{low:6.2f}, {high:6.2f}]"
        if OWN in names and name != OWN:
            line += f"  seconds to 5 % over ours: {_against(by, own, name)}"
        print(line if len(own) == len(tables) else f"{line}  (on {len(own)} tables)")


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
    parser.add_argument("--guidelines", type=Path, help="recordings that teach rules")
    parser.add_argument("--only", help=f"some of {OWN},{','.join(RIVALS)}")
    parser.add_argument("--most", type=int, default=150, help="launches of these")
    parser.add_argument("--json", type=Path, help="write every figure there as well")
    parser.add_argument("--slow-seeds", type=int, help=f"starts of {', '.join(SLOW)}, if fewer")
    arguments = parser.parse_args()
    asked = {WARM: arguments.learn_from, GUIDED: arguments.guidelines}
    learn_from = {name: path for name, path in asked.items() if path is not None}
    known = [OWN, *learn_from, *RIVALS]
    names = arguments.only.split(",") if arguments.only else known
    for name in names:
        if name not in known:
            parser.error(f"--only {name}: there are {', '.join(known)}")
    for path in [*arguments.tables, *([arguments.learn_from] if arguments.learn_from else [])]:
        if not path.is_file():
            parser.error(f"{path}: there is no such file")
    if arguments.guidelines is not None and not arguments.guidelines.is_dir():
        parser.error(f"--guidelines {arguments.guidelines}: there is no such folder")
    if arguments.learn_from in arguments.tables:
        parser.error(f"--learn-from {arguments.learn_from}: that is one of --tables")
    found: list[Figures] = []
    n_all: int = arguments.seeds
    n_slow: int = min(arguments.slow_seeds or n_all, n_all)

    def n_seeds(name: str) -> int:
        return n_slow if name in SLOW else n_all

    with processes() as pool:
        for contest in contests(arguments.tables, arguments.noise, pool):
            found += compare(contest, names, n_seeds, arguments.most, learn_from)
    if arguments.json:
        data: Any = {"seeds": arguments.seeds, "figures": [msgspec.to_builtins(f) for f in found]}
        arguments.json.write_text(json.dumps(data, indent=1) + "\n")
    summarise(found)


if __name__ == "__main__":
    main()
