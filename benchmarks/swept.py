"""May one process measure several batches, one after the other?

    python -m benchmarks.swept [--models resnet50,ncf] [--frameworks torch,tensorflow]
                               [--rounds 8] [--json OUT]

It would save the start of a process for each further batch. A round is two launches of the default:
one is prepared at a batch at once, the other has served the model's other batch before. Then both
measure at that batch in turn, a fraction of a second each. Printed for each batch: the ratio
swept / fresh with its 95 % interval over rounds, which must be 1 for a sweep to be honest; what a
start costs beside the rest of a launch; and the peak of memory, which a process cannot forget.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec

from benchmarks.default_agrees import ask, worker_rate
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import find_model, make_reference
from tuner.launchers.worker_process import WorkerProcess
from tuner.measurement.confirmation import t_interval
from tuner.record.configuration import Configuration
from tuner.record.launch import Prepared
from tuner.record.load import OFFLINE, Load
from tuner.record.protocol import Begin, Measure, Prepare, WarmUp
from tuner.record.workload import Workload
from tuner.space.launching import plan_launch

N_PAIRS = 8
SERVED_S = 2.0


class Round(msgspec.Struct):
    """One fresh launch beside one that served another batch before."""

    log_ratio: float
    """Of rates, swept over fresh."""
    start_s: float
    """From nothing to a built model: what a sweep saves. Mean of both."""
    prepare_s: float
    """Compiling and warming up at the batch, fresh: what a sweep has to do as well."""
    peak_ratio: float
    """Of the peaks of memory, swept over fresh."""


def one_round(workload: Workload, batch: int, other: int, reference: Path, number: int) -> Round:
    """Measure a batch fresh and swept, slices in turn; which goes first alternates."""
    with ExitStack() as open_ones:
        (fresh, start_s), (swept, other_start_s) = (
            _started(workload, reference, number, open_ones) for _ in range(2)
        )
        fresh.pause()
        _prepared(swept, other)
        ask(swept, Measure(0, SERVED_S, 1))
        after = _prepared(swept, batch)
        swept.pause()
        fresh.resume()
        began = time.monotonic()
        at_once = _prepared(fresh, batch)
        prepare_s = time.monotonic() - began
        ratios = [_log_ratio(swept, fresh, index) for index in range(N_PAIRS)]
    return Round(
        mean(ratios),
        (start_s + other_start_s) / 2,
        prepare_s,
        after.memory_peak_bytes / at_once.memory_peak_bytes,
    )


def _started(
    workload: Workload, reference: Path, number: int, open_ones: ExitStack
) -> tuple[WorkerProcess, float]:
    (plan,) = plan_launch(Configuration(), probe())
    began = time.monotonic()
    worker = WorkerProcess(plan, reference.parent / "worker.log", {})
    open_ones.callback(worker.close)
    ask(worker, Begin(number, workload.model, workload.framework, 0, {}, plan.memory_policy,
                      str(reference)))  # fmt: skip
    return worker, time.monotonic() - began


def _prepared(worker: WorkerProcess, batch: int) -> Prepared:
    ask(worker, Prepare(Load(OFFLINE, batch)))
    reply = ask(worker, WarmUp())
    assert isinstance(reply, Prepared), reply
    return reply


def _log_ratio(swept: WorkerProcess, fresh: WorkerProcess, index: int) -> float:
    """Take one slice of either; `fresh` runs when this begins and when it ends."""
    rates: dict[WorkerProcess, float] = {}
    for worker in (swept, fresh) if index % 2 else (fresh, swept):
        (fresh if worker is swept else swept).pause()
        worker.resume()
        rates[worker] = worker_rate(worker, index)
    swept.pause()
    fresh.resume()
    return math.log(rates[swept]) - math.log(rates[fresh])


def measure(model: str, framework: str, n_rounds: int) -> list[dict[str, Any]]:
    """Measure one model at each of its batches; return a row per batch."""
    ref, card = find_model(model, MODELS)
    workload = Workload(ref, framework, "offline", card)
    batches = sorted({min(card.batches), max(card.batches)})
    if len(batches) < 2:
        raise SystemExit(f"{model} has one batch only: {batches[0]}")
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "reference.npz"
        make_reference(ref, framework, 0, reference)
        return [
            _row(workload, batch, [
                one_round(workload, batch, other, reference, n) for n in range(n_rounds)
            ])
            for batch, other in (batches, batches[::-1])
        ]  # fmt: skip


def _row(workload: Workload, batch: int, rounds: list[Round]) -> dict[str, Any]:
    point, low, high = (math.exp(v) for v in t_interval([r.log_ratio for r in rounds], 0.05))
    return {
        "model": workload.card.name,
        "framework": workload.framework,
        "batch": batch,
        "ratio": [point, low, high],
        "start_s": mean(r.start_s for r in rounds),
        "prepare_s": mean(r.prepare_s for r in rounds),
        "peak_ratio": mean(r.peak_ratio for r in rounds),
        "rounds": msgspec.to_builtins(rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet50,ncf")
    parser.add_argument("--frameworks", default="torch,tensorflow")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write the rows there as well")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models.split(","):
        for framework in arguments.frameworks.split(","):
            for row in measure(model, framework, arguments.rounds):
                point, low, high = row["ratio"]
                print(f"{model} {framework} batch {row['batch']}: swept / fresh = {point:.3f} "
                      f"({low:.3f} - {high:.3f}), start {row['start_s']:.1f} s, preparing "
                      f"{row['prepare_s']:.1f} s, peak of memory {row['peak_ratio']:.2f}x",
                      flush=True)  # fmt: skip
                rows.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
