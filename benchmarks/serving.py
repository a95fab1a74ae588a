"""Does the simulated queue rank servers as real arrivals do?

    python -m benchmarks.serving FOLDER --model mobilenet-v1 --framework torch --slo p99=60ms

The default, every baseline, and configurations that set up to three knobs at random: of each, one
launch that times its batches and then answers requests around the edge that the simulation lets
expect, for four minutes and as many trials as a study takes in haste. With more knobs at once most
are not in force together, or a hundred times as slow as the default, which anything ranks.
Printed: Spearman's correlation of the simulated and the measured highest rates, and what the
simulation's first choice is worth, of the best that was measured.

What is there in FOLDER is not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from benchmarks.company import NOISE, bench_of
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.host.identity import probe
from tuner.measurement.estimates import round_log_scores
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.space.baselines import to_measure

N_CONFIGURATIONS = 24
"""That keep the bound at any rate."""
N_DRAWN = 100
"""At random, at the most."""
MOST_KNOBS = 3
TRIALS_S = 240.0
"""A server of three requests a second takes a minute for each trial, and up to twelve of these."""


def drawn(planned: Plan) -> Iterator[Configuration]:
    """Yield the default, every baseline, and others at random, none twice."""
    draw = random.Random(0)
    found = {Configuration(): None}
    found |= dict.fromkeys(b.configuration for b in to_measure(planned.baselines))
    yield from found
    searched = planned.space.searched
    for _ in range(N_DRAWN):
        knobs = draw.sample(searched, min(len(searched), draw.randint(1, MOST_KNOBS)))
        made = planned.space.canonical({knob.id: draw.choice(knob.choices) for knob in knobs})
        if made not in found:
            found[made] = None
            yield made


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
        for number, configuration in enumerate(drawn(planned)):
            if configuration in known:
                continue
            if len(kept(rows)) >= N_CONFIGURATIONS:
                break
            (record,) = bench.measure_round(
                [configuration], number + 1, Purpose.CONFIRM, noise=NOISE, seconds=TRIALS_S
            )
            (log_score,) = round_log_scores([record], planned.objective)
            timed = [s.served.sustained for s in record.slices if s.served and s.served.sustained]
            row = {
                "settings": configuration.as_dict(),
                "simulated": timed[0] if timed else None,
                "measured": None if log_score is None else math.exp(log_score),
            }
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
    tell(f"{model}/{framework}, {slo}", rows)


def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those that have both rates."""
    return [row for row in rows if row["simulated"] and row["measured"]]


def tell(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the correlation, and what the simulation's first choice is worth."""
    n_all, rows = len(rows), kept(rows)
    if not rows:
        print(f"{name}: none of {n_all} configurations kept a rate")
        return
    simulated = [row["simulated"] for row in rows]
    measured = [row["measured"] for row in rows]
    first = max(rows, key=lambda row: row["simulated"])
    found = spearmanr(simulated, measured).statistic
    print(
        f"{name}: {len(rows)} configurations ({n_all - len(rows)} more failed, or kept no rate), "
        f"Spearman {found:.3f}; the simulation's first choice is worth "
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
