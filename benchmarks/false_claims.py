"""How often is `faster` claimed where nothing is faster?

    python -m benchmarks.false_claims [--studies 500] [--real 30] [--json OUT]

Whole studies of a space in which no setting changes anything (A/A), replayed on noise that was
recorded on this host, quiet and busy in turn (benchmarks/replay.py). Beside them what plain habits
claim on the same recordings (benchmarks/habits.py), and the best trial of the same study against
the default's trial, one launch each.

The intervals say how well so many replays know the share on these recordings, no more.

--real: as many short studies of real models besides, whose settings change nothing (nothing.toml,
benchmarks/real_studies.py).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from scipy import stats

from benchmarks.habits import one_run_each, ten_repeats
from benchmarks.real_studies import RealStudy, real_studies
from benchmarks.replay import Replayed, replay_many
from benchmarks.tape import Recording, read_recording

NOISE = Path(__file__).parent / "noise"


def recordings(folder: Path = NOISE) -> list[Recording]:
    """Return the recordings that ship with the benchmarks."""
    found = [read_recording(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        sys.exit(f"no recording in {folder}: python -m benchmarks.record_noise {folder}/quiet.json")
    return found


def share(hits: Sequence[bool]) -> dict[str, Any]:
    """Return a share with its 95 % interval (Clopper and Pearson)."""
    interval = stats.binomtest(sum(hits), len(hits)).proportion_ci(0.95)
    return {
        "of": len(hits),
        "share": sum(hits) / len(hits),
        "low": float(interval.low),
        "high": float(interval.high),
    }


def claims_faster(found: Replayed) -> bool:
    """Tell whether a study claims any of its winners to be faster, or has claimed it early."""
    return any(claim.verdict == "faster" for claim in (*found.claims.values(), *found.early))


Claims = dict[str, bool]
"""What each way of looking at one study called faster."""


def claims_of(recording: Recording, found: Replayed, seed: int) -> Claims:
    """Return what a replayed study claims, and what plain habits do on the same recording."""
    return {
        "tune-framework, any winner": claims_faster(found),
        "tune-framework, recommended": found.claims[found.recommended].verdict == "faster",
        "one run each": one_run_each(recording, 0.0, seed).claims_faster,
        "ten repeats": ten_repeats(recording, 0.0, seed).claims_faster,
        "best trial": found.best_trial > 1,
    }


def shares(claims: Sequence[Claims]) -> dict[str, Any]:
    """Return the share of studies in which each way of looking called something faster."""
    return {way: share([each[way] for each in claims]) for way in claims[0]}


def summarise(found: Sequence[tuple[Recording, Replayed]]) -> dict[str, Any]:
    """Return the shares of false claims, in all and per recording's kind."""
    draw = random.Random(0)
    rows = [(rec, rep, claims_of(rec, rep, draw.randrange(2**31))) for rec, rep in found]
    table: dict[str, Any] = {}
    for name, wanted in (("all", (False, True)), ("quiet", (False,)), ("busy", (True,))):
        chosen = [row for row in rows if row[0].busy in wanted]
        if not chosen:
            continue
        table[name] = shares([claims for _, _, claims in chosen])
        verdicts = [claim.verdict for _, rep, _ in chosen for claim in rep.claims.values()]
        table[name]["verdicts"] = {v: verdicts.count(v) for v in sorted(set(verdicts))}
    return table


def summarise_real(found: Sequence[RealStudy]) -> dict[str, Any]:
    """Return the same shares of real studies, and how many intervals hold the truth, which is 1."""
    intervals = [each.interval for each in found if each.interval is not None]
    repeats = [each.repeats for each in found if each.repeats is not None]
    verdicts = [verdict for each in found for verdict in each.verdicts.values()]
    return {
        "tune-framework, any winner": share(["faster" in each.verdicts.values() for each in found]),
        "tune-framework, recommended": share(
            [each.verdicts[each.recommended] == "faster" for each in found]
        ),
        "one run each": share([each.one_run_each for each in found]),
        **({"repeats": share(repeats)} if repeats else {}),
        "best trial": share([each.best_trial for each in found]),
        **({"interval holds 1": share([i.low <= 1 <= i.high for i in intervals])}
           if intervals else {}),
        "verdicts": {v: verdicts.count(v) for v in sorted(set(verdicts))},
        "studies": msgspec.to_builtins(found),
    }  # fmt: skip


def _print(name: str, rows: dict[str, Any]) -> None:
    print(f"{name}:")
    for way, row in rows.items():
        if way == "verdicts":
            print(f"  verdicts: {row}")
        elif way != "studies":
            print(f"  {way:30} {row['share']:6.1%} ({row['low']:.1%} - {row['high']:.1%}) "
                  f"of {row['of']}")  # fmt: skip


def _tell(n: int) -> None:
    print(f"\r{n} studies", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=500, help="replayed; 0 for none")
    parser.add_argument("--budget", type=float, default=600.0, help="virtual seconds of each")
    parser.add_argument("--noise", type=Path, default=NOISE, help="folder of recordings")
    parser.add_argument("--real", type=int, default=0, help="so many real studies as well")
    parser.add_argument("--real-budget", type=float, default=90.0, help="seconds of each")
    parser.add_argument("--json", type=Path, help="write the table there as well")
    arguments = parser.parse_args()
    table: dict[str, Any] = {}
    if arguments.studies:
        table |= summarise(
            replay_many(
                recordings(arguments.noise), {}, arguments.studies, arguments.budget, told=_tell
            )
        )
        print(file=sys.stderr)
    if arguments.real:
        table["real"] = summarise_real(real_studies(arguments.real, arguments.real_budget, _tell))
        print(file=sys.stderr)
    for name, rows in table.items():
        _print(name, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
