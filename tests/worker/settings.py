"""The settings that the tests of frameworks launch, and which of them share a launch."""

import pytest

from tests.wants import host, is_here, needs
from tuner.record.configuration import Value

HOST = host()
needs_bf16, needs_cxx = needs("bf16 instructions"), needs("a C++ compiler")
torch, tensorflow = needs("torch"), needs("tensorflow")
FRAMEWORKS = [pytest.param("torch", marks=torch), pytest.param("tensorflow", marks=tensorflow)]

THP = HOST.observations.transparent_huge_pages == "madvise"
JEMALLOC = "background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"
THRESHOLDS = "glibc.malloc.mmap_threshold=33554432"
BARRIERS = ("FORKJOIN", "PLAIN", "REDUCTION")
KMP: dict[str, Value] = {
    "env.KMP_AFFINITY": "granularity=fine,compact,1,0",
    "env.KMP_BLOCKTIME": 1,
    "env.KMP_TPAUSE": 0,
    **{f"env.KMP_{name}_BARRIER_PATTERN": "dist,dist" for name in BARRIERS},
}


def where(is_so: bool, settings: dict[str, Value]) -> dict[str, Value]:
    """Return settings for a launch that goes without them on a host that lacks what they need."""
    return settings if is_so else {}


NODE = where(is_here("libnuma"), {"launch.numa_node": 0})
BOUND: dict[str, Value] = {
    "torch.jit.mode": "optimize",
    **NODE,
    "env.OMP_WAIT_POLICY": "PASSIVE",
    "env.OMP_PROC_BIND": "CLOSE",
    "env.OMP_PLACES": "cores",
    "env.OMP_SCHEDULE": "STATIC",
    "env.OMP_THREAD_LIMIT": 2,
    "env.GLIBC_TUNABLES": THRESHOLDS,
}
COMPILED: dict[str, Value] = {"torch.compile.mode": "default"}
JIT_COMPILED: dict[str, Value] = {"tensorflow.jit_compile": True}
HALF: dict[str, Value] = {"torch.dtype": "bf16"}
MAPPED: dict[str, Value] = {"torch.weights": "mapped"}
NO_ONEDNN: dict[str, Value] = {
    "env.TF_ENABLE_ONEDNN_OPTS": 0,
    "tensorflow.remapping": False,
    "tensorflow.layout_optimizer": False,
    **where(is_here("tcmalloc"), {"launch.allocator": "tcmalloc"}),
}
HAS_BF16 = is_here("bf16 instructions")
AMP: dict[str, Value] = where(HAS_BF16, {"tensorflow.auto_mixed_precision": "bf16"})
"""Without oneDNN the option is accepted, and nothing happens."""

ENGINES: list[tuple[str, dict[str, Value], dict[str, Value]]] = [
    (
        "onnxruntime",
        {
            "engine.name": "onnxruntime",
            "engine.threads": 1,
            "onnxruntime.optimization": "extended",
            "onnxruntime.spinning": False,
            "onnxruntime.denormal_as_zero": True,
        },
        {"openvino.pinning": False},
    ),
    (
        "onnxruntime",
        {
            "engine.name": "onnxruntime",
            "onnxruntime.execution_mode": "parallel",
            "onnxruntime.inter_threads": 2,
        },
        {},
    ),
    (
        "openvino",
        {"engine.name": "openvino", "openvino.pinning": False},
        {"onnxruntime.spinning": False},
    ),
    (
        "openvino",
        {
            "engine.name": "openvino",
            "openvino.hint": "THROUGHPUT",
            **where(HAS_BF16, {"openvino.precision": "bf16"}),
        },
        {},
    ),
]
"""Of both frameworks: what needs which engine, what is in force, and what another engine has."""

# Settings that do not touch each other share a launch: those in force, and those that are not.
CANARIES = [
    pytest.param(
        "torch",
        {"env.OMP_NUM_THREADS": 1, "torch.memory_format": "channels_last"},
        {"env.KMP_BLOCKTIME": 1},  # PyTorch bundles libgomp, which does not know it
        marks=torch,
    ),
    pytest.param(
        "tensorflow",
        {
            "env.TF_NUM_INTRAOP_THREADS": 1,
            "env.TF_NUM_INTEROP_THREADS": 3,
            "tensorflow.frozen": True,
        },
        {"env.TF_ENABLE_MKL_NATIVE_FORMAT": 1},
        marks=tensorflow,
    ),
]
"""The only launches of real frameworks in the fast tier."""
SETTINGS = [
    pytest.param("torch", COMPILED, {}, marks=[torch, needs_cxx]),
    pytest.param("torch", {"torch.autocast": "bf16"}, {}, marks=[torch, needs_bf16]),
    pytest.param(
        "torch",
        {
            **where(HAS_BF16, {"torch.autocast": "bf16"}),
            "torch.compile.mode": "freezing",
            "torch.compile.cpp_wrapper": True,
        },
        {},
        marks=[torch, needs_cxx],
    ),
    pytest.param("torch", {"torch.export.mode": "aot_inductor"}, {}, marks=[torch, needs_cxx]),
    pytest.param(
        "torch", {"torch.jit.mode": "freeze", "torch.flush_denormal": True}, {}, marks=torch
    ),
    pytest.param("torch", BOUND, {}, marks=torch),
    # by itself: on a busy host it leaves a single thread, with which other settings have no effect
    pytest.param(
        "torch",
        {"torch.mkldnn": False, "env.OMP_DYNAMIC": "TRUE", **MAPPED},
        {},
        marks=torch,
    ),
    pytest.param("torch", HALF, MAPPED, marks=[torch, needs_bf16]),
    pytest.param(
        "torch",
        {
            "launch.openmp": "libomp",
            **KMP,
            "env.OMP_WAIT_POLICY": "ACTIVE",
            "launch.allocator": "jemalloc",
            "env.MALLOC_CONF": JEMALLOC,
            "env.ATEN_CPU_CAPABILITY": "default",
            "env.ONEDNN_MAX_CPU_ISA": "AVX2",
        },
        {},
        marks=[torch, needs("libomp", "jemalloc")],
    ),
    pytest.param(
        "torch",
        {
            "launch.allocator": "mimalloc",
            **where(THP, {"env.MIMALLOC_LARGE_OS_PAGES": 1}),
            **where(is_here("libiomp5"), {"launch.openmp": "libiomp5", **KMP}),
        },
        {},
        marks=[torch, needs("mimalloc")],
    ),
    pytest.param(
        "torch",
        {
            "launch.allocator": "tcmalloc",
            "env.TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": 268435456,
            **where(THP, {"env.THP_MEM_ALLOC_ENABLE": 1}),
            "env.OMP_WAIT_POLICY": "ACTIVE",
        },
        {"env.GLIBC_TUNABLES": THRESHOLDS},
        marks=[torch, needs("tcmalloc")],
    ),
    *(
        pytest.param(framework, settings, dead, marks=[marks, needs(name)])
        for framework, marks in (("torch", torch), ("tensorflow", tensorflow))
        for name, settings, dead in ENGINES
    ),
    pytest.param("tensorflow", JIT_COMPILED, {}, marks=tensorflow),
    pytest.param("tensorflow", {"tensorflow.frozen": True, **JIT_COMPILED}, {}, marks=tensorflow),
    pytest.param(
        "tensorflow",
        {"tensorflow.auto_mixed_precision": "bf16"},
        {},
        marks=[tensorflow, needs_bf16],
    ),
    pytest.param(
        "tensorflow",
        {"tensorflow.keras_policy": "mixed_bfloat16", "tensorflow.frozen": True},
        {},
        marks=[tensorflow, needs_bf16],
    ),
    pytest.param(
        "tensorflow",
        {"env.TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"},
        {},
        marks=tensorflow,
    ),
    pytest.param("tensorflow", NO_ONEDNN, AMP, marks=tensorflow),
]
ACCEPTED = {
    "env.OMP_SCHEDULE",
    "env.KMP_TPAUSE",
    *(f"env.KMP_{name}_BARRIER_PATTERN" for name in BARRIERS),
    "tensorflow.remapping",
    "tensorflow.layout_optimizer",
    "onnxruntime.optimization",
    "onnxruntime.execution_mode",
    "onnxruntime.inter_threads",
    "onnxruntime.spinning",
    "onnxruntime.denormal_as_zero",
    "openvino.hint",
    "openvino.pinning",
}
"""The library's own account is all there is."""


TUNED: dict[str, Value] = {"torch.compile.mode": "freezing", "torch.compile.max_autotune": True}


def only(backend: str) -> dict[str, str]:
    """Return the environment in which one side alone takes part in the trial of products."""
    return {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": backend}


PROFILED = [
    pytest.param("torch", {}, {}, "aten::", marks=torch),
    pytest.param("torch", TUNED, only("ATEN"), "mkldnn", marks=[torch, needs_cxx]),
    pytest.param("tensorflow", {}, {}, "Conv2D", marks=tensorflow),
    pytest.param("tensorflow", JIT_COMPILED, {}, "fusion", marks=tensorflow),
]


LLVM = "libomp" if is_here("libomp") else "libiomp5"
# Without AMX or Arm's bf16 instructions oneDNN takes the mode and multiplies in fp32.
IN_BF16: dict[str, Value] = {
    "env.ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
    "torch.fp32_precision": "bf16",
}
SINGLE: dict[str, Value] = {"env.OMP_NUM_THREADS": 1, **IN_BF16}
# KMP_* on stock PyTorch first of all: it bundles libgomp, which does not know them.
UNREAD: dict[str, Value] = {
    "env.KMP_AFFINITY": "granularity=fine,compact,1,0",
    "env.KMP_TPAUSE": 0,
    "env.KMP_BLOCKTIME": 1,
    "env.MALLOC_CONF": JEMALLOC,
    "env.TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": 1 << 28,
    "env.MIMALLOC_LARGE_OS_PAGES": 1,
    "env.OMP_PLACES": "{-7}",
    "env.OMP_WAIT_POLICY": "PASSIVE",  # with one thread, which waits for no other
}
UNKNOWN_TO_LLVM: dict[str, Value] = {
    "env.KMP_AFFINITY": "granularity=fine,compact,1,0,no_such_word",
    "env.GOMP_CPU_AFFINITY": "1,0,1",
}
DEAD = [
    *(param for param in SETTINGS if isinstance(param.values[2], dict) and param.values[2]),
    pytest.param("torch", SINGLE, UNREAD, marks=torch),
    pytest.param(
        "torch",
        {"launch.openmp": LLVM},
        UNKNOWN_TO_LLVM,
        marks=[torch, needs(LLVM)],
    ),
]


OVERRIDDEN: dict[str, Value] = {"torch.compile.mode": "freezing", "env.OMP_NUM_THREADS": 2}
OVERRIDING = {"TORCH_COMPILE_DISABLE": "1", "MKL_NUM_THREADS": "1"}
