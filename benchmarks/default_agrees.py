"""The default against a script of twenty lines that does the same, launch by launch, interleaved.

    python -m benchmarks.default_agrees --model resnet50 --framework torch [--as-is] [--json OUT]

Every speedup has the default as its denominator: were it slower than what users run, all of them
would be flattered. A round is one fresh worker, stopped while one fresh script measures, so that
both see the same minute of the machine. Printed: the ratio worker / script with its 95 % interval.

glibc's malloc moves its thresholds with what was freed before and trims its heap by what happens to
lie on top: drawing ten small random arrays before the first call makes the very same PyTorch script
10-25 % faster. Both sides therefore run with fixed thresholds, so that the rest is compared;
`--as-is` leaves them alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.host.identity import probe
from tuner.measurement.confirmation import t_interval
from tuner.measurement.describe import describe_model, find_model, make_reference
from tuner.measurement.process import WorkerProcess
from tuner.record.configuration import Configuration
from tuner.record.protocol import Begin, Command, Failed, Measure, Measured, Prepare, Reply, Stage
from tuner.record.workload import ModelFacts, Workload
from tuner.space.launching import plan_launch

HERE = Path(__file__).resolve().parent
STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
SLICE_S = 0.5
SCRIPT_S = 1.0
TIMEOUT_S = 300


def log_ratios(
    model: str,
    framework: str,
    n_rounds: int,
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType(STEADY_MALLOC),
) -> list[float]:
    """Return log(worker rate / script rate) of each round; the model takes one image."""
    ref, card = find_model(model, MODELS)
    workload = Workload(ref, framework, "offline", card)
    height, width = image_size(describe_model(ref, framework, 0))
    reference = folder / f"{framework}.npz"
    make_reference(ref, framework, 0, reference)
    return [
        one_round(workload, (height, width), reference, n, environment) for n in range(n_rounds)
    ]


def one_round(
    workload: Workload,
    image: tuple[int, int],
    reference: Path,
    number: int,
    environment: Mapping[str, str],
) -> float:
    """Measure worker, script, worker; return the log ratio of their mean rates."""
    (plan,) = plan_launch(Configuration(), probe())
    worker = WorkerProcess(plan, reference.parent / f"worker{number}.log", environment)
    try:
        begin = Begin(number, workload.model, workload.framework, 0, {}, plan.memory_policy,
                      str(reference))  # fmt: skip
        _ask(worker, begin)
        _ask(worker, Prepare(workload.card.reference_batch))
        before = worker_rate(worker, 0)
        worker.pause()
        script = script_rate(workload, image, environment)
        worker.resume()
        after = worker_rate(worker, 1)
    finally:
        worker.close()
    return (math.log(before) + math.log(after)) / 2 - math.log(script)


def worker_rate(worker: WorkerProcess, index: int) -> float:
    """Take one slice; the first call after a pause is not timed. Items per second."""
    reply = _ask(worker, Measure(index, SLICE_S, 1))
    assert isinstance(reply, Measured), reply
    return reply.slice.rate


def _ask(worker: WorkerProcess, command: Command) -> Reply:
    worker.send(command)
    while isinstance(reply := worker.receive(TIMEOUT_S), Stage):
        pass
    if isinstance(reply, Failed):
        raise RuntimeError(reply.reason)
    return reply


def image_size(facts: ModelFacts) -> tuple[int, int]:
    """Return height and width of a model's one image, which PyTorch takes channels first.

    Ends the program where the model takes anything else.
    """
    shape, *others = facts.input_shapes
    if others or len(shape) != 3:
        sys.exit(
            f"the plain scripts serve models of one image; this one takes {facts.input_shapes}"
        )
    height, width = shape[1:] if "torch" in facts.versions else shape[:2]
    return height, width


def script_rate(
    workload: Workload, image: tuple[int, int], environment: Mapping[str, str]
) -> float:
    """Run the plain script once; return its items per second."""
    script = HERE / f"plain_{workload.framework}.py"
    numbers = (*image, workload.card.reference_batch, SCRIPT_S)
    done = subprocess.run(
        [sys.executable, script, workload.model.path, *map(str, numbers)],
        env={**untuned(os.environ), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--framework", choices=("torch", "tensorflow"), default="torch")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--as-is", action="store_true", help="leave malloc's thresholds alone")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = log_ratios(
            arguments.model,
            arguments.framework,
            arguments.rounds,
            Path(folder),
            {} if arguments.as_is else STEADY_MALLOC,
        )
    point, low, high = (math.exp(v) for v in t_interval(found, 0.05))
    print(f"{arguments.model} {arguments.framework}: worker / script = {point:.3f} "
          f"({low:.3f} - {high:.3f}) over {arguments.rounds} rounds")  # fmt: skip
    if arguments.json:
        figures = {"point": point, "low": low, "high": high, "ratios": [math.exp(v) for v in found]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
