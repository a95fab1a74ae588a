"""How long `tune-framework --help` takes, beside an empty Python in the same minute.

    python -m benchmarks.help_time [--json OUT]

The machine's speed drifts, so the two alternate and the ratio is what can be compared; the median
in seconds is what a user waits (the contract: below 0.3 s).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "tune-framework --help": [sys.executable, "-P", "-m", "tuner.cli.main", "--help"],
}


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(arguments.rounds):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    bare, helped = (statistics.median(taken[name]) for name in COMMANDS)
    ratios = sorted(h / b for b, h in zip(*taken.values(), strict=True))
    figures = {
        "python_s": bare,
        "help_s": helped,
        "help_s_95th": statistics.quantiles(taken["tune-framework --help"], n=20)[-1],
        "ratio": statistics.median(ratios),
        "rounds": arguments.rounds,
    }
    for name, value in figures.items():
        print(f"{name:12} {value:.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
