"""Inception-v3: branches of unlike convolutions side by side, images of 299 x 299.

Szegedy et al., arXiv:1512.00567, without the auxiliary classifier, which serves training alone.
From keras.applications, and written out for PyTorch with the same layers: norms have no scale.
Each filter has one sign: with random ones noise passes better than images, and rounding with it
(measured: bf16 changes outputs by 12 %, like this by 3 %).
"""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="Inception-v3",
    task="image classification",
    family="cnn",
    kind="cnn",
    inputs=(Image(299, 299, 3),),
    reference_batch=4,
    batches=(4, 16),
    n_classes=1000,
    n_parameters=23_817_352,
    macs=5_713_216_096,
    widths={"torch": 1.98, "tensorflow": 1.98},
    follows="Szegedy et al. 2015, as in keras.applications",
    systems=("TBD", "Wang et al. 2019"),
)

EPSILON = 1e-3
# A branch is a list of convolutions (width, height and width of the kernel, stride, padded); "avg"
# and "max" pool; a list at the end of a branch are convolutions side by side.
Step = Any


def _conv(width: int, size: int | tuple[int, int], stride: int = 1, *, padded: bool = True) -> Step:
    return (width, (size, size) if isinstance(size, int) else size, stride, padded)


def _small(pooled: int) -> list[list[Step]]:
    return [
        [_conv(64, 1)],
        [_conv(48, 1), _conv(64, 5)],
        [_conv(64, 1), _conv(96, 3), _conv(96, 3)],
        ["avg", _conv(pooled, 1)],
    ]


def _middle(width: int) -> list[list[Step]]:
    flat, tall = (1, 7), (7, 1)
    return [
        [_conv(192, 1)],
        [_conv(width, 1), _conv(width, flat), _conv(192, tall)],
        [_conv(width, 1), _conv(width, tall), _conv(width, flat), _conv(width, tall),
         _conv(192, flat)],
        ["avg", _conv(192, 1)],
    ]  # fmt: skip


def _wide() -> list[list[Step]]:
    both = [_conv(384, (1, 3)), _conv(384, (3, 1))]
    return [
        [_conv(320, 1)],
        [_conv(384, 1), both],
        [_conv(448, 1), _conv(384, 3), both],
        ["avg", _conv(192, 1)],
    ]


STEM = [
    _conv(32, 3, 2, padded=False), _conv(32, 3, padded=False), _conv(64, 3), "max",
    _conv(80, 1, padded=False), _conv(192, 3, padded=False), "max",
]  # fmt: skip
BLOCKS = [
    _small(32), _small(64), _small(64),
    [[_conv(384, 3, 2, padded=False)],
     [_conv(64, 1), _conv(96, 3), _conv(96, 3, 2, padded=False)],
     ["max"]],
    _middle(128), _middle(160), _middle(160), _middle(192),
    [[_conv(192, 1), _conv(320, 3, 2, padded=False)],
     [_conv(192, 1), _conv(192, (1, 7)), _conv(192, (7, 1)), _conv(192, 3, 2, padded=False)],
     ["max"]],
    _wide(), _wide(),
]  # fmt: skip


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 299, 299); scores, not probabilities."""
    from torch import Tensor, cat, nn

    def conv(n_in: int, step: Step) -> tuple[nn.Module, int]:
        width, (high, wide), stride, padded = step
        padding = (high // 2, wide // 2) if padded else 0
        made = nn.Conv2d(n_in, width, (high, wide), stride, padding, bias=False)
        nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
        middle = made.weight.data[:, :, high // 2, wide // 2, None, None]
        made.weight.data = made.weight.data.abs() * middle.sign()
        norm = nn.BatchNorm2d(width, eps=EPSILON)
        norm.weight = None  # no scale
        return nn.Sequential(made, norm, nn.ReLU()), width

    class Beside(nn.Module):
        def __init__(self, branches: list[nn.Module]) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x: Tensor) -> Tensor:
            return cat([branch(x) for branch in self.branches], dim=1)

    def chain(n_in: int, steps: list[Step]) -> tuple[nn.Module, int]:
        parts: list[nn.Module] = []
        width = n_in
        for step in steps:
            if step == "avg":
                parts.append(nn.AvgPool2d(3, 1, 1, count_include_pad=False))
            elif step == "max":
                parts.append(nn.MaxPool2d(3, 2))
            else:
                beside = isinstance(step, list)
                made, width = block(width, [[s] for s in step]) if beside else conv(width, step)
                parts.append(made)
        return nn.Sequential(*parts), width

    def block(n_in: int, branches: list[list[Step]]) -> tuple[nn.Module, int]:
        made = [chain(n_in, steps) for steps in branches]
        return Beside([part for part, _ in made]), sum(width for _, width in made)

    stem, width = chain(3, STEM)
    parts = [stem]
    for branches in BLOCKS:
        made, width = block(width, branches)
        parts.append(made)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 299, 299, 3); scores, not probabilities."""
    from tensorflow.keras import layers, ops
    from tensorflow.keras.applications import InceptionV3

    model = InceptionV3(weights=None, classifier_activation=None)
    for layer in model.layers:
        if isinstance(layer, layers.Conv2D):
            high, wide = layer.kernel_size
            middle = layer.kernel[high // 2, wide // 2]
            layer.kernel.assign(ops.abs(layer.kernel) * ops.sign(middle))
    return model
