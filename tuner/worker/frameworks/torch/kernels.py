"""The kernels that one call launches on a card, by their names in PyTorch's profiler.

Names are those of cuDNN, cuBLAS, CUTLASS and of PyTorch's own kernels. The meaning of their parts
was determined on an H100 with PyTorch 2.11 (tests/worker/frameworks/kernels_h100.json).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_PRODUCT = re.compile(
    r"gemm|gemv|fprop|implicit|nvjet|cutlass|fmha|sdpa|flash|convolve|winograd|triton_tem"
)
_CONVOLUTION = re.compile(r"(?<!flash_)fprop|implicit_gemm|convolve|winograd|conv2d|first_layer")
_ATTENTION = re.compile(r"sdpa")
"""cuDNN's own names, whose f16 stands for either type of 16 bits."""
_TO_CHANNELS_LAST, _TO_CONTIGUOUS = re.compile("nchwToNhwc"), re.compile("nhwcToNchw")
# By precision of what is multiplied, the first that is found: a name holds that of its sums too.
# nvjet is cuBLAS's newest family; t, h and s after the architecture: bf16, half, single (as tf32).
_PRECISIONS = (
    ("bf16", re.compile(r"bf16|bfloat16|BFloat16|nvjet_(sm\d+_)?t")),
    (
        "fp16",
        re.compile(r"f16f16|_f16_|_f16$|fp16|half|Half|_h\d+gemm|nvjet_sm\d+_h|s16816fprop_f16"),
    ),
    ("tf32", re.compile(r"tf32|s1688|nvjet_(sm\d+_)?s")),
    ("fp32", re.compile(r"f32|sgemm|ffma|float")),
)
GRAPH_LAUNCH = "cudaGraphLaunch"


class Kernel(NamedTuple):
    """What ran on the card under one name."""

    name: str
    calls: int
    us: float
    """Microseconds, all of them together."""


class Kernels:
    """A call's kernels, and how often the host launched a CUDA graph in it."""

    def __init__(self, kernels: Iterable[Kernel], graph_launches: int) -> None:
        self.all = tuple(kernels)
        self.graph_launches = graph_launches
        self._products = [k for k in self.all if _PRODUCT.search(k.name)]
        self.n_convolutions = sum(k.calls for k in self._products if _CONVOLUTION.search(k.name))

    @classmethod
    def of(cls, torch: Any, call: Callable[[], Any] | None) -> Kernels:
        """Trace one call; nothing of none."""
        if call is None:
            return cls((), 0)
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
        calls: Counter[str] = Counter()
        us: defaultdict[str, float] = defaultdict(float)
        launches = 0
        for event in seen.events():
            if event.is_user_annotation:
                continue
            if str(event.device_type).endswith("CUDA"):
                calls[event.name] += 1
                us[event.name] += event.device_time_total
            launches += event.name == GRAPH_LAUNCH
        return cls((Kernel(name, calls[name], us[name]) for name in calls), launches)

    def layout(self) -> tuple[str, str] | None:
        """Return the layout of the images that cuDNN convolves; None if names do not show it.

        If kernels need the other one, cuDNN rearranges inputs, often weights too, and outputs back.
        The direction that is more frequent leads away from the images' own layout.
        """
        n = self.n_convolutions
        to_last, back = self._n_calls(_TO_CHANNELS_LAST), self._n_calls(_TO_CONTIGUOUS)
        if to_last == back:
            is_last = any("nhwc" in k.name.lower() for k in self._products)
            is_conclusive = not to_last and n > 0
        else:
            is_last, is_conclusive = back > to_last, n > 0
        how = f"{n} convolution kernels; {to_last} rearrange to NHWC, {back} to NCHW"
        return (("channels_last" if is_last else "contiguous"), how) if is_conclusive else None

    def _n_calls(self, name: re.Pattern[str]) -> int:
        return sum(k.calls for k in self.all if name.search(k.name))

    def low(self) -> tuple[str, str] | None:
        """Return the reduced precision in which most of the products' time was spent.

        None if the names of most of them, by time, show no precision.
        """
        spent = self.precisions()
        if not spent:
            return None
        most = max(spent, key=lambda name: spent[name])
        shares = ", ".join(f"{us / sum(spent.values()):.0%} in {p}" for p, us in spent.items())
        return (most if most in ("bf16", "fp16") else ""), f"time of product kernels: {shares}"

    def precisions(self) -> dict[str, float]:
        """Return the microseconds of products by their precision, the most first.

        Empty if less than half of the time is known: a minority would represent all.
        """
        spent: defaultdict[str, float] = defaultdict(float)
        for kernel in self._products:
            if _ATTENTION.search(kernel.name):
                continue
            found = next((p for p, token in _PRECISIONS if token.search(kernel.name)), "")
            if found:
                spent[found] += kernel.us
        if 2 * sum(spent.values()) < sum(kernel.us for kernel in self._products):
            return {}
        return dict(sorted(spent.items(), key=lambda each: -each[1]))
