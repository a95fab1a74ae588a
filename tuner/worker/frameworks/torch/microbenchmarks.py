"""PyTorch's own kernels, by which it is measured what a host can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tuner.worker.frameworks import Microbenchmark
from tuner.worker.frameworks.torch.build import TorchBuild

_SIDES = (1024, 2048)
"""Of square products."""
_IMAGES, _SIZE, _CHANNELS = 8, 28, 256
"""Of convolutions."""


class TorchMicrobenchmarks:
    """Products and convolutions of the device that is measured."""

    def __init__(self, build: TorchBuild) -> None:
        self._build = build

    def products(self, dtype: str) -> Iterator[Microbenchmark]:
        """Yield square products, a linear layer and convolutions, channels last."""
        torch = self._build.torch
        device, kind = self._build.device.name, _types(torch)[dtype]
        for side in _SIDES:
            a, b, out = (torch.ones((side, side), dtype=kind, device=device) for _ in range(3))
            flops = 2 * side**3
            yield Microbenchmark(f"mm {side}", flops, self._ended(_product(torch, a, b, out)))
        yield Microbenchmark(f"linear {side}", flops, self._ended(_linear(torch, a, b)))
        x = torch.ones((_IMAGES, _CHANNELS, _SIZE, _SIZE), dtype=kind, device=device)
        x = x.contiguous(memory_format=torch.channels_last)
        for kernel in (1, 3):
            layer = torch.nn.Conv2d(
                _CHANNELS, _CHANNELS, kernel, padding="same", bias=False, device=device
            )
            layer = layer.to(dtype=kind, memory_format=torch.channels_last).eval()
            flops = 2 * x.numel() * _CHANNELS * kernel**2
            name = f"convolution {kernel}x{kernel}"
            yield Microbenchmark(name, flops, self._ended(_layer(layer, x)))

    def streams(self, n_bytes: int) -> Iterator[Microbenchmark]:
        """Yield a sum of two arrays into a third, a copy, and a sum over one."""
        torch = self._build.torch
        n, device = n_bytes // 4, self._build.device.name
        a, b, out = (torch.ones(n, dtype=torch.float32, device=device) for _ in range(3))
        yield Microbenchmark("add", 3 * n_bytes, self._ended(lambda: torch.add(a, b, out=out)))
        yield Microbenchmark("copy", 2 * n_bytes, self._ended(lambda: out.copy_(a)))
        yield Microbenchmark("sum", n_bytes, self._ended(lambda: torch.sum(a)))

    def _ended(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return a call that ends when the device is done."""
        return self._build.device.ended(self._build.torch, call)


def _types(torch: Any) -> dict[str, Any]:
    return {"fp32": torch.float32, "bf16": torch.bfloat16}


def _product(torch: Any, a: Any, b: Any, out: Any) -> Callable[[], Any]:
    return lambda: torch.mm(a, b, out=out)


def _linear(torch: Any, x: Any, weight: Any) -> Callable[[], Any]:
    return lambda: torch.nn.functional.linear(x, weight)


def _layer(layer: Any, x: Any) -> Callable[[], Any]:
    return lambda: layer(x)
