"""ResNet-50 v1.5: the image classifier of MLPerf Inference, 25,557,032 parameters.

Version 1.5 has the stride of a down-sampling block in its 3x3 convolution, version 1 in the first
1x1 (He et al., arXiv:1512.03385; v1.5 as in MLPerf's reference). keras.applications.ResNet50 is v1,
so both frameworks are written out here, from one table and with the same names: the same model.
"""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="ResNet-50 v1.5",
    task="image classification",
    family="cnn",
    kind="cnn",
    inputs=(Image(224, 224, 3),),
    reference_batch=4,
    batches=(4, 16),
    n_classes=1000,
    damped_norms=r"norm3$",
    n_parameters=25_557_032,
    macs=4_089_184_256,
    widths={"torch": 1.08, "tensorflow": 1.08},
    follows="MLPerf's reference, version 1.5",
    systems=("MLPerf Inference", "MLPerf Training", "TBD", "DAWNBench"),
    server_bound_s=0.015,
)

# (blocks, width of the 3x3 convolution, stride of the first block); a block's output is 4x as wide
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
EXPANSION = 4
EPSILON = 1e-5


def torch() -> Any:
    """Return a torch.nn.Module over (batch, 3, 224, 224); scores, not probabilities."""
    from collections import OrderedDict

    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self, n_in: int, width: int, stride: int) -> None:
            super().__init__()
            n_out = width * EXPANSION
            self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(width, eps=EPSILON)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(width, eps=EPSILON)
            self.conv3 = nn.Conv2d(width, n_out, 1, bias=False)
            self.norm3 = nn.BatchNorm2d(n_out, eps=EPSILON)
            self.shortcut: nn.Sequential | None = None
            if stride != 1 or n_in != n_out:
                conv = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
                self.shortcut = nn.Sequential(
                    OrderedDict(conv=conv, norm=nn.BatchNorm2d(n_out, eps=EPSILON))
                )
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            y = self.relu(self.norm1(self.conv1(x)))
            y = self.relu(self.norm2(self.conv2(y)))
            y = self.norm3(self.conv3(y))
            return self.relu(y + (x if self.shortcut is None else self.shortcut(x)))

    parts: OrderedDict[str, nn.Module] = OrderedDict(
        stem_conv=nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        stem_norm=nn.BatchNorm2d(64, eps=EPSILON),
        stem_relu=nn.ReLU(inplace=True),
        stem_pool=nn.MaxPool2d(3, 2, 1),
    )
    n_in = 64
    for s, (n_blocks, width, stride) in enumerate(STAGES):
        for b in range(n_blocks):
            parts[f"stage{s}_block{b}"] = Block(n_in, width, stride if b == 0 else 1)
            n_in = width * EXPANSION
    parts["pool"] = nn.AdaptiveAvgPool2d(1)
    parts["flatten"] = nn.Flatten()
    parts["classifier"] = nn.Linear(n_in, 1000)
    model = nn.Sequential(parts)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # keeps activations in range through 50 random layers
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def tensorflow() -> Any:
    """Return a keras.Model over (batch, 224, 224, 3); scores, not probabilities."""
    from tensorflow.keras import Input, Model, layers

    def conv_norm(x: Any, name: str, part: str, width: int, size: int, stride: int) -> Any:
        if size > 1:  # PyTorch pads both sides alike; "same" would not with a stride
            x = layers.ZeroPadding2D(size // 2, name=f"{name}_pad{part}")(x)
        x = layers.Conv2D(
            width,
            size,
            stride,
            use_bias=False,
            kernel_initializer="he_normal",
            name=f"{name}_conv{part}",
        )(x)
        return layers.BatchNormalization(epsilon=EPSILON, name=f"{name}_norm{part}")(x)

    inputs = Input((224, 224, 3))
    x = layers.ReLU()(conv_norm(inputs, "stem", "", 64, 7, 2))
    x = layers.ZeroPadding2D(1)(x)  # after a ReLU, zeros pad a maximum as -inf does
    x = layers.MaxPooling2D(3, 2)(x)
    for s, (n_blocks, width, stride) in enumerate(STAGES):
        for b in range(n_blocks):
            name, step = f"stage{s}_block{b}", stride if b == 0 else 1
            y = layers.ReLU()(conv_norm(x, name, "1", width, 1, 1))
            y = layers.ReLU()(conv_norm(y, name, "2", width, 3, step))
            y = conv_norm(y, name, "3", width * EXPANSION, 1, 1)
            if b == 0:
                x = conv_norm(x, f"{name}_shortcut", "", width * EXPANSION, 1, step)
            x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    return Model(inputs, layers.Dense(1000, name="classifier")(x))
