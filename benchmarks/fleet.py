"""What does a fleet's driver cost, how much sooner are eight hosts done than one, who is too noisy?

    python -m benchmarks.fleet driver [--hosts 200] [--studies 1000 10000]
    python -m benchmarks.fleet nodes [--nodes 1 8] [--studies 1] [--budget 300s]
    python -m benchmarks.fleet pace [--times 30]

driver: simulated hosts by a clock of their own, some of which vanish; printed are the driver's CPU
seconds for each study, the share of a core that it used of the fleet's time, and its memory.

nodes: a real Ray cluster of nodes on this machine, each of which does as many studies of the fake
framework, and the studies per hour of each number of nodes, from the driver's start to its end.
They share this machine's cores, so that a launch of the fake sleeps for most of its time.

pace: how much this host's speed swings, alone and beside a busy process on every other CPU; what
tuner/fleet/fitness.py passes hosts over for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.made_up_fleet import drive
from benchmarks.ray_nodes import nodes
from tuner.app.request import Request
from tuner.fleet.fitness import pace
from tuner.fleet.mirror import Piece
from tuner.fleet.running import StudyCallbacks
from tuner.fleet.simulated import Behaviour
from tuner.fleet.study_specs import StudySpec
from tuner.host.identity import probe
from tuner.launchers.neighbour import neighbour
from tuner.record.interval import Interval
from tuner.study.verification import Conclusion, Verification

VANISHES = 0.02
START_S = 4
"""What a launch of the fake sleeps."""


def a_study(folder: Path) -> list[Piece]:
    """Have one small study of the fake, and return what the driver reads of such."""
    command = [sys.executable, "-m", "tuner.cli.main", "--model", "fake@seed=2,noise=0.003"]
    command += ["--hw", "fake", "--budget", "20s", "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [Piece(n, 0, (folder / n).read_bytes()) for n in ("result.json", "recommended.toml")]


def driver(n_hosts: int, n_studies: int) -> None:
    """Print what a driver needs for so many studies; in a process of its own, for its memory.

    Every study brings back the same result, which the driver reads, keeps and shows in its index.
    """
    gain = Interval(1.5, 1.4, 1.6, 0.95)
    said = msgspec.json.encode(
        Verification(Conclusion.CONFIRMED, "", gain, gain, 4, 60.0, [], [], [])
    )
    specs = [StudySpec(f"m{i}", "", f"m{i}", "fake", "asked") for i in range(n_studies)]
    with tempfile.TemporaryDirectory() as name:
        pieces = a_study(Path(name) / "study")
        folder = Path(name) / "fleet"
        before = resource.getrusage(resource.RUSAGE_SELF)
        run = drive(
            folder,
            n_hosts=n_hosts,
            n_models=n_studies,
            behaviour=Behaviour(vanishes=VANISHES),
            makes_up=lambda order, draw: (pieces, said),
            wanted=lambda kind: [spec.row(kind) for spec in specs],
            callbacks_of=lambda board, queue, roster: StudyCallbacks(
                board, queue, roster, folder, Request(model=""), specs, None
            ),
        )
        after = resource.getrusage(resource.RUSAGE_SELF)
    states = [row.state for row in run.queue.rows.values()]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{n_hosts} hosts, {n_studies} studies, {states.count('done')} done in "
        f"{run.cluster.now() / 3600:.1f} h of theirs: {1000 * cpu_s / n_studies:.2f} ms of the "
        f"driver's CPU each, {cpu_s / run.cluster.now():.2%} of a core, "
        f"{after.ru_maxrss / 2**20:.2f} GiB",
        flush=True,
    )


def drivers(n_hosts: int, counts: list[int]) -> None:
    """Have each count in a process of its own."""
    for count in counts:
        command = [sys.executable, "-m", "benchmarks.fleet", "driver", "--hosts", str(n_hosts)]
        subprocess.run([*command, "--alone", "--studies", str(count)], check=True)


def studies_per_hour(n_nodes: int, n_each: int, budget: str) -> float:
    """Have so many studies of the fake for each of some nodes; return how many an hour are done."""
    n_studies = n_nodes * n_each
    models = ",".join(
        f"fake@seed={seed},noise=0.003,start_s={START_S}" for seed in range(n_studies)
    )
    with tempfile.TemporaryDirectory() as name, nodes(folder := Path(name)) as cluster:
        cluster.start("head", has_slot=False)
        for number in range(n_nodes):
            cluster.start(f"node{number}")
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "tuner.cli.main", "--models", models, "--fleet", "auto",
             "--framework", "fake", "--hw", "fake", "--budget", budget, "--confirm-on", "0",
             "--out", str(folder / "out")],
            env={**os.environ, "RAY_ADDRESS": cluster.address}, check=False,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        hours = (time.monotonic() - began) / 3600
        rows = json.loads((folder / "out/index.json").read_text())["rows"]
    n_done: int = sum(row["state"] == "done" for row in rows)
    print(f"{n_nodes} nodes: {n_done} studies in {60 * hours:.1f} min", flush=True)
    return n_done / hours


def paces(n_times: int) -> None:
    """Print how this host does by what hosts are passed over for."""
    host = probe()
    n_cpus = len(host.cpus)
    for n_busy in (0, max(1, n_cpus // 2)):
        with contextlib.ExitStack() as stack:
            if n_busy:
                log = stack.enter_context(tempfile.NamedTemporaryFile())
                stack.enter_context(neighbour(n_busy, Path(log.name)))
            seen = [pace(n_cpus) for _ in range(n_times)]
        swings = sorted(each.swing for each in seen)
        steals = sorted(each.steal for each in seen)
        print(
            f"{n_busy} of {n_cpus} CPUs busy: swing {swings[n_times // 2]:.1%}, at most "
            f"{swings[-1]:.1%}; stolen {steals[n_times // 2]:.1%}, at most {steals[-1]:.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["driver", "nodes", "pace"])
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--studies", type=int, nargs="+")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--budget", default="300s")
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "driver" and given.alone:
        driver(given.hosts, given.studies[0])
    elif given.what == "driver":
        drivers(given.hosts, given.studies or [1000, 10000])
    elif given.what == "pace":
        paces(given.times)
    else:
        per_hour = [
            studies_per_hour(n, (given.studies or [1])[0], given.budget) for n in given.nodes
        ]
        told = " / ".join(f"{each:.0f}" for each in per_hour[::-1])
        print(f"{told} studies an hour: {per_hour[-1] / per_hour[0]:.2f}x")


if __name__ == "__main__":
    main()
