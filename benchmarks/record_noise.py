"""Record how identical launches differ on this host: what the replays draw from.

    python -m benchmarks.record_noise OUT [--model mobilenet-v1] [--framework torch]
                                      [--rounds 8] [--launches 6] [--busy]

In each round so many launches of the model's default are resident and take turns, slice by slice,
as arms of a confirmation do. --busy: another process works on the same CPUs now and then. OUT is a
JSON file: per round and launch the slices (log rate, moment, whether flagged), and what a launch
costs. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import describe_model, find_model, make_reference
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.bench import bench_on
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.objective import THROUGHPUT
from tuner.record.store import Store
from tuner.record.workload import Workload

_MOST = Scatter(1e-6, 1.0)
"""Launches that scatter so little, and slices so much, are worth the most slices there are."""


@contextlib.contextmanager
def now_and_then(seed: int) -> Iterator[None]:
    """Keep one CPU busy for 1 to 4 s, leave it alone for 2 to 8 s, and so on."""
    command = [sys.executable, "-m", "benchmarks.record_noise", "--toggle", str(seed)]
    toggler = subprocess.Popen(command)
    try:
        yield
        if toggler.poll() is not None:
            sys.exit("the busy neighbour ended before the recording did: record again")
    finally:
        toggler.terminate()
        toggler.wait()


def toggle(seed: int) -> None:
    """Be that neighbour until terminated, or until the recorder has gone."""
    draw, recorder = random.Random(seed), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while os.getppid() == recorder:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner.worker.busy", "1"], stdout=subprocess.DEVNULL
        )
        try:
            time.sleep(draw.uniform(1, 4))
        finally:
            worker.kill()
            worker.wait()
        time.sleep(draw.uniform(2, 8))


def launch_data(record: LaunchRecord) -> dict[str, Any]:
    """Return what a replay needs of a launch."""
    fixed_s = record.total_s - record.slicing_s - record.check_s
    return {
        "fixed_s": round(fixed_s, 3),
        "slice_s": round(record.slicing_s / len(record.slices), 4),
        "slices": [
            {"at": round(s.at, 3), "rate": s.rate, "dirty": list(s.interference.dirty)}
            for s in record.slices
        ],
    }


def record(model: str, framework: str, n_rounds: int, n_launches: int) -> list[Any]:
    """Measure the rounds and return their data."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "study") as store:
        ref, card = find_model(model, MODELS)
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
            seconds_left=lambda: 1e6,
            waiting_s=0.0,
        )
        try:
            bench.measure(
                Configuration(), Purpose.BASELINE, noise=Scatter(1.0, 0.0)
            )  # what it holds
            bench.pacer.retire()
            for number in range(n_rounds):
                arms = [Configuration()] * n_launches
                records = bench.measure_round(arms, number + 1, Purpose.CONFIRM, noise=_MOST)
                rounds.append([launch_data(r) for r in records])
                print(f"round {number + 1} of {n_rounds}", file=sys.stderr, flush=True)
        finally:
            bench.close()
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--model", default="mobilenet-v1")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--toggle", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.toggle is not None:
        toggle(arguments.toggle)
    if arguments.out is None:
        parser.error("name a file to write")
    with now_and_then(1) if arguments.busy else contextlib.nullcontext():
        rounds = record(arguments.model, arguments.framework, arguments.rounds, arguments.launches)
    data = {
        "host": probe().summary(),
        "date": datetime.date.today().isoformat(),
        "model": arguments.model,
        "framework": arguments.framework,
        "busy": arguments.busy,
        "rounds": rounds,
    }
    arguments.out.write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
