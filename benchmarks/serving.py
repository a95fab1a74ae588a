"""Does the simulated queue rank servers as real arrivals do?

    python -m benchmarks.serving FOLDER --model mobilenet-v1 --framework torch --slo p99=60ms

Configurations drawn at random, the default and every baseline among them: of each, one launch that
times its batches and then answers requests around the edge that the simulation lets expect, for
four minutes and as many trials as a study takes in haste.
Printed: Spearman's correlation of the simulated and the measured highest rates, and what the
simulation's first choice is worth, of the best that was measured.

What is there in FOLDER is not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from benchmarks.company import NOISE, bench_of
from tuner.host.identity import probe
from tuner.measurement.estimates import round_worths
from tuner.plan import Plan, plan
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.request import Request
from tuner.space.baselines import to_measure

N_CONFIGURATIONS = 24
TRIALS_S = 240.0
"""A server of three requests a second takes a minute for each trial, and up to twelve of these."""


def drawn(planned: Plan, n: int) -> list[Configuration]:
    """Return the default, every baseline, and others at random until there are `n`."""
    draw = random.Random(0)
    found = [Configuration(), *(b.configuration for b in to_measure(planned.baselines))]
    while len(found) < n:
        chosen = {knob.id: draw.choice(knob.choices) for knob in planned.space.searched}
        configuration = planned.space.canonical(chosen)
        if configuration not in found:
            found.append(configuration)
    return found[:n]


def rank(folder: Path, model: str, framework: str, slo: str) -> None:
    """Measure and print how well the simulation ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{model}-{framework}.jsonl"
    request = Request(model=model, frameworks=(framework,), scenario="server", slo=slo)
    (planned,) = plan(request, probe())
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {Configuration.of(row["settings"]) for row in rows}
    with (
        bench_of(planned.workload, planned.facts, planned.objective) as bench,
        open(path, "a") as file,
    ):
        for number, configuration in enumerate(drawn(planned, N_CONFIGURATIONS)):
            if configuration in known:
                continue
            (record,) = bench.measure_round(
                [configuration], number + 1, Purpose.CONFIRM, noise=NOISE, seconds=TRIALS_S
            )
            (worth,) = round_worths([record], planned.objective)
            timed = [s.served.sustained for s in record.slices if s.served and s.served.sustained]
            if worth is None or not timed:
                continue
            row = {"settings": configuration.as_dict(), "simulated": timed[0],
                   "measured": math.exp(worth)}  # fmt: skip
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
    tell(f"{model}/{framework}, {slo}", rows)


def tell(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the correlation, and what the simulation's first choice is worth."""
    simulated = [row["simulated"] for row in rows]
    measured = [row["measured"] for row in rows]
    first = max(rows, key=lambda row: row["simulated"])
    print(
        f"{name}: {len(rows)} configurations, Spearman "
        f"{spearmanr(simulated, measured).statistic:.3f}; the simulation's first choice is worth "
        f"{first['measured'] / max(measured):.1%} of the best"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="mobilenet-v1")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--slo", required=True)
    given = parser.parse_args()
    rank(given.folder, given.model, given.framework, given.slo)


if __name__ == "__main__":
    main()
