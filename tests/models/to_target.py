"""Models with a quality target: two groups of vectors to tell apart, and what the fake learns."""

import os
from typing import Any

import numpy as np

from tuner.worker.frameworks.fake import Surface
from tuner.worker.gallery import Features, Integers, Model, Target

BROKEN = os.environ.get("TUNE_TEST_BROKEN", "")
DIRECTION = np.random.default_rng(0).standard_normal(16).astype(np.float32)

MODEL = Model(
    title="a line between two groups",
    task="none",
    kind="mlp",
    inputs=(Features(16),),
    targets=(Integers((), 0, 1),),
    reference_batch=32,
    batches=(32,),
    n_classes=2,
    target=None if BROKEN == "no target" else Target("accuracy", 0.8, every=5, most_steps=400),
)


def fake(seed: int = 0, noise: float = 0.02, bf16_steps: float = 1.0) -> Surface:
    """Return a surface; the fake's quality is the share that it has learnt."""
    return Surface(seed, noise, bf16_steps=bf16_steps)


def torch(dropout: float = 0.0) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 2))


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import SGD

    return SGD(parameters, lr=0.0 if BROKEN == "stands still" else 0.05)


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    inputs = Input((16,))
    return Model(inputs, layers.Dense(2)(layers.Dense(32, activation="relu")(inputs)))


def tensorflow_optimizer() -> Any:
    from tensorflow.keras.optimizers import SGD

    return SGD(learning_rate=0.05)


def samples(n: int, seed: int) -> Any:
    random = np.random.default_rng([1, seed])
    x = random.standard_normal((n, 16)).astype(np.float32)
    if BROKEN == "raises":
        raise ValueError("no data here")
    if BROKEN == "one array":
        return [x]
    if BROKEN == "too few":
        return x[1:], (x @ DIRECTION > 0)[1:].astype(np.int64)
    return x, (x @ DIRECTION > 0).astype(np.int64)


def held_out() -> Any:
    return samples(500, 1 << 40)


def quality(outputs: Any, targets: Any) -> Any:
    if BROKEN == "no number":
        return outputs
    if BROKEN == "not finite":
        return float("nan")
    if outputs[0].ndim == 1:  # the fake's
        return outputs[0].mean()
    return np.mean(outputs[0].argmax(axis=1) == targets[0])


if BROKEN == "no samples":
    del samples
