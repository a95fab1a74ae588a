"""How near to the optimum does the search come on a host that is not here: 2 x 56 cores with SMT?

    python -m benchmarks.large_host [--surfaces 40] [--launches 60] [--noise 0.01] [--json OUT]

Placement, threads, memory policy, allocators and OpenMP of the Xeon profile are searched (--whole:
every launch knob). A random surface (benchmarks/surface.py) says how
fast each configuration is, of which every launch shows a noisy value. The default, every baseline
and what the tool's own search proposes make up the launches; the configuration with the highest
noisy value wins, and its true rate is compared with the best of the whole space, which is looked
through. Beside it, with as many launches: Optuna's TPE as people use it, and drawing at random.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import optuna

from benchmarks.described import N_CORES, N_SOCKETS, described_host
from benchmarks.processes import processes
from benchmarks.surface import THREADS, Optimum, Surface, draw
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host
from tuner.record.configuration import Configuration, Value
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import ModelCard, ModelFacts, ModelRef, Workload
from tuner.search.search import Search
from tuner.space.baselines import Baseline, resolve_baselines, to_measure
from tuner.space.knob import Applies
from tuner.space.knobs_of.launch import BATCH
from tuner.space.listing import upper_size
from tuner.space.profile_file import load_profile
from tuner.space.resolve import resolve_space
from tuner.space.restrictions import Restrictions
from tuner.space.space import Space

_DEFAULTS: dict[str, Value] = {
    "launch.allocator": "glibc",
    "launch.openmp": "libgomp",
    "launch.cpus": "all",
    "launch.numa_node": "none",
    "launch.memory_policy": "local",
    THREADS: N_SOCKETS * N_CORES,
    "env.OMP_PROC_BIND": "false",
}


_NOT_PLACEMENT = ("env.ATEN_CPU_CAPABILITY", "env.ONEDNN_MAX_CPU_ISA",
                  "env.ONEDNN_DEFAULT_FPMATH_MODE", "env.THP_MEM_ALLOC_ENABLE")  # fmt: skip


class Bench(msgspec.Struct, frozen=True):
    """What all surfaces have in common."""

    host: Host
    baselines: tuple[Baseline, ...]


class Found(msgspec.Struct, frozen=True):
    """What came of one surface: true slowdowns against the optimum, 1.0 is the optimum itself."""

    surface: int
    default: float
    best_baseline: float
    tool: float
    tpe: float
    random: float
    winner: str
    proposal_s: float
    """Median seconds of a proposal, its entry into Optuna's storage included."""
    last_proposals_s: float
    """The same of the last twenty."""


def build(*, whole: bool = False) -> tuple[Bench, Space]:
    """Return the described host with its baselines, and the space that is searched."""
    host = described_host()
    profile = load_profile("xeon", SEARCH_SPACES)
    card = ModelCard("m", "M", "none", "mlp", ("torch",), 4, (4,), None, "0" * 64)
    workload = Workload(ModelRef("m", "/m.py"), "torch", "offline", card)
    facts = ModelFacts(n_parameters=1, input_shapes=((1,),), versions={},
                       effective_defaults=_DEFAULTS, unread={}, graph_width=1.0, graph_fault="",
                       import_s=1.0, build_s=1.0, call_s=0.1)  # fmt: skip
    everything = resolve_space(profile, host, workload, facts, Restrictions())
    others = [
        k.id
        for k in everything.searched
        if (k.knob.applies is not Applies.LAUNCH and k.id != BATCH)
        or (k.id in _NOT_PLACEMENT and not whole)
    ]
    space = resolve_space(profile, host, workload, facts, Restrictions(excluded=tuple(others)))
    baselines = resolve_baselines(profile, host, workload, facts, space)
    return Bench(host, tuple(to_measure(baselines))), space


def _tool(
    bench: Bench,
    space: Space,
    n_launches: int,
    launch: Callable[[Configuration], float],
    seed: int,
    noise: float,
) -> tuple[dict[Configuration, float], list[float]]:
    """Search as a study does; return the noisy scores, and the seconds of every proposal."""
    scores: dict[Configuration, float] = {}
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        search = Search(Path(folder) / "study.db", space, lambda: scores, seed, sd=lambda _: noise)
        known = [Configuration(), *(b.configuration for b in bench.baselines)]
        for i in range(n_launches):
            if i < len(known):
                proposal = search.enter(known[i], "known")
            else:
                began = time.perf_counter()
                proposal = search.ask(WinnerClass.NO_CODE)
                seconds.append(time.perf_counter() - began)
            score = launch(proposal.configuration)
            scores[proposal.configuration] = score
            search.tell(proposal, Outcome.MEASURED, "", score)
    return scores, seconds


def _tpe(
    space: Space, n_launches: int, launch: Callable[[Configuration], float], seed: int
) -> dict[Configuration, float]:
    """Ask Optuna's TPE, one launch a trial, duplicates and all."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    scores: dict[Configuration, float] = {}
    for _ in range(n_launches):
        trial = study.ask()
        drawn: dict[str, Any] = {
            k.id: trial.suggest_categorical(k.id, k.choices) for k in space.searched
        }
        configuration = space.canonical(drawn)
        scores[configuration] = launch(configuration)
        study.tell(trial, scores[configuration])
    return scores


def _at_random(
    space: Space, n_launches: int, launch: Callable[[Configuration], float], seed: int
) -> dict[Configuration, float]:
    random_ = random.Random(seed)
    drawn = [
        space.canonical({k.id: random_.choice(k.choices) for k in space.searched})
        for _ in range(n_launches)
    ]
    return {configuration: launch(configuration) for configuration in drawn}


def one(seed: int, n_launches: int, noise: float, whole: bool) -> Found:
    """Search one surface in three ways."""
    bench, space = build(whole=whole)
    surface = draw(seed, {knob.id: knob.choices for knob in space.searched})
    best = _optimum(space, bench.host).of(surface)

    def slowdown(configuration: Configuration) -> float:
        return math.exp(best - surface.log_rate(configuration.as_dict(), bench.host))

    def winner(scores: dict[Configuration, float]) -> Configuration:
        return max(scores, key=scores.__getitem__)

    launch = _noisy(surface, bench.host, noise, random.Random(seed))
    scores, seconds = _tool(bench, space, n_launches, launch, seed, noise)
    return Found(
        surface=seed,
        default=slowdown(Configuration()),
        best_baseline=min(slowdown(b.configuration) for b in bench.baselines),
        tool=slowdown(winner(scores)),
        tpe=slowdown(winner(_tpe(space, n_launches, launch, seed))),
        random=slowdown(winner(_at_random(space, n_launches, launch, seed))),
        winner=winner(scores).label(),
        proposal_s=statistics.median(seconds),
        last_proposals_s=statistics.median(seconds[-20:]),
    )


_OPTIMA: list[Optimum] = []


def _optimum(space: Space, host: Host) -> Optimum:
    """Return what finds the optimum; looking through the space is done once per process."""
    if not _OPTIMA:
        _OPTIMA.append(Optimum(space, host))
    return _OPTIMA[0]


def _noisy(
    surface: Surface, host: Host, noise: float, random_: random.Random
) -> Callable[[Configuration], float]:
    return lambda c: surface.log_rate(c.as_dict(), host) + random_.gauss(0, noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--surfaces", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first surface")
    parser.add_argument("--launches", type=int, default=60)
    parser.add_argument("--noise", type=float, default=0.01, help="SD of a launch's log rate")
    parser.add_argument("--whole", action="store_true", help="search every launch knob")
    parser.add_argument("--json", type=Path, help="write every surface's figures there as well")
    arguments = parser.parse_args()
    bench, space = build(whole=arguments.whole)
    print(f"{upper_size(space):,} combinations of {len(space.searched)} settings, "
          f"{len(bench.baselines)} baselines, {arguments.launches} launches")  # fmt: skip
    seeds = range(arguments.first, arguments.first + arguments.surfaces)
    found = []
    with processes() as pool:
        n = len(seeds)
        same = ([arguments.launches] * n, [arguments.noise] * n, [arguments.whole] * n)
        for each in pool.map(one, seeds, *same):
            found.append(each)
            print(f"{each.surface:4d}  default {each.default:6.2f}x  best baseline "
                  f"{each.best_baseline:5.2f}x  tool {each.tool:6.3f}x  tpe {each.tpe:5.2f}x  "
                  f"random {each.random:5.2f}x  {each.winner}", flush=True)  # fmt: skip
    print("\nslower than the optimum by (true rates):")
    for name in ("default", "best_baseline", "random", "tpe", "tool"):
        over = sorted(getattr(each, name) - 1 for each in found)
        near = sum(value <= 0.02 for value in over)
        print(f"  {name:14s} median {statistics.median(over):7.1%}  worst {over[-1]:8.1%}  "
              f"within 2 %: {near} of {len(over)}")  # fmt: skip
    proposal_ms = 1000 * statistics.median(each.proposal_s for each in found)
    last_ms = 1000 * statistics.median(each.last_proposals_s for each in found)
    print(f"a proposal took {proposal_ms:.0f} ms, the last twenty {last_ms:.0f} ms (medians)")
    if arguments.json:
        arguments.json.write_text(json.dumps([msgspec.to_builtins(f) for f in found], indent=1))


if __name__ == "__main__":
    main()
