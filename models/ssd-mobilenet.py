"""SSD-MobileNet-v1: the small object detector of MLPerf Inference, images of 300 x 300.

Liu et al., arXiv:1512.02325, on MobileNet-v1, with four more pairs of convolutions; 1,917 boxes of
91 classes, as in TensorFlow's detection models. It ends with the boxes' places and scores: what
suppresses overlapping boxes takes time that depends on trained weights, so with random ones it
would tell nothing. Written out for both frameworks from one table, padded as in TensorFlow. Filters
and norms begin as those of mobilenet-v1.py, for the reason that stands there.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

# (width, stride) of MobileNet's depthwise and pointwise pairs
PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
         (512, 1), (512, 1), (1024, 2), (1024, 1))  # fmt: skip
READ = (10, 12)
"""Which of them boxes are read from."""
# (width of the 1x1 convolution, of the 3x3 with stride 2)
EXTRAS = ((256, 512), (128, 256), (128, 256), (64, 128))
ANCHORS = (3, 6, 6, 6, 6, 6)
CLASSES, EPSILON = 91, 1e-3
SIDE = 300


def _counts() -> tuple[int, int]:
    """Return parameters and multiply-accumulates."""
    half = -(-SIDE // 2)
    n, macs, n_in, at = 27 * 32 + 64, half * half * 27 * 32, 32, half
    read = []
    for i, (width, stride) in enumerate(PAIRS):
        at = -(-at // stride)
        n += 9 * n_in + 2 * n_in + n_in * width + 2 * width
        macs += at * at * (9 * n_in + n_in * width)
        n_in = width
        if i in READ:
            read.append((at, width))
    for squeezed, width in EXTRAS:
        n += n_in * squeezed + 2 * squeezed + 9 * squeezed * width + 2 * width
        macs += at * at * n_in * squeezed
        at = -(-at // 2)
        macs += at * at * 9 * squeezed * width
        n_in = width
        read.append((at, width))
    for (at, width), anchors in zip(read, ANCHORS, strict=True):
        n += (width + 1) * anchors * (CLASSES + 4)
        macs += at * at * width * anchors * (CLASSES + 4)
    return n, macs


MODEL = Model(
    title="SSD-MobileNet-v1 300",
    task="object detection",
    family="detection",
    kind="cnn",
    inputs=(Image(SIDE, SIDE, 3),),
    reference_batch=4,
    batches=(1, 4),
    n_parameters=_counts()[0],
    macs=_counts()[1],
    widths={"torch": 1.31, "tensorflow": 1.31},
    follows="MLPerf Inference 0.5 to 2.0, without suppression of overlaps",
    systems=("MLPerf Inference",),
    server_bound_s=0.010,
)


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 300, 300).

    Outputs: places (batch, 1917, 4) and scores (batch, 1917, 91).
    """
    from torch import Tensor, cat, nn
    from torch.nn.functional import pad

    class Conv(nn.Module):
        """A convolution that pads as TensorFlow does, a batch norm, a ReLU6."""

        def __init__(self, n_in: int, n_out: int, size: int, stride: int, groups: int = 1) -> None:
            super().__init__()
            self.size, self.stride = size, stride
            self.conv = nn.Conv2d(n_in, n_out, size, stride, groups=groups, bias=False)
            self.norm = nn.BatchNorm2d(n_out, eps=EPSILON)
            self.relu = nn.ReLU6()
            nn.init.ones_(self.norm.bias)
            if groups > 1:
                nn.init.uniform_(self.conv.weight)
            else:
                nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")

        def forward(self, x: Tensor) -> Tensor:
            if self.size > 1:
                sides = [
                    max((-(-at // self.stride) - 1) * self.stride + self.size - at, 0)
                    for at in x.shape[2:]
                ]
                x = pad(x, [p for s in reversed(sides) for p in (s // 2, s - s // 2)])
            y: Tensor = self.relu(self.norm(self.conv(x)))
            return y

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = Conv(3, 32, 3, 2)
            pairs, n_in, widths = [], 32, []
            for i, (width, stride) in enumerate(PAIRS):
                depthwise = Conv(n_in, n_in, 3, stride, groups=n_in)
                pairs.append(nn.Sequential(depthwise, Conv(n_in, width, 1, 1)))
                n_in = width
                if i in READ:
                    widths.append(width)
            self.pairs = nn.ModuleList(pairs)
            extras = []
            for squeezed, width in EXTRAS:
                extras.append(
                    nn.Sequential(Conv(n_in, squeezed, 1, 1), Conv(squeezed, width, 3, 2))
                )
                n_in = width
                widths.append(width)
            self.extras = nn.ModuleList(extras)

            def heads(numbers: int) -> nn.ModuleList:
                return nn.ModuleList(
                    nn.Conv2d(width, anchors * numbers, 1)
                    for width, anchors in zip(widths, ANCHORS, strict=True)
                )

            self.places, self.scores = heads(4), heads(CLASSES)

        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            x, maps = self.stem(images), []
            for i, pair in enumerate(self.pairs):
                x = pair(x)
                if i in READ:
                    maps.append(x)
            for extra in self.extras:
                x = extra(x)
                maps.append(x)

            def read(heads: nn.ModuleList, numbers: int) -> Tensor:
                made = [head(x) for head, x in zip(heads, maps, strict=True)]
                return cat(
                    [m.permute(0, 2, 3, 1).reshape(m.shape[0], -1, numbers) for m in made], dim=1
                )

            return read(self.places, 4), read(self.scores, CLASSES)

    return Detector()


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 300, 300, 3), with outputs as in PyTorch."""
    from tensorflow.keras import Input, Model, layers
    from tensorflow.keras.initializers import RandomUniform

    def norm_relu(x: Any) -> Any:
        norm = layers.BatchNormalization(epsilon=EPSILON, beta_initializer="ones")
        return layers.ReLU(6.0)(norm(x))

    def conv(x: Any, width: int, size: int, stride: int) -> Any:
        x = layers.Conv2D(
            width, size, stride, "same", use_bias=False, kernel_initializer="he_normal"
        )(x)
        return norm_relu(x)

    def depthwise(x: Any, stride: int) -> Any:
        x = layers.DepthwiseConv2D(
            3, stride, "same", use_bias=False, depthwise_initializer=RandomUniform(0.0, 1.0)
        )(x)
        return norm_relu(x)

    def read(x: Any, anchors: int, numbers: int) -> Any:
        return layers.Reshape((-1, numbers))(layers.Conv2D(anchors * numbers, 1)(x))

    images = Input((SIDE, SIDE, 3))
    x, maps = conv(images, 32, 3, 2), []
    for i, (width, stride) in enumerate(PAIRS):
        x = conv(depthwise(x, stride), width, 1, 1)
        if i in READ:
            maps.append(x)
    for squeezed, width in EXTRAS:
        x = conv(conv(x, squeezed, 1, 1), width, 3, 2)
        maps.append(x)
    both = [
        layers.Concatenate(axis=1)(
            [read(x, anchors, numbers) for x, anchors in zip(maps, ANCHORS, strict=True)]
        )
        for numbers in (4, CLASSES)
    ]
    return Model(images, both)
