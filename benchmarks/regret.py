"""How much slower than the best there is what a study recommends, class by class?

    python -m benchmarks.regret [--tables FILES] [--seeds 20] [--budget 600] [--tails 0.05]
                                [--together N --share S] [--json OUT]

Whole studies, minimising and confirmation included, on recorded tables (benchmarks/tabled.py), all
three classes as users ask about them. What a class recommends is its confirmed winner, or the
default where nothing was confirmed to be faster; what it might have recommended is the best of the
table that the class allows, by the mean over all launches of it. Regret is what is lost between the
two, 1 - rate recommended / best rate.

--tails: so many launches, of whatever configuration, are slower by 1.3 to 2 times, by chance
(benchmarks/tails.py); what is best stays the same.

The best of many noisy rows is partly lucky: where a table's rows are known less well than the
regrets that are asked about, its figures are too high, for every search alike.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks import tabled
from benchmarks.deck import Deck
from benchmarks.golden import EXACTLY, TABLES
from benchmarks.processes import processes
from benchmarks.recorded_bench import add_side_by_side
from benchmarks.score import Truth
from benchmarks.table import Table, read_table
from benchmarks.tails import NO_TAILS, Tails
from tuner.launchers.recorded import SideBySide
from tuner.record.launch import Purpose
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.study.confirm import confirm, make_claims
from tuner.study.minimise import minimise
from tuner.study.planner import Planner
from tuner.study.study import CLASS_ORDER

PHASES = (*tabled.SEARCHING, minimise, confirm)


class Job(msgspec.Struct, frozen=True):
    """One study to replay."""

    path: Path
    budget_s: float
    seed: int
    side_by_side: SideBySide
    tails: Tails = NO_TAILS


class Found(msgspec.Struct, frozen=True):
    """What came of a class in one study."""

    table: str
    winner_class: str
    regret: float
    verdict: str
    half_width: float | None
    """Of the claim's interval (log); None without one."""
    n_settings: int
    n_proposals: int
    n_launches: int
    """Of the search and of minimising: without pacer and confirmation."""


@functools.cache
def _known(path: Path) -> tuple[Table, Truth]:
    table = read_table(path)
    return table, Truth(table)


def play(job: Job) -> list[Found]:
    """Carry out a study; return what came of each class."""
    table, truth = _known(job.path)
    deck = Deck(table, 0.0, job.seed, job.tails)
    with tabled.study_of(
        table, deck, job.budget_s, job.seed, turns=CLASS_ORDER, side_by_side=job.side_by_side
    ) as study:
        Planner(study).run(PHASES)
        claims, space = make_claims(study), study.tabled
        purposes = [record.request.purpose for record in study.store.launches.values()]
        n_launches = sum(p not in (Purpose.PACER, Purpose.CONFIRM) for p in purposes)
        default = claims.default
        found = []
        for winner_class in WinnerClass:
            claim = claims.claim(winner_class)
            won = claim.configuration if claim.verdict == "faster" else default
            best = best_of(truth, winner_class)
            found.append(
                Found(
                    table.name,
                    str(winner_class),
                    -math.expm1(truth.level(space.row(won)) - best),
                    claim.verdict,
                    math.log(claim.speedup.high / claim.speedup.low) / 2 if claim.speedup else None,
                    len(won.settings),
                    study.n_proposed(),
                    n_launches,
                )
            )
        return found


def best_of(truth: Truth, winner_class: WinnerClass) -> float:
    """Return the highest log rate of a table's rows that a class allows."""
    allowed = [c for c in truth.of if allowed_in(winner_class, c)]
    return max(level for c in allowed if (level := truth.of[c]) is not None)


def summarise(found: Sequence[Found]) -> dict[str, float]:
    """Return the figures of one table and class."""
    regrets = sorted(f.regret for f in found)
    widths = [f.half_width for f in found if f.half_width is not None]
    return {
        "median regret": statistics.median(regrets),
        "90 % regret": regrets[math.floor(0.9 * len(regrets))],
        "worst regret": regrets[-1],
        "faster": sum(f.verdict == "faster" for f in found) / len(found),
        "half-width": statistics.median(widths) if widths else math.nan,
        "settings": statistics.fmean(f.n_settings for f in found),
        "proposals": statistics.fmean(f.n_proposals for f in found),
        "launches": statistics.fmean(f.n_launches for f in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, nargs="*", default=sorted(TABLES.glob("*.json.gz")))
    parser.add_argument("--seeds", type=int, default=20, help="studies of each table")
    parser.add_argument("--budget", type=float, default=600.0, help="virtual seconds of each")
    parser.add_argument("--tails", type=float, default=0.0, help="share of launches slow by chance")
    add_side_by_side(parser)
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    side_by_side, tails = SideBySide(arguments.together, arguments.share), Tails(arguments.tails)
    jobs = [
        Job(path, arguments.budget, seed, side_by_side, tails)
        for path in arguments.tables
        for seed in range(arguments.seeds)
    ]
    found: list[Found] = []
    with processes(EXACTLY, most=len(jobs)) as pool:
        for n, each in enumerate(pool.map(play, jobs), 1):
            found += each
            print(f"\r{n} of {len(jobs)} studies", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    figures = {}
    for table in dict.fromkeys(f.table for f in found):
        for winner_class in WinnerClass:
            figures[f"{table} {winner_class}"] = summarise(
                [f for f in found if f.table == table and f.winner_class == str(winner_class)]
            )
    figures["all"] = summarise(found)
    for name, row in figures.items():
        print(f"{name:36} regret {row['median regret']:5.1%} (90 %: {row['90 % regret']:5.1%}, "
              f"worst {row['worst regret']:5.1%}), faster {row['faster']:4.0%}, half-width "
              f"{row['half-width']:4.1%}, settings {row['settings']:.1f}, proposals "
              f"{row['proposals']:.0f}, launches {row['launches']:.0f}")  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
