"""Does the interval hold the truth, and is the point where it should be?

    python -m benchmarks.coverage [--studies 100] [--json OUT]

Whole studies in which one setting is worth 0, 1, 3, 10 or 50 % and nothing else does anything,
replayed on noise that was recorded on this host, quiet and busy in turn (benchmarks/replay.py).
Counted is every interval of the recommended class, claimed or not; and apart, by how much those are
off that were called faster, which is a selection. Beside it the best trial of the
same studies against the default's trial, one launch each, which is what study.best_trial says; and
what plain habits say on the same recordings (benchmarks/habits.py).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.false_claims import NOISE, recordings, share
from benchmarks.habits import Habit, one_run_each, ten_repeats
from benchmarks.replay import Replayed, replay_many
from benchmarks.tape import Recording

SPEEDUPS = (0.0, 0.01, 0.03, 0.10, 0.50)
SETTING = "launch.allocator=tcmalloc"


Habits = list[tuple[Habit, Habit]]
"""Of each study's recording: one run each, and ten repeats."""


def _errors(errors: Sequence[float]) -> dict[str, float | None]:
    """Return the mean of relative errors, and its standard error."""
    n = len(errors)
    return {
        "mean_error": statistics.fmean(errors) if errors else None,
        "standard_error": statistics.stdev(errors) / math.sqrt(n) if n > 1 else None,
    }


def summarise(found: Sequence[tuple[Recording, Replayed]], habits: Habits) -> dict[str, Any]:
    """Return coverage and bias over studies, and of plain habits."""
    claims = [
        (claim, claim.point, claim.low, claim.high)
        for _, rep in found
        for claim in [rep.claims[rep.recommended]]
    ]
    held, errors, widths = [], [], []
    claimed_held, claimed_errors = [], []
    for claim, point, low, high in claims:
        if point is None or low is None or high is None:
            continue
        held.append(low <= claim.truth <= high)
        errors.append(point / claim.truth - 1)
        widths.append(math.log(high / low) / 2)
        if claim.verdict == "faster":
            claimed_held.append(held[-1])
            claimed_errors.append(errors[-1])
    return {
        "studies": len(found),
        "coverage": share(held) if held else None,
        **_errors(errors),
        "median_half_width": statistics.median(widths) if widths else None,
        "verdicts": {
            verdict: share([rep.claims[rep.recommended].verdict == verdict for _, rep in found])
            for verdict in ("faster", "keep_default", "ambiguous")
        },
        "claimed": {
            "coverage": share(claimed_held) if claimed_held else None,
            **_errors(claimed_errors),
        },
        "best trial": _errors([rep.best_trial / rep.best_trial_truth - 1 for _, rep in found]),
        "one run each": _errors([math.expm1(each.point - each.truth) for each, _ in habits]),
        "ten repeats": {
            **_errors([math.expm1(each.point - each.truth) for _, each in habits]),
            "coverage": share([each.low <= each.truth <= each.high for _, each in habits]),
        },
    }


def plain_habits(found: Sequence[tuple[Recording, Replayed]], effect: float, seed: int) -> Habits:
    """Return what plain habits say on the recordings of these studies."""
    draw = random.Random(seed)
    seeds = [draw.randrange(2**31) for _ in found]
    return [
        (one_run_each(recording, effect, each), ten_repeats(recording, effect, each))
        for (recording, _), each in zip(found, seeds, strict=True)
    ]


_HEADING = (
    "truth   studies   intervals   95 % interval holds it    point off by        half-width   "
    "faster (off by)  keep default | off by: best trial   one run each   ten repeats (hold it)"
)


def _line(name: str, row: dict[str, Any]) -> str:
    held, repeats, claimed = row["coverage"], row["ten repeats"], row["claimed"]["mean_error"]
    verdicts = {verdict: found["share"] for verdict, found in row["verdicts"].items()}
    off_by = "    -" if claimed is None else f"{claimed:+.1%}"
    if held is None:
        return f"{name:>5}   {row['studies']:7}           0"
    return (
        f"{name:>5}   {row['studies']:7}   {held['of']:9}   {held['share']:6.1%} "
        f"({held['low']:.1%} - {held['high']:.1%})   {row['mean_error']:+.2%} +- "
        f"{row['standard_error']:.2%}   {row['median_half_width']:10.1%}   "
        f"{verdicts['faster']:6.0%} ({off_by})  {verdicts['keep_default']:12.0%} | "
        f"{row['best trial']['mean_error']:+18.1%}   "
        f"{row['one run each']['mean_error']:+12.1%}   {repeats['mean_error']:+11.1%} "
        f"({repeats['coverage']['share']:.0%})"
    )


def _tell(name: str, n: int) -> None:
    print(f"\r{name}: {n} studies  ", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=100, help="of each speedup")
    parser.add_argument("--budget", type=float, default=600.0, help="virtual seconds of each")
    parser.add_argument("--noise", type=Path, default=NOISE, help="folder of recordings")
    parser.add_argument("--json", type=Path, help="write the table there as well")
    arguments = parser.parse_args()
    table: dict[str, Any] = {}
    everything: list[tuple[Recording, Replayed]] = []
    all_habits: Habits = []
    for i, speedup in enumerate(SPEEDUPS):
        effect = math.log1p(speedup)
        found = replay_many(
            recordings(arguments.noise), {SETTING: effect}, arguments.studies, arguments.budget,
            first_seed=1_000_000 * (i + 1),
            told=partial(_tell, f"{speedup:.0%}"),
        )  # fmt: skip
        habits = plain_habits(found, effect, seed=i)
        table[f"{speedup:.0%}"] = summarise(found, habits)
        everything += found
        all_habits += habits
    table["all"] = summarise(everything, all_habits)
    print(file=sys.stderr)
    print(_HEADING)
    for name, row in table.items():
        print(_line(name, row))
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
