"""A fully connected network of 11 layers of equal width: fc-512, fc-4096.

The synthetic network of Wang et al., arXiv:1908.04705, which uses widths of 512 and 4096.
"""

from typing import Any

from tuner.worker.gallery import Features, Model

LAYERS = 11


def model(size: int = 512) -> Model:
    """Return the statement for layers of `size` neurons."""
    return Model(
        title=f"Fully connected, {LAYERS} layers of {size}",
        task="synthetic",
        family="mlp",
        kind="mlp",
        inputs=(Features(size),),
        reference_batch=64,
        batches=(64, 256),
        n_parameters=LAYERS * (size + 1) * size,
        macs=LAYERS * size * size,
        widths={"torch": 1.0, "tensorflow": 1.0},
        follows="Wang et al. 2019",
        systems=("Wang et al. 2019",),
        small={"size": 64},
    )


def torch(size: int = 512) -> Any:
    """Return a torch.nn.Module over (batch, size)."""
    from torch import nn

    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layer = nn.Linear(size, size)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def tensorflow(size: int = 512) -> Any:
    """Return a keras.Model over (batch, size)."""
    from tensorflow.keras import Sequential, layers

    hidden = [
        layers.Dense(size, activation="relu", kernel_initializer="he_normal")
        for _ in range(LAYERS - 1)
    ]
    return Sequential([layers.Input((size,)), *hidden, layers.Dense(size)])
