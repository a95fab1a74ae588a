"""The default against a script of twenty lines that does the same, launch by launch, interleaved.

    python -m benchmarks.default_agrees --model resnet50 --framework torch [--mode training]
        [--as-is] [--json OUT]

Every speedup has the default as its denominator: were it slower than what users run, all of them
would be flattered. A round is one fresh worker and one fresh script, which measure in turn for a
fraction of a second each, either one stopped while the other measures, so that both see the same
seconds of the machine. Printed: the ratio worker / script with its 95 % interval.

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
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from types import MappingProxyType

from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.host.identity import probe
from tuner.launchers.describe import describe_model, find_model, make_reference
from tuner.launchers.worker_process import WorkerProcess
from tuner.measurement.confirmation import t_interval
from tuner.record.configuration import Configuration
from tuner.record.load import INFERENCE, OFFLINE, TRAINING, Load
from tuner.record.protocol import (
    Begin,
    Command,
    Failed,
    Measure,
    Measured,
    Prepare,
    Reply,
    Stage,
    WarmUp,
)
from tuner.record.workload import ModelFacts, Workload
from tuner.space.launching import plan_launch

HERE = Path(__file__).resolve().parent
STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
SLICE_S = 0.25
N_PAIRS = 8
WARM_UP_S = 1.0
TIMEOUT_S = 300


def log_ratios(
    model: str,
    framework: str,
    n_rounds: int,
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType(STEADY_MALLOC),
    mode: str = INFERENCE,
) -> list[float]:
    """Return log(worker rate / script rate) of each round; the model takes one image."""
    ref, card = find_model(model, MODELS)
    scenario = OFFLINE if mode == INFERENCE else mode
    workload = Workload(ref, framework, scenario, card, mode=mode)
    height, width = image_size(describe_model(ref, framework, 0))
    reference = folder / f"{framework}.npz"
    make_reference(ref, framework, 0, reference, mode=mode)
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
    """Measure worker and script in turn; return the mean log ratio of their rates."""
    (plan,) = plan_launch(Configuration(), probe())
    with plain_script(workload, image, environment) as script:
        worker = WorkerProcess(plan, reference.parent / f"worker{number}.log", environment)
        try:
            begin = Begin(number, workload.model, workload.framework, 0, {}, plan.memory_policy,
                          str(reference), workload.mode)  # fmt: skip
            ask(worker, begin)
            ask(worker, Prepare(Load(workload.scenario, workload.card.reference_batch)))
            ask(worker, WarmUp())
            return mean(log_ratio(worker, script, index) for index in range(N_PAIRS))
        finally:
            worker.close()


def log_ratio(worker: WorkerProcess, script: subprocess.Popen[str], index: int) -> float:
    """Take one slice of either; which goes first alternates, as the machine may drift."""
    if index % 2:
        first = worker_rate(worker, index)
    worker.pause()
    script.send_signal(signal.SIGCONT)
    plain = script_rate(script)
    script.send_signal(signal.SIGSTOP)
    worker.resume()
    rate = first if index % 2 else worker_rate(worker, index)
    return math.log(rate) - math.log(plain)


def worker_rate(worker: WorkerProcess, index: int) -> float:
    """Take one slice; the first call after a pause is not timed. Items per second."""
    reply = ask(worker, Measure(index, SLICE_S, 1))
    assert isinstance(reply, Measured), reply
    return reply.slice.rate


def ask(worker: WorkerProcess, command: Command) -> Reply:
    """Give an order and return what comes of it; raises RuntimeError where it failed."""
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


@contextmanager
def plain_script(
    workload: Workload, image: tuple[int, int], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run the plain script, warmed up and stopped, until the block ends."""
    of_mode = "" if workload.mode == INFERENCE else f"_{workload.mode}"
    script = HERE / f"plain_{workload.framework}{of_mode}.py"
    numbers = (*image, workload.card.reference_batch, SLICE_S)
    with subprocess.Popen(
        [sys.executable, script, workload.model.path, *map(str, numbers)],
        env={**untuned(os.environ), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for _ in range(round(WARM_UP_S / SLICE_S)):
                script_rate(process)
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.kill()


def script_rate(script: subprocess.Popen[str]) -> float:
    """Have the plain script measure once; return its items per second."""
    assert script.stdin and script.stdout
    print(file=script.stdin, flush=True)
    if not select.select([script.stdout], [], [], TIMEOUT_S)[0]:
        raise RuntimeError(f"the plain script measured nothing in {TIMEOUT_S} s")
    line = script.stdout.readline()
    if not line:
        raise RuntimeError(f"the plain script ended with {script.wait()}")
    return float(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--framework", choices=("torch", "tensorflow"), default="torch")
    parser.add_argument("--mode", choices=(INFERENCE, TRAINING), default=INFERENCE)
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
            arguments.mode,
        )
    point, low, high = (math.exp(v) for v in t_interval(found, 0.05))
    what = f"{arguments.model} {arguments.framework} {arguments.mode}"
    print(f"{what}: worker / script = {point:.3f} ({low:.3f} - {high:.3f}) "
          f"over {arguments.rounds} rounds")  # fmt: skip
    if arguments.json:
        figures = {"point": point, "low": low, "high": high, "ratios": [math.exp(v) for v in found]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
