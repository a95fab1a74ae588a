"""A fully connected network of 11 layers of equal width: fc-512, fc-4096.

The synthetic network of Wang et al., arXiv:1908.04705, which uses widths of 512 and 4096, and in
training eight layers.
"""

from typing import Any

from tuner.worker.gallery import Features, Model

LAYERS = 11


def model(size: int = 512, layers: int = LAYERS) -> Model:
    """Return the statement for layers of `size` neurons."""
    return Model(
        title=f"Fully connected, {layers} layers of {size}",
        task="synthetic",
        family="mlp",
        kind="mlp",
        inputs=(Features(size),),
        reference_batch=64,
        batches=(64, 256),
        n_parameters=layers * (size + 1) * size,
        macs=layers * size * size,
        widths={"torch": 1.0, "tensorflow": 1.0},
        follows="Wang et al. 2019",
        systems=("Wang et al. 2019",),
        small={"size": 64},
    )


def torch(size: int = 512, layers: int = LAYERS) -> Any:
    """Return a torch.nn.Module over (batch, size)."""
    from torch import nn

    made: list[nn.Module] = []
    for _ in range(layers):
        layer = nn.Linear(size, size)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1])


def tensorflow(size: int = 512, layers: int = LAYERS) -> Any:
    """Return a keras.Model over (batch, size)."""
    from tensorflow.keras import Input, Sequential
    from tensorflow.keras.layers import Dense

    hidden = [
        Dense(size, activation="relu", kernel_initializer="he_normal") for _ in range(layers - 1)
    ]
    return Sequential([Input((size,)), *hidden, Dense(size)])
