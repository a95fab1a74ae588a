"""oneDNN's own account of what PyTorch had it compute, and products to see its rounding by."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tuner.worker.evidence.output import captured
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.products import Multiply

_COMPUTE = ("convolution", "inner_product", "matmul", "deconvolution")
# oneDNN's words for its instruction sets ("CPU dispatcher control" in its guide), newest first
_ISA_NAMES = (
    ("AMX", "AVX512_CORE_AMX"),
    ("float16", "AVX512_CORE_FP16"),
    ("bfloat16", "AVX512_CORE_BF16"),
    ("DL Boost", "AVX512_CORE_VNNI"),
    ("AVX-512", "AVX512_CORE"),
    ("AVX2", "AVX2"),
    ("AVX", "AVX"),
    ("SSE4.1", "SSE41"),
)


class Primitives:
    """oneDNN's own account of one call: a line per primitive that computed."""

    def __init__(self, torch: Any, call: Callable[[], Any] | None) -> None:
        lines: list[str] = []
        mkldnn = torch.backends.mkldnn
        if call is not None and mkldnn.is_available():
            with captured() as lines, mkldnn.verbose(mkldnn.VERBOSE_ON):
                call()
        fields = [line.split(",") for line in lines if line.startswith("onednn_verbose")]
        compute = [
            ",".join(f) for f in fields if len(f) > 6 and f[3] == "exec" and f[5] in _COMPUTE
        ]
        self.compute = compute
        rows = [",".join(f) for f in fields if len(f) > 4 and f[2:4] == ["info", "cpu"]]
        self._isa = next((line.partition("isa:")[2] for line in rows if "isa:" in line), "")

    def isa(self) -> str:
        """Return the newest instruction set that oneDNN may use, by its name in the environment."""
        return next((name for word, name in _ISA_NAMES if word in self._isa), "unset")

    def layout(self) -> tuple[str, str] | None:
        """Return the layout that most convolutions ran in; None without any."""
        convolutions = [p for p in self.compute if ",convolution," in p]
        if not convolutions:
            return None
        nhwc = sum(bool(re.search(r"src:\w+:\w*:blocked:acd?e?b", p)) for p in convolutions)
        how = f"oneDNN ran {nhwc} of {len(convolutions)} convolutions in NHWC"
        return ("channels_last" if 2 * nhwc > len(convolutions) else "contiguous"), how

    def low(self) -> tuple[str, str] | None:
        """Return bf16 if most primitives took it, empty if not; None without any."""
        if not self.compute:
            return None
        low = sum("src:bf16" in p for p in self.compute)
        how = f"oneDNN ran {low} of {len(self.compute)} primitives in bf16"
        return ("bf16" if 2 * low > len(self.compute) else ""), how


def multiplications(torch: Any) -> list[Multiply]:
    """Return the ways in which models multiply on the CPU: matrix products and convolutions."""

    def matrix(a: Array, b: Array) -> Array:
        result: Array = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
        return result

    def convolution(a: Array, b: Array) -> Array:
        n, k = a.shape
        side = int(n**0.5)
        image = torch.from_numpy(a).T.reshape(1, k, side, side).contiguous()
        kernel = torch.from_numpy(b).T.reshape(b.shape[1], k, 1, 1).contiguous()
        result: Array = torch.nn.functional.conv2d(image, kernel).reshape(b.shape[1], n).T.numpy()
        return result

    return [matrix, convolution]
