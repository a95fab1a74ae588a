"""How many steps do small tasks take to a quality target, and does reduced precision take more?

    python -m benchmarks.time_to_target FOLDER default [--tasks ncf lstm ...] [--seeds 20]
    python -m benchmarks.time_to_target FOLDER bf16 [--minutes 10]
    python -m benchmarks.time_to_target FOLDER compiled [--minutes 10]
    python -m benchmarks.time_to_target FOLDER longer [--studies 2000]

Tasks: benchmarks/tasks. default: that many runs of each; how many steps they take, by how much
these scatter, and the seconds. bf16, compiled: pairs of runs, of the default and of autocast
(Keras: a policy) or TorchInductor, until the pairs that the first five ask for are there; the
verdict, the ratio of the steps, and the correlation of the steps over seeds, which pairs remove.
longer: from pairs of default runs that are there, what would be said of a configuration that needs
0, 5 and 10 % more steps: the other run of each pair is the default's with another seed, which
scatters more than a real one.

Runs are kept in FOLDER and not made again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.analysis.time_to_target import Speed, conclude
from tuner.app.time_to_target import has_enough
from tuner.errors import NothingMeasured
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers.describe import find_model
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.non_inferiority import FIRST_PAIRS, MARGIN, judged, pairs_needed
from tuner.output.training import time_to_target_in_words
from tuner.record.configuration import Configuration
from tuner.record.time_to_target import Pair, read_runs
from tuner.study.paired_runs import PairedRuns, TrainedModel

TASKS = Path(__file__).parent / "tasks"
NAMES = ("ncf", "resnet8", "transformer", "autoencoder", "lstm")
FRAMEWORKS = ("torch", "tensorflow")
ARMS: dict[str, dict[str, Configuration]] = {
    "bf16": {
        "torch": Configuration.of({"torch.autocast": "bf16"}),
        "tensorflow": Configuration.of({"tensorflow.keras_policy": "mixed_bfloat16"}),
    },
    "compiled": {
        "torch": Configuration.of({"torch.compile.mode": "default"}),
        "tensorflow": Configuration.of({"tensorflow.jit_compile": True}),
    },
}
UNKNOWN = Speed()
_A_DAY = 24 * 60.0


def trained(task: str, framework: str) -> TrainedModel:
    """Return what a task trains."""
    ref, card = find_model(str(TASKS / f"{task}.py"), MODELS)
    return TrainedModel(ref, card.source_sha256, framework, card.reference_batch)


def runs_of(
    folder: Path, task: str, framework: str, arm: Configuration, minutes: float
) -> PairedRuns:
    """Return the pairs of a task, which are kept in a folder of their own."""
    own = folder / f"{task}-{framework}"
    own.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def left_s() -> float:
        return 60 * minutes - (time.monotonic() - begun)

    return PairedRuns(
        trained(task, framework),
        arm,
        own,
        probe(),
        left_s,
        lambda line: print(f"  {line}", flush=True),
        THIS_HOST,
    )


def default_steps(folder: Path, task: str, framework: str, n_seeds: int) -> None:
    """Make the default's runs, and print their steps."""
    runs = runs_of(folder, task, framework, Configuration(), _A_DAY)
    runs.train(lambda pairs: len(pairs) >= n_seeds)
    made = [pair[0] for pair in runs.pairs().values()]
    steps = [run.steps_to_target() for run in made]
    reached = [each for each in steps if math.isfinite(each)]
    scatter = statistics.stdev(map(math.log, reached)) if len(reached) > 1 else math.nan
    print(
        f"{task}, {framework}: target {made[0].target.quality} {made[0].target.at_least:g}; "
        f"{len(reached)} of {len(steps)} reached it; steps {min(reached, default=math.inf):.0f} - "
        f"{max(reached, default=math.inf):.0f}, median {statistics.median(steps):.0f}, CV "
        f"{scatter:.1%}; {statistics.median(run.seconds for run in made):.1f} s of steps",
        flush=True,
    )


def verdict(folder: Path, task: str, framework: str, arm: Configuration, minutes: float) -> None:
    """Make pairs, and print what they show."""

    def is_enough(pairs: Mapping[int, Pair]) -> bool:
        return bool(pairs) and has_enough(conclude(pairs, arm.as_dict(), MARGIN, UNKNOWN))

    try:
        pairs = runs_of(folder, task, framework, arm, minutes).train(is_enough)
    except NothingMeasured as error:
        print(f"{task}, {framework}: {error}", flush=True)
        return
    if not pairs:
        print(f"{task}, {framework}: no pair in time")
        return
    found = conclude(pairs, arm.as_dict(), MARGIN, UNKNOWN)
    both = [(d.steps_to_target(), t.steps_to_target()) for d, t in pairs.values()]
    known = np.log([pair for pair in both if all(map(math.isfinite, pair))])
    related = np.corrcoef(known.T)[0, 1] if len(known) > 2 else math.nan
    print(
        f"{task}, {framework}: {time_to_target_in_words(found)} Correlation {related:.2f}",
        flush=True,
    )


def longer(folder: Path, task: str, framework: str, n_studies: int) -> None:
    """Print what would be said of configurations that need more steps, by the default's runs."""
    stored = read_runs(folder / f"{task}-{framework}")
    steps = {s.seed: s.run.steps_to_target() for s in stored if not s.configuration}
    logs = np.log([each for each in steps.values() if math.isfinite(each)])
    random = np.random.default_rng(1)

    def drawn(n: int, more: float) -> list[float]:
        return list(random.choice(logs, n) - random.choice(logs, n) + math.log1p(more))

    for more in (0.0, 0.05, 0.1):
        counts = {"as_good": 0, "worse": 0, "undecided": 0}
        asked = []
        for _ in range(n_studies):
            d = drawn(FIRST_PAIRS, more)
            n = pairs_needed(d, MARGIN)
            asked.append(n)
            counts[judged([*d, *drawn(n - FIRST_PAIRS, more)], MARGIN).verdict] += 1
        shares = ", ".join(f"{name} {count / n_studies:.0%}" for name, count in counts.items())
        print(f"{task}, {framework}, {more:.0%} more steps: {shares}; pairs "
              f"{statistics.median(asked):.0f}", flush=True)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("default", "longer", *ARMS))
    parser.add_argument("--tasks", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=FRAMEWORKS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0, help="at most, for each task")
    parser.add_argument("--studies", type=int, default=2000)
    given = parser.parse_args(arguments)
    for framework in given.frameworks:
        for task in given.tasks:
            if given.what == "default":
                default_steps(given.folder, task, framework, given.seeds)
            elif given.what == "longer":
                longer(given.folder, task, framework, given.studies)
            else:
                arm = ARMS[given.what][framework]
                verdict(given.folder, task, framework, arm, given.minutes)


if __name__ == "__main__":
    main()
