"""DenseNet-121: every layer of a block sees the outputs of all before it; 7,978,856 parameters.

Huang et al., arXiv:1608.06993. From keras.applications, and written out for PyTorch with the same
layers.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="DenseNet-121",
    task="image classification",
    family="cnn",
    kind="cnn",
    inputs=(Image(224, 224, 3),),
    reference_batch=4,
    batches=(4, 16),
    n_classes=1000,
    n_parameters=7_978_856,
    macs=2_834_161_664,
    widths={"torch": 1.0, "tensorflow": 1.0},
    follows="Huang et al. 2017, growth 32",
)

BLOCKS, GROWTH, BOTTLENECK, EPSILON = (6, 12, 24, 16), 32, 4, 1.001e-5


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 224, 224); scores, not probabilities."""
    from torch import Tensor, cat, nn

    def norm(width: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(width, eps=EPSILON)

    class Layer(nn.Module):
        def __init__(self, n_in: int) -> None:
            super().__init__()
            inner = BOTTLENECK * GROWTH
            self.made = nn.Sequential(
                norm(n_in),
                nn.ReLU(),
                nn.Conv2d(n_in, inner, 1, bias=False),
                norm(inner),
                nn.ReLU(),
                nn.Conv2d(inner, GROWTH, 3, padding=1, bias=False),
            )

        def forward(self, x: Tensor) -> Tensor:
            return cat([x, self.made(x)], dim=1)

    width = 2 * GROWTH
    parts: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), norm(width), nn.ReLU()]
    parts.append(nn.MaxPool2d(3, 2, 1))
    for b, n_layers in enumerate(BLOCKS):
        for _ in range(n_layers):
            parts.append(Layer(width))
            width += GROWTH
        parts += [norm(width), nn.ReLU()]
        if b < len(BLOCKS) - 1:
            parts += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]
    model = nn.Sequential(*parts)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 224, 224, 3); scores, not probabilities."""
    from tensorflow.keras.applications import DenseNet121

    return DenseNet121(weights=None, classifier_activation=None)
