"""What is a configuration that was tuned for throughput worth to a server, and the other way round?

    tune-framework --model mobilenet-v1 --framework torch --hw auto --budget 10m --out OFFLINE
    tune-framework --model mobilenet-v1 --framework torch --hw auto --budget 30m --out SERVER
        --scenario server --slo p99=250ms
    python -m benchmarks.other_question OFFLINE SERVER [--rounds 6]

Fresh interleaved rounds of the default and of what each study found best (the winner of the class
that it recommends, be it proved or not): first the highest rate within the server study's bound,
then items per second offline. The largest batch of the one is the batch of the other; the default
has the batch that was best for it in the study of the same question. Printed: every rate with its
95 % interval over rounds, and its ratio to the default's and to the other question's winner, over
the rounds in which both had one.

Rounds are kept in SERVER/other_question.jsonl and not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.company import NOISE, bench_of, interval
from benchmarks.real_regret import LEAST_ROUNDS
from tuner.app.plan import plan
from tuner.app.request import Request
from tuner.host.identity import probe
from tuner.measurement.estimates import round_log_scores
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.space.knobs_of.launch import BATCH
from tuner.space.space import Space

DEFAULT, SERVER, OFFLINE = "default", "tuned for a server", "tuned for throughput"
NAMES = (DEFAULT, OFFLINE, SERVER)
SCENARIOS = ("server", "offline")
"""In the order in which they are asked."""
UNHURRIED_S = 90.0
"""Of a round: what is disturbed later is not measured again."""


def winner(result: Mapping[str, Any]) -> Configuration:
    """Return what a study found best in the class that it recommends, with its batch."""
    won = result["winners"][result["recommended_class"]]
    return Configuration.of({BATCH: result["reference_batch"], **won["configuration"]})


def arms_of(scenario: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Configuration]:
    """Return what is measured for a question, by name."""
    return {
        DEFAULT: Configuration.of({BATCH: results[scenario]["default"]["batch"]}),
        SERVER: winner(results["server"]),
        OFFLINE: winner(results["offline"]),
    }


def request_of(result: Mapping[str, Any], scenario: str, slo: str) -> Request:
    """Return the question of one study, asked of the model of another."""
    return Request(
        model=result["model"],
        frameworks=(result["framework"],),
        scenario=scenario,
        slo=slo if scenario == "server" else "",
    )


def asked_of(space: Space, arm: Configuration) -> Configuration:
    """Return a configuration in the space of another question, without what that does not have."""
    return space.canonical({knob: value for knob, value in arm.settings if knob in space.by_id})


def measure(
    path: Path, request: Request, arms: Mapping[str, Configuration], n_rounds: int
) -> list[dict[str, float]]:
    """Have rounds until there are so many; return each arm's log rate in those where it had one."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    wanted = {name: arm.as_dict() for name, arm in arms.items()}
    kept = [r for r in rows if r["scenario"] == request.scenario and r["arms"] == wanted]
    if len(kept) < n_rounds:
        (planned,) = plan(request, probe())
        settings = {name: asked_of(planned.space, arm) for name, arm in arms.items()}
        distinct = list(dict.fromkeys(settings.values()))
        with (
            bench_of(planned.workload, planned.facts, planned.objective) as bench,
            path.open("a") as file,
        ):
            for number in range(len(rows) + 1, len(rows) + 1 + n_rounds - len(kept)):
                records = bench.measure_round(
                    distinct, number, Purpose.CONFIRM, noise=NOISE, seconds=UNHURRIED_S
                )
                log_scores = dict(
                    zip(distinct, round_log_scores(records, planned.objective), strict=True)
                )
                found = {name: log_scores[each] for name, each in settings.items()}
                row = {"scenario": request.scenario, "arms": wanted, "log_rates": found}
                file.write(json.dumps(row) + "\n")
                file.flush()
                kept.append(row)
    return [{n: r for n, r in row["log_rates"].items() if r is not None} for row in kept]


def tell(
    title: str, unit: str, rounds: Sequence[Mapping[str, float]], names: Sequence[str]
) -> None:
    """Print every arm's rate, and its ratio to that of each arm before it."""
    print(f"{title}:")
    for name in names:
        own = [row[name] for row in rounds if name in row]
        if len(own) < LEAST_ROUNDS:
            print(f"  {name:21s} had a rate in {len(own)} of {len(rounds)} rounds")
            continue
        told = "{:.4g} ({:.4g} - {:.4g})".format(*interval(own))
        print(f"  {name:21s} {told} {unit}, in {len(own)} of {len(rounds)} rounds")
    for other, name in combinations(names, 2):
        both = [row[name] - row[other] for row in rounds if name in row and other in row]
        if len(both) >= LEAST_ROUNDS:
            told = "{:.2f}x ({:.2f} - {:.2f})".format(*interval(both))
            print(f"  {name} / {other}: {told}, in {len(both)} of {len(rounds)} rounds")


def main() -> None:
    """Read both studies, have the rounds, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("offline", type=Path)
    parser.add_argument("server", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    results = {
        scenario: json.loads((folder / "result.json").read_text())
        for scenario, folder in (("offline", given.offline), ("server", given.server))
    }
    offline, server = results["offline"], results["server"]
    if (offline["model"], offline["framework"]) != (server["model"], server["framework"]):
        sys.exit("the two studies are not of the same model in the same framework")
    if (offline["scenario"], server["scenario"]) != ("offline", "server"):
        sys.exit("name the offline study first, then the one of a server")
    slo = server["objective"]["slo"]
    if slo["trace"]:
        sys.exit("the server's requests are those of a trace; here they arrive at random")
    bound = f"p{100 * slo['quantile']:g}={1000 * slo['seconds']:g}ms"
    for name, result in ((SERVER, server), (OFFLINE, offline)):
        winner_class = result["recommended_class"]
        verdict = result["winners"][winner_class]["verdict"]
        print(f"{name} ({winner_class}, {verdict}): {winner(result).label()}")
    for scenario in SCENARIOS:
        arms = arms_of(scenario, results)
        request = request_of(server, scenario, bound)
        unit = f"requests/s within {bound}" if scenario == "server" else "items/s"
        rounds = measure(given.server / "other_question.jsonl", request, arms, given.rounds)
        tell(scenario, unit, rounds, NAMES)


if __name__ == "__main__":
    main()
