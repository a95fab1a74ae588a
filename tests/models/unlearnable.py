"""Functions of models that cannot be trained, each in its own way."""

from typing import Any

import torch


class _Net(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = torch.nn.Linear(8, 4), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "in_place":
            x.mul_(0.5)
        y: torch.Tensor = self.layer(x)
        if self.kind == "nan":
            y = y / 0.0 - y / 0.0
        return y


def _made(kind: str) -> Any:
    return _Net(kind), torch.randn(4, 8)


def nan() -> Any:
    return _made("nan")


def in_place() -> Any:
    return _made("in_place")


def frozen() -> Any:
    net, batch = _made("frozen")
    return net.requires_grad_(False), batch


def no_floats() -> Any:
    class Classes(_Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).argmax(1)

    return Classes(""), torch.randn(4, 8)
