"""Is one process on all cores faster, or one on each core?

    python -m benchmarks.instances [--models resnet50,bert-base,dlrm-rmc2] [--framework torch]
                                   [--rounds 6] [--instances N] [--json OUT]

Rounds of one fresh launch of each arm, their slices interleaved as in a confirmation: the default,
N instances on an equal share of the cores each (as many as there are cores, if not said), and in
PyTorch the same with weights that they share. The ratio of summed rates with its 95 % interval over
rounds, what a call takes in each, and the memory of all instances.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from scipy import stats

from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import describe_model, find_model, make_reference
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.bench import bench_on
from tuner.measurement.passes import passes_of
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.objective import THROUGHPUT
from tuner.record.store import Store
from tuner.record.workload import Workload

_NOISE = Scatter(0.02, 0.01)


def arms_for(framework: str, n_instances: int) -> list[Configuration]:
    """Return the default first."""
    team = Configuration.of({"launch.instances": n_instances})
    shared = [team.with_value("torch.weights", "mapped")] if framework == "torch" else []
    return [Configuration(), team, *shared]


def measure(model: str, framework: str, n_instances: int, n_rounds: int) -> list[dict[str, Any]]:
    """Measure one model; return a row per arm."""
    ref, card = find_model(model, MODELS)
    arms = arms_for(framework, n_instances)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "study") as store:
        facts = describe_model(ref, framework, 0)
        make_reference(ref, framework, 0, store.reference_path)
        bench = bench_on(
            THIS_HOST,
            store,
            probe(),
            Workload(ref, framework, "offline", card),
            facts,
            THROUGHPUT,
            lambda _: None,
            session=1,
            seed=0,
            seconds_left=lambda: 3600.0,
            waiting_s=120.0,
        )
        try:
            for arm in arms:  # what they need of memory is known before they are resident together
                bench.measure(arm, Purpose.BASELINE, noise=_NOISE)
            rounds = [
                bench.measure_round(arms, number, Purpose.CONFIRM, noise=_NOISE)
                for number in range(1, n_rounds + 1)
            ]
        finally:
            bench.close()
    return [
        {"model": model, "framework": framework, **_row(arm, i, rounds)}
        for i, arm in enumerate(arms)
    ]


def _row(arm: Configuration, i: int, rounds: list[list[LaunchRecord]]) -> dict[str, Any]:
    own = [records[i] for records in rounds]
    whole = [records for records in rounds if all(r.slices for r in records)]
    values = [passes_of(records, THROUGHPUT).values() for records in whole]
    differences = [each[i] - each[0] for each in values]
    mean = statistics.fmean(differences)
    half = 0.0
    if i > 0 and len(differences) > 1:
        sd = statistics.stdev(differences) / math.sqrt(len(differences))
        half = float(stats.t.ppf(0.975, len(differences) - 1)) * sd
    slices = [s for r in own for s in r.slices if not s.interference.dirty]
    slices = slices or [s for r in own for s in r.slices]
    calls = [s.latency.p50_s for s in slices if s.latency is not None]
    return {
        "arm": arm.label(),
        "n_rounds": len(values),
        "items_per_s": statistics.median(s.rate for s in slices),
        "ratio": [math.exp(mean), math.exp(mean - half), math.exp(mean + half)],
        "call_ms": 1000 * statistics.median(calls) if calls else None,
        "memory_mib": max(r.prepared.memory_peak_bytes for r in own if r.prepared) / 2**20,
        "clean": sum(not s.interference.dirty for r in own for s in r.slices)
        / sum(len(r.slices) for r in own),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet50,bert-base,dlrm-rmc2")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--instances", type=int, default=probe().usable_cores)
    parser.add_argument("--json", type=Path, help="write the rows there as well")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models.split(","):
        for row in measure(model, arguments.framework, arguments.instances, arguments.rounds):
            point, low, high = row["ratio"]
            call = f"{row['call_ms']:.3g} ms a call" if row["call_ms"] else "-"
            print(f"{row['model']:10s} {row['items_per_s']:10.2f} items/s  {point:.2f}x "
                  f"({low:.2f} - {high:.2f}, {row['n_rounds']} rounds)  {call}  "
                  f"{row['memory_mib']:.0f} MiB  clean {row['clean']:.0%}  {row['arm']}",
                  flush=True)  # fmt: skip
            rows.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps([msgspec.to_builtins(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
