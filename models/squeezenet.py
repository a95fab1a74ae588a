"""SqueezeNet 1.1: AlexNet's accuracy with 1.2 M parameters.

Iandola et al., arXiv:1602.07360; version 1.1 as its authors published it. Written out here for both
frameworks from one table: the same model.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="SqueezeNet 1.1",
    task="image classification",
    family="cnn",
    kind="cnn",
    inputs=(Image(224, 224, 3),),
    reference_batch=4,
    batches=(4, 16),
    n_classes=1000,
    n_parameters=1_235_496,
    macs=349_152_000,
    widths={"torch": 1.44, "tensorflow": 1.44},
    follows="the authors' version 1.1",
    systems=("Wang et al. 2019",),
)

# squeezed and expanded channels of a fire module; None where a maximum is pooled
FIRES = ((16, 64), (16, 64), None, (32, 128), (32, 128), None,
         (48, 192), (48, 192), (64, 256), (64, 256))  # fmt: skip


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 224, 224); scores, not probabilities."""
    from torch import Tensor, cat, nn

    class Fire(nn.Module):
        def __init__(self, n_in: int, squeezed: int, expanded: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(n_in, squeezed, 1)
            self.expand1 = nn.Conv2d(squeezed, expanded, 1)
            self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            x = self.relu(self.squeeze(x))
            return cat([self.relu(self.expand1(x)), self.relu(self.expand3(x))], dim=1)

    pool = nn.MaxPool2d(3, 2)
    parts: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU(inplace=True), pool]
    n_in = 64
    for fire in FIRES:
        if fire is None:
            parts.append(pool)
            continue
        parts.append(Fire(n_in, *fire))
        n_in = 2 * fire[1]
    parts += [nn.Conv2d(n_in, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*parts)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # keeps activations in range through random layers
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return model


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 224, 224, 3); scores, not probabilities."""
    from tensorflow.keras import Input, Model, layers

    def conv(x: Any, width: int, size: int, stride: int = 1, padding: str = "valid") -> Any:
        made = layers.Conv2D(
            width, size, stride, padding, activation="relu", kernel_initializer="he_uniform"
        )
        return made(x)

    images = Input((224, 224, 3))
    x = layers.MaxPooling2D(3, 2)(conv(images, 64, 3, 2))
    for fire in FIRES:
        if fire is None:
            x = layers.MaxPooling2D(3, 2)(x)
            continue
        x = conv(x, fire[0], 1)
        x = layers.Concatenate()([conv(x, fire[1], 1), conv(x, fire[1], 3, padding="same")])
    return Model(images, layers.GlobalAveragePooling2D()(conv(x, 1000, 1)))
