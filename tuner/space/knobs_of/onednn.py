"""What oneDNN reads, in whichever framework."""

from __future__ import annotations

from tuner.record.numerics import Level
from tuner.space.knob import AT_LEAST_0, one_of, variable, written

_PRECISION = one_of("STRICT", "BF16", "F16", "TF32", "ANY")
KNOBS = (
    variable(
        "ONEDNN_MAX_CPU_ISA",
        "newest instructions that oneDNN uses",
        marker="MAX_CPU_ISA",
        domain=written(r"all|default|sse41|avx\w*|asimd|sve_\d+", "ALL, or a name such as AVX2"),
    ),
    variable(
        "ONEDNN_DEFAULT_FPMATH_MODE",
        "precision of fp32 products in oneDNN",
        marker="DEFAULT_FPMATH_MODE",
        level=Level.REDUCED,
        domain=_PRECISION,
    ),
    variable(
        "DNNL_DEFAULT_FPMATH_MODE",
        "older name of ONEDNN_DEFAULT_FPMATH_MODE",
        marker="DEFAULT_FPMATH_MODE",
        level=Level.REDUCED,
        domain=_PRECISION,
    ),
    variable(
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY",
        "how many compiled kernels oneDNN keeps",
        marker="PRIMITIVE_CACHE_CAPACITY",
        domain=AT_LEAST_0,
    ),
)
