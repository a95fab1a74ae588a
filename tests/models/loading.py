"""A model whose batches a loader gives: LOADER names what kind of loader."""

import math
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


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    inputs = Input((32,))
    return Model(inputs, layers.Dense(10)(layers.Dense(64, activation="relu")(inputs)))


def tensorflow_loader(batch: int) -> Any:
    import numpy as np
    import tensorflow as tf

    x = np.arange(N_SAMPLES, dtype=np.float32)[:, None] * np.ones((1, 32), dtype=np.float32)
    y = np.arange(N_SAMPLES) % 10
    if LOADER in ("numbered", "workers"):

        class Numbered(tf.keras.utils.PyDataset):
            def __len__(self) -> int:
                return math.ceil(N_SAMPLES / batch)

            def __getitem__(self, index: int) -> tuple[Any, Any]:
                rows = slice(index * batch, (index + 1) * batch)
                return x[rows], y[rows]

        return Numbered(workers=4) if LOADER == "workers" else Numbered()
    if LOADER == "words":
        return [["a", "b"]]
    if LOADER == "inputs alone":
        return [(x[:batch],)]
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch).prefetch(tf.data.AUTOTUNE)
