"""What waiting for data takes of a step of training, without the tool.

    python -m benchmarks.loading [--repeats 5]
    tune-framework --model benchmarks/loading.py --hw auto --framework torch --mode training

The file is a model, too: a small network whose loader inflates a stored picture for each sample.
Steps that take their batches from the loader, and steps that have one batch in memory, in turn.
"""

from __future__ import annotations

import argparse
import time
import zlib
from typing import Any

import numpy as np

from tuner.worker.gallery import Image, Integers, Model

MODEL = Model(
    title="a small network that waits for pictures",
    task="image classification",
    kind="cnn",
    inputs=(Image(64, 64, 3),),
    targets=(Integers((), 0, 9),),
    reference_batch=32,
    batches=(32,),
)
N_STORED, N_SAMPLES, SIDE = 200, 2000, 256
N_FED, N_IN_MEMORY = 40, 80
"""Steps of each kind in a repeat."""


def torch() -> Any:
    """Return the network."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def torch_loss(model: Any, batch: Any) -> Any:
    """Return the cross-entropy."""
    from torch.nn.functional import cross_entropy

    images, classes = batch
    return cross_entropy(model(images), classes)


def torch_loader(batch: int) -> Any:
    """Return a DataLoader of pictures that are inflated as they are asked for."""
    from torch import from_numpy
    from torch.utils.data import DataLoader, Dataset

    random = np.random.default_rng(0)
    drawn = (random.integers(0, 32, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(N_STORED))
    stored = [zlib.compress(picture.tobytes()) for picture in drawn]

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return N_SAMPLES

        def __getitem__(self, index: int) -> tuple[Any, int]:
            raw = np.frombuffer(zlib.decompress(stored[index % N_STORED]), dtype=np.uint8)
            small = raw.reshape(SIDE, SIDE, 3)[::4, ::4].astype(np.float32) / 255
            return from_numpy(small.transpose(2, 0, 1).copy()), index % 10

    return DataLoader(Pictures(), batch_size=batch, shuffle=True)


def main() -> None:
    """Print the seconds of both kinds of steps, and their ratio."""
    from torch.optim import AdamW

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    model, loader = torch(), torch_loader(32)
    optimizer = AdamW(model.parameters())

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        torch_loss(model, batch).backward()
        optimizer.step()

    def fed(n: int) -> float:
        batches, begun = iter(loader), time.perf_counter()
        for _ in range(n):
            step(next(batches))
        return (time.perf_counter() - begun) / n

    one = next(iter(loader))

    def in_memory(n: int) -> float:
        begun = time.perf_counter()
        for _ in range(n):
            step(one)
        return (time.perf_counter() - begun) / n

    fed(N_FED)
    in_memory(N_IN_MEMORY)
    print("| from the loader, ms | in memory, ms | ratio |\n|---|---|---|")
    for _ in range(given.repeats):
        slow, fast = fed(N_FED), in_memory(N_IN_MEMORY)
        print(f"| {1000 * slow:.1f} | {1000 * fast:.1f} | {slow / fast:.2f} |", flush=True)


if __name__ == "__main__":
    main()
