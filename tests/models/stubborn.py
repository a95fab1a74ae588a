"""A convolution and a product that compute in fp32 and NCHW, whatever is set around them."""

from typing import Any

from tuner.worker.gallery import Image, Model

MODEL = Model(
    title="Stubborn network",
    task="image classification",
    kind="cnn",
    inputs=(Image(32, 32, 3),),
    reference_batch=8,
    batches=(8, 32),
)


def torch() -> Any:
    import torch
    from torch import Tensor, nn

    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 3, padding=1, bias=False)
            self.classifier = nn.Linear(32 * 4 * 4, 64)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast(x.device.type, enabled=False):
                image = x.float().contiguous(memory_format=torch.contiguous_format)
                kernel = self.conv.weight.float().contiguous(memory_format=torch.contiguous_format)
                y = nn.functional.relu(nn.functional.conv2d(image, kernel, padding=1))
                y = nn.functional.avg_pool2d(y, 8).flatten(1)
                weight, bias = self.classifier.weight.float(), self.classifier.bias.float()
                out: Tensor = nn.functional.linear(y, weight, bias)
                return out

    return Stubborn()
