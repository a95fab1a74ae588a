"""Does the interval hold the truth, and is the point where it should be?

    python -m benchmarks.coverage [--studies 100] [--json OUT]

Whole studies in which one setting is worth 0, 1, 3, 10 or 50 % and nothing else does anything,
replayed on noise that was recorded on this host, quiet and busy in turn (benchmarks/replay.py).
Counted is every interval of the recommended class, claimed or not. Beside it, on the same studies,
the best trial against the default's trial, one launch each, which is what study.best_trial says.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.false_claims import NOISE, recordings, share
from benchmarks.replay import Recording, Replayed, replay_many

SPEEDUPS = (0.0, 0.01, 0.03, 0.10, 0.50)
SETTING = "launch.allocator=tcmalloc"


def summarise(found: Sequence[tuple[Recording, Replayed]]) -> dict[str, Any]:
    """Return coverage and bias over studies."""
    claims = [
        (claim, claim.point, claim.low, claim.high)
        for _, rep in found
        for claim in [rep.claims[rep.recommended]]
    ]
    held, errors, widths = [], [], []
    for claim, point, low, high in claims:
        if point is None or low is None or high is None:
            continue
        held.append(low <= claim.truth <= high)
        errors.append(point / claim.truth - 1)
        widths.append(math.log(high / low) / 2)
    searched = [rep.best_trial / rep.best_trial_truth - 1 for _, rep in found]
    return {
        "studies": len(found),
        "coverage": share(held) if held else None,
        "mean_error": statistics.fmean(errors) if errors else None,
        "standard_error": (
            statistics.stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else None
        ),
        "median_half_width": statistics.median(widths) if widths else None,
        "best_trial_mean_error": statistics.fmean(searched),
        "faster": share([rep.claims[rep.recommended].verdict == "faster" for _, rep in found]),
    }


_HEADING = (
    "truth   studies   intervals   95 % interval holds it    point off by        half-width   "
    "best trial off by   called faster"
)


def _line(name: str, row: dict[str, Any]) -> str:
    held = row["coverage"]
    if held is None:
        return f"{name:>5}   {row['studies']:7}           0"
    return (
        f"{name:>5}   {row['studies']:7}   {held['of']:9}   {held['share']:6.1%} "
        f"({held['low']:.1%} - {held['high']:.1%})   {row['mean_error']:+.2%} +- "
        f"{row['standard_error']:.2%}   {row['median_half_width']:10.1%}   "
        f"{row['best_trial_mean_error']:+17.1%}   {row['faster']['share']:13.0%}"
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
    for i, speedup in enumerate(SPEEDUPS):
        found = replay_many(
            recordings(arguments.noise), {SETTING: math.log1p(speedup)}, arguments.studies,
            arguments.budget, first_seed=1_000_000 * (i + 1),
            told=partial(_tell, f"{speedup:.0%}"),
        )  # fmt: skip
        table[f"{speedup:.0%}"] = summarise(found)
        everything += found
    table["all"] = summarise(everything)
    print(file=sys.stderr)
    print(_HEADING)
    for name, row in table.items():
        print(_line(name, row))
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
