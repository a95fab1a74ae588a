"""A small residual network, the same in both frameworks: real layers at test speed."""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="Tiny residual network",
    task="image classification",
    kind="cnn",
    inputs=(Image(32, 32, 3),),
    reference_batch=8,
    batches=(8, 32),
    n_classes=64,
    damped_norms=r"norm2$",
)


def torch(width: int = 32) -> Any:
    from torch import Tensor, nn

    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(width)
            self.classifier = nn.Linear(4 * 4 * width, 64)

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.relu(self.norm1(self.conv1(x)))
            x = nn.functional.relu(x + self.norm2(self.conv2(x)))
            x = nn.functional.avg_pool2d(x, 8)
            y: Tensor = self.classifier(x.flatten(1))
            return y

    return Tiny()


def tensorflow(width: int = 32) -> Any:
    from tensorflow.keras import Input, Model, layers

    inputs = Input((32, 32, 3))
    x = layers.Conv2D(width, 3, padding="same", use_bias=False, name="conv1")(inputs)
    x = layers.ReLU()(layers.BatchNormalization(name="norm1")(x))
    y = layers.Conv2D(width, 3, padding="same", use_bias=False, name="conv2")(x)
    x = layers.ReLU()(layers.Add()([x, layers.BatchNormalization(name="norm2")(y)]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return Model(inputs, layers.Dense(64, name="classifier")(x))
