"""How threads are divided in training: over TensorFlow's two pools, or over PyTorch's processes.

    python -m benchmarks.training_threads FOLDER pools [fc@size=512,layers=8 ...] [--rounds 6]
    python -m benchmarks.training_threads FOLDER ranks [fc-512 lstm-tagger ...] [--rounds 6]

pools: each size of the inter-op pool with each of the intra-op pool. The models are those of the
one training experiment in the public code of arXiv:1908.04705 (Emma926/mcbench, fc.py): eight
layers of equal width, here in TensorFlow instead of Caffe2. Does the paper's rule, as many inter-op
threads as the graph is wide, hold for a backward pass with two independent products in each layer?

ranks: numbers of processes (DistributedDataParallel over gloo, the same batch of all together) with
numbers of threads in each, from one thread to all CPUs. Among them are what torchrun, PyTorch
Lightning and Hugging Face Accelerate set.

Each is compared with the default in interleaved rounds. What is there in FOLDER is not measured
again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from benchmarks.company import bench_for, interval
from benchmarks.real_regret import read_rounds, take_rounds
from tuner.host.identity import probe
from tuner.record.configuration import Configuration
from tuner.record.load import TRAINING

POOLS, RANKS = "pools", "ranks"
KNOBS = {
    POOLS: ("tensorflow", "env.TF_NUM_INTEROP_THREADS", "env.TF_NUM_INTRAOP_THREADS"),
    RANKS: ("torch", "torch.ranks", "env.OMP_NUM_THREADS"),
}
MODELS = {
    POOLS: ["fc@size=512,layers=8", "fc@size=4096,layers=8"],
    RANKS: ["fc-512", "lstm-tagger"],
}


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ..., and the most."""
    return [*itertools.takewhile(lambda n: n < most, (2**k for k in range(16))), most]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("table", choices=[POOLS, RANKS])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    framework, first, second = KNOBS[given.table]
    n_cores = probe().facts()["host.usable_cores"]
    sizes = list(itertools.product(powers_of_two(n_cores), repeat=2))
    default, *others = arms = [
        Configuration(),
        *(Configuration.of({first: i, second: j}) for i, j in sizes),
    ]
    print(f"| model | {first} | {second} | over the default |\n|---|---|---|---|")
    for model in given.models or MODELS[given.table]:
        path = given.folder / f"{given.table}-{model.replace('/', '-')}.jsonl"
        if len(read_rounds(path, arms)) < given.rounds:
            with bench_for(model, framework, TRAINING) as bench:
                take_rounds(path, bench, arms, given.rounds)
        rounds = read_rounds(path, arms)
        for arm, (i, j) in zip(others, sizes, strict=True):
            pairs = [r[arm] - r[default] for r in rounds if arm in r and default in r]
            ratio = "failed"
            if len(pairs) > 1:
                ratio = "{:.2f}x ({:.2f} - {:.2f})".format(*interval(pairs))
            print(f"| {model} | {i} | {j} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
