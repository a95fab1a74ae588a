"""Models that learn, some of them wrongly: BROKEN names what a launch does otherwise."""

import os
from typing import Any

from tuner.worker.gallery import Features, Integers, Model

BROKEN = os.environ.get("TUNE_TEST_BROKEN", "")

MODEL = Model(
    title="two layers that learn",
    task="none",
    kind="mlp",
    inputs=(Features(32),),
    targets=(Integers((), 0, 9),),
    reference_batch=16,
    batches=(16,),
    n_classes=10,
)


def torch(dropout: float = 0.0) -> Any:
    from torch import Tensor, nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 10)
            self.norm, self.drop = nn.BatchNorm1d(64), nn.Dropout(dropout)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.drop(self.norm(self.first(x)).relu())
            if BROKEN == "detached":
                hidden = hidden.detach()
            y: Tensor = self.second(hidden)
            if BROKEN == "underflow" and y.requires_grad:  # as gradients of fp16 do, unscaled
                y.register_hook(lambda g: (g * 2.0**-20).half().float() * 2.0**20)
            return y

    return Net()


def torch_loss(model: Any, batch: Any) -> Any:
    from torch.nn.functional import cross_entropy

    loss = cross_entropy(model(batch[0]), batch[1])
    return loss * 0 + 2.0 if BROKEN == "constant" else loss


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import AdamW, Rprop

    class Frozen(AdamW):
        def step(self, closure: Any = None) -> None:
            """Leave the weights alone."""

    class Adding(AdamW):
        def zero_grad(self, set_to_none: bool = True) -> None:
            """Let gradients add up."""

    kinds = {"frozen": Frozen, "adding": Adding, "rprop": Rprop}
    return kinds.get(BROKEN, AdamW)(parameters)


def tensorflow(dropout: float = 0.0) -> Any:
    from tensorflow.keras import Input, Model, layers

    inputs = Input((32,))
    hidden = layers.BatchNormalization()(layers.Dense(64)(inputs))
    hidden = layers.Dropout(dropout)(layers.ReLU()(hidden))
    return Model(inputs, layers.Dense(10)(hidden))
