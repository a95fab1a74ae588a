"""What preparing launches side by side saves, and that it does not change what is measured.

    python -m benchmarks.company seconds [--model resnet50] [--turns 4]
    python -m benchmarks.company agrees [--model fc] [--rounds 24]
    python -m benchmarks.company model [--model resnet50] [--cores 2 4 8 16 64]

seconds: a fixed list of launches (as the search makes them) and of rounds (as the confirmation
does), prepared side by side and one after another, in turns; the ratio of the seconds of the wall
clock. The compiler's cache is warm in both.

agrees: the default, a compiled, a frozen and a preloaded configuration, each prepared alone and
beside a companion that compiles meanwhile; in every round one fresh launch of either kind, their
slices in turn, each measured alone. The ratio of their rates with its 95 % interval over rounds
must hold 1.

model: what the preparations of the fixed list would take on other hosts, side by side over one
after another, by a model of their work (many_cores.py); on as many cores as this host has, beside
what they took.
Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scipy import stats

from benchmarks.many_cores import Work, children_cpu_s, in_groups_s, work_of
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import describe_model, find_model, make_reference
from tuner.launchers.processes import ProcessLauncher
from tuner.launchers.protocol import Launch, Launcher
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.bench import Bench, bench_on
from tuner.measurement.replication import Scatter
from tuner.measurement.steps import SLICE_S
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.record.load import INFERENCE, OFFLINE, TRAINING
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload

NOISE = Scatter(1.0, 0.0)
"""Where launches scatter so much, more slices are not worth their time: all take the least."""
COMPILED = Configuration.of({"torch.compile.mode": "default"})
FROZEN = Configuration.of({"torch.compile.mode": "freezing"})
PRELOADED = Configuration.of({"launch.allocator": "tcmalloc"})
LAST = "torch.memory_format", "channels_last"
DENORMALS = "torch.flush_denormal", True
ARMS = {
    "default": Configuration(),
    "compiled": COMPILED,
    "frozen": FROZEN,
    "preloaded": PRELOADED,
}
COMPANION = FROZEN.with_value(*DENORMALS)
"""Inductor's freezing passes its cache by: it compiles in every launch."""
SEARCHED = (COMPILED, PRELOADED, FROZEN, COMPILED.with_value(*LAST))
IN_ROUND = (Configuration(), COMPILED, PRELOADED)
N_ROUNDS = 2
N_SLICES = 5


class Alone:
    """A launcher that prepares one launch after another; all else is the other's."""

    most_together = 1

    def __init__(self, launcher: ProcessLauncher) -> None:
        self._launcher = launcher
        self.start_together = launcher.start_together
        self.start, self.fit, self.close = launcher.start, launcher.fit, launcher.close
        self.neighbours, self.can_profile = launcher.neighbours, launcher.can_profile

    def n_together(self, configurations: Sequence[Configuration]) -> int:
        return 1


@contextmanager
def bench_for(model: str, framework: str = "torch", mode: str = INFERENCE) -> Iterator[Bench]:
    """Yield a bench for a model, offline or training, in a folder that is gone afterwards."""
    ref, card = find_model(model, MODELS)
    scenario = OFFLINE if mode == INFERENCE else TRAINING
    workload = Workload(ref, framework, scenario, card, mode=mode)
    facts = describe_model(ref, framework, 0, mode=mode)
    with bench_of(workload, facts, THROUGHPUT) as bench:
        yield bench


@contextmanager
def bench_of(workload: Workload, facts: ModelFacts, objective: Objective) -> Iterator[Bench]:
    """Yield a bench for a workload, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "study") as store:
        make_reference(
            workload.model, workload.framework, 0, store.reference_path, mode=workload.mode
        )
        began = time.monotonic()
        store.used_s = lambda: time.monotonic() - began
        bench = bench_on(
            THIS_HOST,
            store,
            probe(),
            workload,
            facts,
            objective,
            lambda _: None,
            session=1,
            seed=0,
            seconds_left=lambda: 36_000.0,
            waiting_s=0.0,
        )
        try:
            yield bench
        finally:
            bench.close()


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return a ratio with its 95 % interval, from logarithms."""
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * error
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def fixed_work(bench: Bench) -> dict[str, float]:
    """Carry out the list; return the seconds of its launches and of its rounds."""
    began = time.monotonic()
    bench.pacer.block()
    at_work = time.monotonic()
    bench.measure_several(SEARCHED, Purpose.SEARCH, noise=NOISE)
    searched = time.monotonic()
    bench.pacer.retire()
    for number in range(1, N_ROUNDS + 1):
        bench.measure_round(list(IN_ROUND), number, Purpose.CONFIRM, noise=NOISE)
    ended = time.monotonic()
    return {
        "launches": searched - at_work,
        "rounds": ended - searched,
        "all": ended - began,
    }


def compare_seconds(model: str, n_turns: int) -> None:
    """Print the seconds of the list, both ways in turns."""
    with bench_for(model) as bench:
        together = bench.launcher
        assert isinstance(together, ProcessLauncher)
        ways: dict[str, Launcher] = {"together": together, "alone": Alone(together)}
        fixed_work(bench)  # fills the compiler's cache and checks outputs, which is done once
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for turn in range(n_turns):
            for name in list(ways)[:: 1 if turn % 2 else -1]:
                bench.launcher = ways[name]
                taken[name].append(fixed_work(bench))
                told = "  ".join(f"{k} {v:6.1f} s" for k, v in taken[name][-1].items())
                print(f"{name:9s} {told}", flush=True)
        for part in ("launches", "rounds", "all"):
            logs = [
                math.log(a[part] / b[part])
                for a, b in zip(taken["together"], taken["alone"], strict=True)
            ]
            point, low, high = interval(logs)
            print(f"{part:9s} together / alone: {point:.3f} ({low:.3f} - {high:.3f})")


def difference(bench: Bench, company: Launch, alone: Launch, draw: random.Random) -> float | None:
    """Take slices of two launches in turn; return the logarithm of the ratio of their rates.

    By undisturbed slices; None where one has none.
    """
    for _ in range(N_SLICES):
        for launch in draw.sample([company, alone], 2):
            launch.take_slice(bench.store.next_slice_index(), SLICE_S)
            launch.pause()
    records = [launch.finish() for launch in (company, alone)]
    clean = [[s for s in r.slices if not s.interference.dirty] for r in records]
    if not all(clean):
        return None
    rates = [statistics.median(math.log(s.rate) for s in slices) for slices in clean]
    return rates[0] - rates[1]


def compare_rates(model: str, n_rounds: int, seed: int) -> None:
    """Print the rates of arms that were prepared in company over those prepared alone."""
    draw = random.Random(seed)
    differences: dict[str, list[float]] = {name: [] for name in ARMS}
    with bench_for(model) as bench:
        for number in range(1, n_rounds + 1):
            for name, arm in draw.sample(list(ARMS.items()), len(ARMS)):
                found: dict[str, Launch] = {}
                for way in draw.sample(["alone", "company"], 2):
                    if way == "alone":
                        found[way] = bench.launcher.start(arm, Purpose.CONFIRM, round_number=number)
                        found[way].pause()
                    else:
                        found[way], companion = bench.launcher.start_together(
                            [arm, COMPANION], Purpose.CONFIRM, round_number=number
                        )
                        companion.finish()
                between = difference(bench, found["company"], found["alone"], draw)
                if between is not None:
                    differences[name].append(between)
            if min(map(len, differences.values())) > 2:
                found_so_far = {name: interval(logs) for name, logs in differences.items()}
                told = "  ".join(
                    f"{name} {point:.4f} ({low:.4f} - {high:.4f})"
                    for name, (point, low, high) in found_so_far.items()
                )
                print(f"{number:3d} rounds: {told}", flush=True)


def _preparing(bench: Bench, arms: Sequence[Configuration]) -> tuple[float, float]:
    """Prepare launches side by side; return the seconds of the wall clock and of processors.

    The warm-up, which each of them does alone, is taken off, and taken to keep all cores busy.
    """
    n_cores = probe().usable_cores
    began, used = time.monotonic(), children_cpu_s()
    launches = bench.launcher.start_together(arms, Purpose.SEARCH)
    wall_s, cpu_s = time.monotonic() - began, children_cpu_s() - used
    prepared = [record.prepared for record in (launch.finish() for launch in launches)]
    warm_s = sum(each.warm_up_s for each in prepared if each is not None)
    return wall_s - warm_s, cpu_s - warm_s * n_cores


def model_cores(model: str, n_turns: int, cores: Sequence[int]) -> None:
    """Print what preparing side by side takes over one after another, by a model and here."""
    lists, here = (SEARCHED, IN_ROUND), probe().usable_cores
    turns: list[list[list[Work]]] = []
    logs = []
    with bench_for(model) as bench:
        fixed_work(bench)  # fills the compiler's cache
        for turn in range(n_turns):
            alone: list[list[tuple[float, float]]] = []
            beside_s = 0.0
            for way in ("alone", "beside") if turn % 2 else ("beside", "alone"):
                if way == "alone":
                    alone = [[_preparing(bench, [arm]) for arm in arms] for arms in lists]
                else:
                    groups = [a[n : n + here] for a in lists for n in range(0, len(a), here)]
                    beside_s = sum(_preparing(bench, group)[0] for group in groups)
            logs.append(math.log(beside_s / sum(wall_s for each in alone for wall_s, _ in each)))
            turns.append([[work_of(*seconds, here) for seconds in each] for each in alone])
    point, low, high = interval(logs)
    print(f"measured on {here} cores: {point:.3f} ({low:.3f} - {high:.3f})")
    for n_cores in cores:
        ratios = [
            sum(in_groups_s(works, n_cores) for works in each)
            / sum(work.alone_s(n_cores) for works in each for work in works)
            for each in turns
        ]
        print(
            f"by the model, {n_cores:3d} cores: {statistics.fmean(ratios):.3f} "
            f"({min(ratios):.3f} - {max(ratios):.3f} over turns)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("seconds", "agrees", "model"))
    parser.add_argument("--model")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 4, 8, 16, 64])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "model" and (probe().usable_cores < 2 or given.turns < 2):
        parser.error("the model needs two cores, and turns enough for an interval: at least 2")
    if given.what == "seconds":
        compare_seconds(given.model or "resnet50", given.turns)
    elif given.what == "model":
        model_cores(given.model or "resnet50", given.turns, given.cores)
    else:
        compare_rates(given.model or "fc", given.rounds, given.seed)


if __name__ == "__main__":
    main()
