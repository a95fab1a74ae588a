"""One product of square matrices: matmul-512, matmul-4096, any matmul-N.

The operator that Wang et al., arXiv:1908.04705, measure at 128 to 16384.
"""

from typing import Any

from tuner.worker.gallery import Model, Values


def model(size: int = 512) -> Model:
    """Return the statement for size x size; an item is one product."""
    return Model(
        title=f"Product of {size} x {size} matrices",
        task="synthetic",
        family="mlp",
        kind="mlp",
        inputs=(Values((size, size)),),
        reference_batch=1,
        batches=(1,),
        n_parameters=size * size,
        macs=size**3,
        widths={"torch": 1.0, "tensorflow": 1.0},
        follows="Wang et al. 2019",
        systems=("Wang et al. 2019",),
        small={"size": 64},
    )


def torch(size: int = 512) -> Any:
    """Return a torch.nn.Module: (batch, size, size) times a weight."""
    from torch import nn

    return nn.Linear(size, size, bias=False)


def tensorflow(size: int = 512) -> Any:
    """Return a keras.Model: (batch, size, size) times a weight."""
    from tensorflow.keras import Sequential, layers

    return Sequential([layers.Input((size, size)), layers.Dense(size, use_bias=False)])
