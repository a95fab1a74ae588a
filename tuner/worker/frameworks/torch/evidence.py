"""What oneDNN and PyTorch show of the settings, after a call was made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.worker.evidence.allocator import has_huge_pages
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
        self.compute = [
            ",".join(f) for f in fields if len(f) > 6 and f[3] == "exec" and f[5] in _COMPUTE
        ]
        told = [",".join(f) for f in fields if len(f) > 4 and f[2:4] == ["info", "cpu"]]
        self._isa = next((line.partition("isa:")[2] for line in told if "isa:" in line), "")

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

    def is_bf16(self) -> tuple[bool, str] | None:
        """Tell whether most primitives took bf16; None without any."""
        if not self.compute:
            return None
        low = sum("src:bf16" in p for p in self.compute)
        how = f"oneDNN ran {low} of {len(self.compute)} primitives in bf16"
        return 2 * low > len(self.compute), how


def library_state(torch: Any, settings: dict[str, Value]) -> list[ReadBack]:
    """Read back what PyTorch itself answers for."""
    capability = str(torch.backends.cpu.get_cpu_capability()).lower()
    asked = settings.get("env.ATEN_CPU_CAPABILITY")
    small = torch.full((64,), 1e-30)
    flushes = not bool((small * 1e-10).count_nonzero())
    return [
        ReadBack(
            "env.OMP_NUM_THREADS",
            settings.get("env.OMP_NUM_THREADS"),
            torch.get_num_threads(),
            "effective",
            "torch.get_num_threads()",
        ),
        ReadBack(
            "torch.interop_threads",
            settings.get("torch.interop_threads"),
            torch.get_num_interop_threads(),
            "accepted",
            "torch.get_num_interop_threads(); idle outside TorchScript fork",
        ),
        ReadBack(
            "env.ATEN_CPU_CAPABILITY",
            asked,
            capability,
            "effective",
            "torch.backends.cpu.get_cpu_capability()",
        ),
        ReadBack(
            "torch.flush_denormal",
            settings.get("torch.flush_denormal"),
            flushes,
            "effective",
            f"1e-30 x 1e-10 is {'0' if flushes else 'not 0'}",
        ),
    ]


def huge_pages(torch: Any, asked: Value) -> ReadBack:
    """Look at the mapping of a large tensor."""
    tensor = torch.zeros(1 << 24)
    is_advised = has_huge_pages(tensor.data_ptr())
    how = f"a tensor of 64 MiB {'is' if is_advised else 'is not'} advised to use huge pages"
    return ReadBack("env.THP_MEM_ALLOC_ENABLE", asked, int(is_advised), "effective", how)


def products(torch: Any) -> list[Multiply]:
    """Return the ways in which models multiply: matrix products and convolutions."""

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
