"""What does MLPerf's LoadGen say of a server study's rates, in launches of another hour?

    python -m benchmarks.loadgen_words SERVER [--of winner default] [--shares 1 0.9 0.8] [--turns 2]
        [--minutes 10]

SERVER: a study with --scenario server. Each turn, of each configuration and at each share of the
lower bound of its rate, has a fresh launch: it answers requests of the tool's own first, as they
arrive in a confirmation but so many as LoadGen sends, and then LoadGen's, for so many minutes if
they are given. Printed: how many were late in either, the quantile of the latency, and LoadGen's
word.

What was said is kept in SERVER/loadgen_words.jsonl. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.company import bench_of
from benchmarks.other_question import DEFAULT, request_of, winner
from tuner.app.plan import plan
from tuner.host.identity import probe
from tuner.launchers.loadgen import MISSING, is_installed
from tuner.measurement.bench import Bench
from tuner.measurement.steps import SLICE_S
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose, percentile
from tuner.record.load import Offer, Slo
from tuner.space.knobs_of.launch import BATCH
from tuner.study.forecast import LOADGEN_ENOUGH
from tuner.study.loadgen import order_for

WINNER = "winner"


def arms_of(result: Mapping[str, Any]) -> dict[str, tuple[Configuration, float]]:
    """Return the configurations of a study, each with the lower bound of its rate."""
    won, default = result["winners"][result["recommended_class"]], result["default"]
    at_default = Configuration.of({BATCH: default["batch"]})
    arms = {WINNER: (winner(result), won["value"]), DEFAULT: (at_default, default["value"])}
    return {name: (arm, value["low"]) for name, (arm, value) in arms.items() if value is not None}


def asked(
    bench: Bench, arm: Configuration, rate: float, slo: Slo, seed: int, seconds: float = 0.0
) -> dict[str, Any]:
    """Have a launch answer the tool's own requests and LoadGen's; return what came of it.

    seconds: of LoadGen's, at least.
    """
    n = LOADGEN_ENOUGH * slo.least_requests
    launch = bench.launcher.start(arm, Purpose.CONFIRM, round_number=1)
    launch.take_slice(bench.store.next_slice_index(), SLICE_S, None)
    launch.take_slice(bench.store.next_slice_index(), SLICE_S, Offer(rate, n, seed))
    offered = launch.record.slices[-1]
    said = launch.validate(order_for(launch, slo, rate, max(seconds, n / rate), bench.n_shapes))
    launch.finish()
    row: dict[str, Any] = {
        "n": n,
        "late": sum(call_s > slo.seconds for call_s in offered.call_s),
        "latency_s": percentile(offered.call_s, slo.quantile),
        "disturbed": list(offered.interference.dirty),
        "fault": said.fault,
        "disturbed_loadgen": list(said.disturbed),
    }
    if said.told is not None:
        word = said.told
        row |= {"word": word.word, "n_loadgen": word.n_requests, "late_loadgen": word.n_over,
                "latency_loadgen_s": word.latency_s}  # fmt: skip
    return row


def told(row: Mapping[str, Any], slo: Slo) -> str:
    """Write what came of a launch on one line."""
    own = f"own: {row['late']} of {row['n']} late, {slo.name} {row['latency_s']:.3f} s"
    words = f"no word: {row['fault']}"
    if "word" in row:
        words = (
            f"{row['word']}, {row['late_loadgen']} of {row['n_loadgen']} late, "
            f"{slo.name} {row['latency_loadgen_s']:.3f} s"
        )
    disturbed = [*row["disturbed"], *row["disturbed_loadgen"]]
    beside = f"; disturbed: {disturbed[0]}" if disturbed else ""
    return f"{row['arm']} at {row['rate']:.4g} requests/s: {own}; LoadGen: {words}{beside}"


def main() -> None:
    """Ask in turns, print and keep what was said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", type=Path)
    parser.add_argument("--of", nargs="+", choices=(WINNER, DEFAULT), default=(WINNER, DEFAULT))
    parser.add_argument("--shares", type=float, nargs="+", default=(1.0, 0.9, 0.8))
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=0.0)
    given = parser.parse_args()
    if not is_installed():
        sys.exit(MISSING)
    result = json.loads((given.server / "result.json").read_text())
    if result["objective"]["slo"] is None:
        sys.exit(f"{given.server} is no study of a server")
    ask(
        given.server / "loadgen_words.jsonl",
        result,
        given.of,
        given.shares,
        given.turns,
        60 * given.minutes,
    )


def ask(
    path: Path,
    result: Mapping[str, Any],
    names: Sequence[str],
    shares: Sequence[float],
    n: int,
    seconds: float = 0.0,
) -> None:
    """Ask about each configuration at each share of its rate, so many times in turns.

    seconds: of LoadGen's requests, at least.
    """
    slo = result["objective"]["slo"]
    bound = f"p{100 * slo['quantile']:g}={1000 * slo['seconds']:g}ms"
    (planned,) = plan(request_of(result, "server", bound), probe())
    objective = planned.objective
    assert objective.slo is not None
    arms = arms_of(result)
    with bench_of(planned.workload, planned.facts, objective) as bench, path.open("a") as file:
        for turn in range(n):
            for name in names:
                arm, low = arms[name]
                for share in shares:
                    row = {"arm": name, "configuration": arm.as_dict(), "rate": share * low}
                    row |= asked(bench, arm, share * low, objective.slo, turn, seconds)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    print(told(row, objective.slo), flush=True)


if __name__ == "__main__":
    main()
