"""MLPerf Tiny's autoencoder, which finds anomalies by what it cannot reconstruct.

Normal vectors of 640 columns lie near a curved surface of 8 dimensions. Of anomalies, a quarter of
the columns are those of another vector. The quality is the area under the ROC curve.
"""

from typing import Any

import numpy as np

from tuner.worker.gallery import Model, Target, Values

COLUMNS, HIDDEN, WIDTH, DEPTH, NOISE, CHANGED = 640, 8, 128, 4, 0.3, 160

MODEL = Model(
    title="autoencoder",
    task="anomaly detection",
    kind="mlp",
    family="mlp",
    inputs=(Values((COLUMNS,)),),
    targets=(Values((COLUMNS,)),),
    reference_batch=256,
    batches=(256,),
    target=Target("AUROC", 0.9, every=10, most_steps=1000),
    follows="MLPerf Tiny, anomaly detection",
)

MIXED = np.random.default_rng(14).standard_normal((2, 2 * HIDDEN, COLUMNS)) / np.sqrt(HIDDEN)


def _normal(random: np.random.Generator, n: int) -> Any:
    hidden = random.standard_normal((n, HIDDEN))
    curved = np.concatenate([hidden, np.abs(hidden)], axis=1)
    found = curved @ MIXED[0] + NOISE * random.standard_normal((n, COLUMNS))
    return found.astype(np.float32)


def samples(n: int, seed: int) -> Any:
    found = _normal(np.random.default_rng([5, seed]), n)
    return found, found


def held_out() -> Any:
    """Return normal vectors, then as many anomalies."""
    random = np.random.default_rng([5, 1 << 40])
    normal, anomalies, others = (_normal(random, 1024) for _ in range(3))
    anomalies[:, :CHANGED] = others[:, :CHANGED]
    found = np.concatenate([normal, anomalies])
    return found, found


def quality(outputs: Any, targets: Any) -> float:
    errors = ((outputs[0] - targets[0]) ** 2).mean(axis=1)
    n = len(errors) // 2
    ranks = errors.argsort().argsort()
    return float((ranks[n:].sum() - n * (n - 1) / 2) / n**2)


def torch() -> Any:
    from torch import nn

    def layers(before: int, *widths: int) -> Any:
        for width in widths:
            yield from (nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU())
            before = width

    inner = [*[WIDTH] * DEPTH, HIDDEN, *[WIDTH] * DEPTH]
    return nn.Sequential(*layers(COLUMNS, *inner), nn.Linear(WIDTH, COLUMNS))


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    x = inputs = Input((COLUMNS,))
    for width in (*[WIDTH] * DEPTH, HIDDEN, *[WIDTH] * DEPTH):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Dense(width)(x)))
    return Model(inputs, layers.Dense(COLUMNS)(x))


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import Adam

    return Adam(parameters, lr=2e-3)


def tensorflow_optimizer() -> Any:
    from tensorflow.keras.optimizers import Adam

    return Adam(learning_rate=2e-3)
