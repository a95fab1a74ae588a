"""The processor's name and the instruction sets that kernels choose by."""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec

# The flags by which oneDNN, MKL, OpenBLAS and XLA choose kernels; all others change nothing here.
_RELEVANT = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve", "sve2", "svebf16"),
)


class Processor(msgspec.Struct, frozen=True):
    """What /proc/cpuinfo tells."""

    vendor: str
    """intel, amd, arm, or the kernel's own word."""
    model: str
    arch: str
    isa: tuple[str, ...]
    virtualised: bool


_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}


def read_processor(root: Path = Path("/"), arch: str | None = None) -> Processor:
    """Read the first processor of /proc/cpuinfo below `root`."""
    fields: dict[str, str] = {}
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    vendor = fields.get("vendor_id", "")
    if "CPU implementer" in fields:
        vendor = "arm"
    return Processor(
        vendor=_VENDORS.get(vendor, vendor or "unknown"),
        model=fields.get("model name") or fields.get("CPU part", "unknown"),
        arch=arch or platform.machine(),
        isa=tuple(flag for flag in _RELEVANT if flag in flags),
        virtualised="hypervisor" in flags,
    )
