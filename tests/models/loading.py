"""A model whose batches a loader gives: LOADER names what kind of loader."""

import os
from collections.abc import Iterator
from typing import Any

from tuner.worker.gallery import Features, Integers, Model

LOADER = os.environ.get("TUNE_TEST_LOADER", "dataset")

MODEL = Model(
    title="one layer that learns from a loader",
    task="none",
    kind="mlp",
    inputs=(Features(32),),
    targets=(Integers((), 0, 9),),
    reference_batch=16,
    batches=(16,),
    n_classes=10,
)
N_SAMPLES = 20
"""A batch of 16, and a smaller one: warming up takes several epochs."""


def torch() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def sample(index: int) -> tuple[Any, int]:
    import torch

    if LOADER == "failing":
        raise OSError("disk is gone")
    return torch.full((32,), float(index)), index % 10


def torch_loader(batch: int) -> Any:
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Samples(Dataset[Any]):
        def __len__(self) -> int:
            return N_SAMPLES

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return sample(index)

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return map(sample, range(N_SAMPLES))

    if LOADER == "number":
        return 3
    if LOADER == "generator":
        return iter([])
    if LOADER == "words":
        return [["a", "b"]]
    if LOADER == "empty":
        return []
    if LOADER == "inputs alone":
        return [(torch.zeros(batch, 32),)]
    if LOADER == "small":
        return DataLoader(Samples(), batch_size=batch // 2)
    return DataLoader(Stream() if LOADER == "stream" else Samples(), batch_size=batch)
