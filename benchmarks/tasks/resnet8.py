"""MLPerf Tiny's ResNet-8 for images of 32 x 32 (Banbury et al., arXiv:2106.07597).

Each of ten classes has a smooth pattern, which is shifted and drowned in noise.
"""

from typing import Any

import numpy as np

from tuner.worker.gallery import Image, Integers, Model, Target

CLASSES, SIZE, COARSE, NOISE, SHIFT = 10, 32, 8, 3.0, 4
STAGES = ((16, 1), (32, 2), (64, 2))

MODEL = Model(
    title="ResNet-8",
    task="image classification",
    kind="cnn",
    family="cnn",
    inputs=(Image(SIZE, SIZE, 3),),
    targets=(Integers((), 0, CLASSES - 1),),
    reference_batch=32,
    batches=(32,),
    n_classes=CLASSES,
    target=Target("accuracy", 0.9, every=10, most_steps=600),
    follows="MLPerf Tiny, image classification",
)

PATTERNS = np.kron(
    np.random.default_rng(12).standard_normal((CLASSES, COARSE, COARSE, 3)),
    np.ones((1, SIZE // COARSE, SIZE // COARSE, 1)),
).astype(np.float32)


def tensorflow_samples(n: int, seed: int) -> Any:
    random = np.random.default_rng([3, seed])
    classes = random.integers(0, CLASSES, n)
    images = PATTERNS[classes]
    shifts = random.integers(-SHIFT, SHIFT + 1, (n, 2))
    images = np.stack([np.roll(x, s, (0, 1)) for x, s in zip(images, shifts, strict=True)])
    noise = random.standard_normal(images.shape, dtype=np.float32)
    return images + np.float32(NOISE) * noise, classes


def torch_samples(n: int, seed: int) -> Any:
    images, classes = tensorflow_samples(n, seed)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), classes


def torch_held_out() -> Any:
    return torch_samples(500, 1 << 40)


def tensorflow_held_out() -> Any:
    return tensorflow_samples(500, 1 << 40)


def quality(outputs: Any, targets: Any) -> float:
    return float(np.mean(outputs[0].argmax(axis=1) == targets[0]))


def torch() -> Any:
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.path = nn.Sequential(
                nn.Conv2d(before, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
            )
            self.beside = (
                nn.Identity() if stride == 1 else nn.Conv2d(before, width, 1, stride, bias=False)
            )

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = (self.path(x) + self.beside(x)).relu()
            return y

    before, parts = STAGES[0][0], list[nn.Module]()
    for width, stride in STAGES:
        parts.append(Block(before, width, stride))
        before = width
    return nn.Sequential(
        nn.Conv2d(3, STAGES[0][0], 3, 1, 1, bias=False),
        nn.BatchNorm2d(STAGES[0][0]),
        nn.ReLU(),
        *parts,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(before, CLASSES),
    )


def tensorflow() -> Any:
    from tensorflow.keras import Input, Model, layers

    def convolved(x: Any, width: int, size: int, stride: int) -> Any:
        return layers.Conv2D(width, size, stride, padding="same", use_bias=False)(x)

    inputs = Input((SIZE, SIZE, 3))
    x = layers.ReLU()(layers.BatchNormalization()(convolved(inputs, STAGES[0][0], 3, 1)))
    for width, stride in STAGES:
        y = layers.ReLU()(layers.BatchNormalization()(convolved(x, width, 3, stride)))
        y = layers.BatchNormalization()(convolved(y, width, 3, 1))
        beside = x if stride == 1 else convolved(x, width, 1, stride)
        x = layers.ReLU()(layers.Add()([y, beside]))
    return Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))


def torch_optimizer(parameters: Any) -> Any:
    from torch.optim import AdamW

    return AdamW(parameters, lr=2e-3)


def tensorflow_optimizer() -> Any:
    from tensorflow.keras.optimizers import AdamW

    return AdamW(learning_rate=2e-3)
