"""Is the search tuned to single tables? Its constants, chosen without each table in turn.

    python -m benchmarks.left_out --tables FILES... [--seeds 12] [--noise 0 0.05] [--json OUT]

Every variant of the search (a constant other than as it is) goes over every table. For each table,
the variant is chosen whose mean score over the other files is highest; its score on the table that
was left out is what such a choice is worth. A file's two noises are left out together. Beside it,
the search as it is, which is one of the variants: what this tells is whether another one would do
better on tables that it was not chosen on. benchmarks/score.py defines the score; all variants
start from the same seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.contest import OWN, Contest, contests
from benchmarks.processes import processes
from benchmarks.score import replay_scores

AS_IS = "as it is"
VARIANTS: dict[str, dict[str, Any]] = {
    AS_IS: {},
    "leaders launched twice": {"tuner.study.explore.PROVED": 2},
    "leaders launched four times": {"tuner.study.explore.PROVED": 4},
    "settled by the surrogate's word": {"tuner.search.terminator._UNGUIDED_SHARE": 0.0},
    "clear at two standard errors": {"tuner.study.explore._CLEARLY": 2.0},
    "settled at a fifth of the noise": {"tuner.search.terminator._OF_NOISE": 0.2},
    "the surrogate alone": {"tuner.search.sampler._SOURCES": ("surrogate",)},
    "half of it by chance": {"tuner.search.sampler._SOURCES": ("surrogate", "random")},
    "half the length": {"tuner.search.surrogate._LENGTH": 0.5},
    "twice the length": {"tuner.search.surrogate._LENGTH": 2.0},
    "three times of its own": {"tuner.search.surrogate._OWN": 0.3},
    "late ones as early": {"tuner.search.sampler._LATE": 1.0},
}


class Field(msgspec.Struct):
    """What each variant scored on a table."""

    file: str
    noise: float
    scores: dict[str, float]
    chosen: str = ""
    """By the other files."""

    @property
    def left_out(self) -> float:
        """The score of what was chosen without this file."""
        return self.scores[self.chosen]


def field(
    contest: Contest, n_seeds: int, variants: Mapping[str, Mapping[str, Any]] = VARIANTS
) -> Field:
    """Go over a table with every variant."""
    found = Field(contest.path.name, contest.noise, {})
    for name, constants in variants.items():
        runs = contest.runs(OWN, range(n_seeds), constants=constants)
        scores = replay_scores(contest.truth, runs, contest.window)
        found.scores[name] = float(scores.mean())
        print(f"  {name:32s} {found.scores[name]:6.2f}", flush=True)
    return found


def choose(fields: Sequence[Field]) -> None:
    """Choose a variant for each table, by the other files."""
    for mine in fields:
        others = [f for f in fields if f.file != mine.file]
        mine.chosen = best_on([f.scores for f in others])


def best_on(tables: Sequence[Mapping[str, float]]) -> str:
    """Return the variant with the highest mean score; what is as it is where there is no other."""
    if not tables:
        return AS_IS
    return max(tables[0], key=lambda name: statistics.fmean(each[name] for each in tables))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.05],
                        help="SDs added to foreign tables; own ones have their own")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write every score there as well")
    arguments = parser.parse_args()
    if len({path.name for path in arguments.tables}) < 2:
        parser.error("--tables: give two files at least, so that one can be left out")
    for path in arguments.tables:
        if not path.is_file():
            parser.error(f"{path}: there is no such file")
    fields = []
    with processes() as pool:
        for contest in contests(arguments.tables, arguments.noise, pool):
            print(f"\n{contest.table.name}, noise {contest.noise:.0%}", flush=True)
            fields.append(field(contest, arguments.seeds))
    choose(fields)
    print("\nleft out:")
    for each in fields:
        print(f"  {each.file:32s} noise {each.noise:4.0%}  as it is {each.scores[AS_IS]:5.2f}  "
              f"chosen without it {each.left_out:5.2f} ({each.chosen})")  # fmt: skip
    means = {name: statistics.fmean(f.scores[name] for f in fields) for name in VARIANTS}
    print(f"\nmean: as it is {means[AS_IS]:.3f}, chosen with one left out "
          f"{statistics.fmean(f.left_out for f in fields):.3f}; best of all, with all in sight: "
          f"{max(means, key=means.__getitem__)} {max(means.values()):.3f}")  # fmt: skip
    if arguments.json:
        data = {"seeds": arguments.seeds, "tables": msgspec.to_builtins(fields)}
        arguments.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
