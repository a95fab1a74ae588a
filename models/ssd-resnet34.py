"""SSD-ResNet-34: the large object detector of MLPerf Inference, images of 1200 x 1200.

Liu et al., arXiv:1512.02325, on the first three stages of ResNet-34, the third without its stride;
five more pairs of convolutions; 15,130 boxes of 81 classes, as in MLPerf's reference. It ends with
the boxes' places and scores: what suppresses overlapping boxes takes time that depends on trained
weights, so with random ones it would tell nothing. Written out for both frameworks from one table.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

# (blocks, width, stride of the first block)
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 1))
# (width of the 1x1 convolution, of the 3x3, its stride, its padding)
EXTRAS = ((256, 512, 2, 1), (256, 512, 2, 1), (128, 256, 2, 1), (128, 256, 2, 0), (128, 256, 1, 0))
ANCHORS = (4, 6, 6, 6, 4, 4)
CLASSES, HEAD_STRIDE, EPSILON = 81, 3, 1e-5


def _sides(side: int) -> list[int]:
    """Return the sides of the six maps that boxes are read from."""
    sides = [-(-side // 8)]
    for _, _, stride, padding in EXTRAS:
        sides.append((sides[-1] + 2 * padding - 3) // stride + 1)
    if sides[-1] < 1:
        raise ValueError(f"side={side} is none; the last map needs an image of at least 385")
    return sides


def _macs(side: int) -> int:
    sides = _sides(side)
    total = (side // 2) ** 2 * 49 * 3 * 64
    n_in, at = 64, side // 4
    for blocks, width, stride in STAGES:
        at = -(-at // stride)
        total += at * at * 9 * width * (n_in + (2 * blocks - 1) * width)
        total += at * at * n_in * width if n_in != width else 0
        n_in = width
    for i, (squeezed, width, _, _) in enumerate(EXTRAS):
        total += sides[i] ** 2 * n_in * squeezed + sides[i + 1] ** 2 * 9 * squeezed * width
        n_in = width
    for at, width, anchors in zip(sides, _widths(), ANCHORS, strict=True):
        total += (-(-at // HEAD_STRIDE)) ** 2 * 9 * width * anchors * (CLASSES + 4)
    return total


def _widths() -> list[int]:
    return [STAGES[-1][1], *(width for _, width, _, _ in EXTRAS)]


def model(side: int = 1200) -> Model:
    """Return the statement for images of side x side."""
    return Model(
        title=f"SSD-ResNet-34 {side}",
        task="object detection",
        family="detection",
        kind="cnn",
        inputs=(Image(side, side, 3),),
        reference_batch=1,
        batches=(1,),
        damped_norms=r"norm2$",
        n_parameters=19_972_534,
        macs=_macs(side),
        widths={"torch": 1.34, "tensorflow": 1.34},
        follows="MLPerf Inference 0.5 to 2.0, without suppression of overlaps",
        systems=("MLPerf Inference", "MLPerf Training"),
        server_bound_s=0.100,
        small={"side": 400},
    )


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, side, side).

    Outputs: places (batch, boxes, 4) and scores (batch, boxes, 81).
    """
    from torch import Tensor, cat, nn, relu

    def conv(n_in: int, n_out: int, size: int, stride: int) -> nn.Conv2d:
        made = nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False)
        nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
        return made

    class Block(nn.Module):
        def __init__(self, n_in: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = conv(n_in, width, 3, stride), nn.BatchNorm2d(width)
            self.conv2, self.norm2 = conv(width, width, 3, 1), nn.BatchNorm2d(width)
            self.shortcut = (
                nn.Identity()
                if n_in == width
                else nn.Sequential(conv(n_in, width, 1, stride), nn.BatchNorm2d(width))
            )

        def forward(self, x: Tensor) -> Tensor:
            y = relu(self.norm1(self.conv1(x)))
            return relu(self.shortcut(x) + self.norm2(self.conv2(y)))

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts: list[nn.Module] = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU()]
            parts.append(nn.MaxPool2d(3, 2, 1))
            n_in = 64
            for blocks, width, stride in STAGES:
                for b in range(blocks):
                    parts.append(Block(n_in, width, stride if b == 0 else 1))
                    n_in = width
            self.backbone = nn.Sequential(*parts)
            extras = []
            for squeezed, width, stride, padding in EXTRAS:
                extras.append(
                    nn.Sequential(
                        nn.Conv2d(n_in, squeezed, 1),
                        nn.ReLU(),
                        nn.Conv2d(squeezed, width, 3, stride, padding),
                        nn.ReLU(),
                    )
                )
                n_in = width
            self.extras = nn.ModuleList(extras)

            def heads(numbers: int) -> nn.ModuleList:
                return nn.ModuleList(
                    nn.Conv2d(width, anchors * numbers, 3, HEAD_STRIDE, 1)
                    for width, anchors in zip(_widths(), ANCHORS, strict=True)
                )

            self.places, self.scores = heads(4), heads(CLASSES)
            for module in (*self.extras.modules(), *self.places, *self.scores):
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                    nn.init.zeros_(module.bias)

        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            maps = [self.backbone(images)]
            for extra in self.extras:
                maps.append(extra(maps[-1]))

            def read(heads: nn.ModuleList, numbers: int) -> Tensor:
                made = [head(x) for head, x in zip(heads, maps, strict=True)]
                return cat(
                    [m.permute(0, 2, 3, 1).reshape(m.shape[0], -1, numbers) for m in made], dim=1
                )

            return read(self.places, 4), read(self.scores, CLASSES)

    return Detector()


def tensorflow(side: int = 1200) -> Any:
    """Return a keras.Model over (batch, side, side, 3), with outputs as in PyTorch."""
    from tensorflow.keras import Input, Model, layers

    def padded(x: Any, size: int) -> Any:
        return layers.ZeroPadding2D(size // 2)(x) if size > 1 else x

    def conv_norm(x: Any, width: int, size: int, stride: int, name: str | None = None) -> Any:
        x = layers.Conv2D(width, size, stride, use_bias=False, kernel_initializer="he_normal")(
            padded(x, size)
        )
        return layers.BatchNormalization(epsilon=EPSILON, name=name)(x)

    def read(x: Any, anchors: int, numbers: int) -> Any:
        made = layers.Conv2D(anchors * numbers, 3, HEAD_STRIDE, kernel_initializer="he_normal")(
            padded(x, 3)
        )
        return layers.Reshape((-1, numbers))(made)

    images = Input((side, side, 3))
    x = layers.ReLU()(conv_norm(images, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2)(padded(x, 3))  # after a ReLU, zeros pad a maximum as -inf does
    n_in = 64
    for s, (blocks, width, stride) in enumerate(STAGES):
        for b in range(blocks):
            step = stride if b == 0 else 1
            y = layers.ReLU()(conv_norm(x, width, 3, step, f"stage{s}_block{b}_norm1"))
            y = conv_norm(y, width, 3, 1, f"stage{s}_block{b}_norm2")
            if n_in != width:
                x = conv_norm(x, width, 1, step, f"stage{s}_block{b}_shortcut")
            x = layers.ReLU()(layers.Add()([x, y]))
            n_in = width
    maps = [x]
    for squeezed, width, stride, padding in EXTRAS:
        x = layers.Conv2D(squeezed, 1, activation="relu", kernel_initializer="he_normal")(x)
        x = padded(x, 3) if padding else x
        x = layers.Conv2D(width, 3, stride, activation="relu", kernel_initializer="he_normal")(x)
        maps.append(x)
    both = [
        layers.Concatenate(axis=1)(
            [read(x, anchors, numbers) for x, anchors in zip(maps, ANCHORS, strict=True)]
        )
        for numbers in (4, CLASSES)
    ]
    return Model(images, both)
