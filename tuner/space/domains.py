"""The values that each knob can take on some host, as data.

A space says which values are worth searching here; a domain says what is a value at all. Where a
library accepts more than its manual says, the domain is the wider one: it is there to refuse what
could mean nothing. A variable that has none may be set to anything.
"""

from __future__ import annotations

import re

import msgspec

from tuner.record.configuration import Value
from tuner.space.catalogue import (
    ALLOCATOR,
    BATCH,
    CORES_PER_INSTANCE,
    CPUS,
    INSTANCES,
    MEMORY_POLICY,
    NUMA_NODE,
    OPENMP,
    PLACEMENT,
    PRELOADED,
)

_LARGEST = 2**31 - 1
"""Of a C int: libraries read counts into one."""


class Domain(msgspec.Struct, frozen=True):
    """What a knob may be set to: whatever one of the fields allows."""

    is_boolean: bool = False
    at_least: int | None = None
    """Whole numbers from here on."""
    at_most: int = _LARGEST
    words: tuple[str, ...] = ()
    """Values by name."""
    grammar: str = ""
    """A regular expression for a whole text."""
    meaning: str = ""
    """The grammar in words."""

    def told(self) -> str:
        """Say what is allowed, in words."""
        is_whole = self.at_least is not None
        parts = [
            "true or false" if self.is_boolean else "",
            f"a whole number from {self.at_least} to {self.at_most}" if is_whole else "",
            ", ".join(self.words),
            self.meaning,
        ]
        return "; ".join(filter(None, parts))

    def has(self, value: Value) -> bool:
        """Tell whether a value of this very type is in the domain."""
        if isinstance(value, bool):
            return self.is_boolean
        if isinstance(value, int):
            return self.at_least is not None and self.at_least <= value <= self.at_most
        return isinstance(value, str) and value in self.words

    def has_written(self, text: str) -> bool:
        """Tell whether a variable may hold this text.

        Words are compared without regard to case, as the libraries do.
        """
        if text.casefold() in [word.casefold() for word in self.words]:
            return True
        if self.grammar and re.fullmatch(self.grammar, text, re.IGNORECASE | re.ASCII):
            return True
        return re.fullmatch(r"[0-9]{1,19}", text) is not None and self.has(int(text))


def _one_of(*words: str) -> Domain:
    return Domain(words=words)


def _written(grammar: str, meaning: str) -> Domain:
    return Domain(grammar=grammar, meaning=meaning)


def _list_of(part: str, separator: str = ",") -> str:
    return rf"{part}( *{separator} *{part})*"


_BOOLEAN = Domain(is_boolean=True)
_AT_LEAST_0, _AT_LEAST_1 = Domain(at_least=0), Domain(at_least=1)
_BYTES = Domain(at_least=0, at_most=2**63 - 1)
_SWITCH = _one_of("true", "false", "1", "0", "yes", "no", "on", "off")
_BARRIER = _written(
    _list_of("(linear|tree|hyper|hierarchical|dist)"),
    "one or two of linear, tree, hyper, hierarchical and dist, with a comma between",
)
_PRECISION = _one_of("STRICT", "BF16", "F16", "TF32", "ANY")

_LAUNCH = {
    BATCH: _AT_LEAST_1,
    ALLOCATOR: _one_of("glibc", *PRELOADED[ALLOCATOR]),
    OPENMP: _one_of("libgomp", *PRELOADED[OPENMP]),
    CPUS: _one_of("all", "one_per_core"),
    NUMA_NODE: Domain(at_least=0, words=("none",)),
    INSTANCES: _AT_LEAST_1,
    CORES_PER_INSTANCE: Domain(at_least=1, words=("share",)),
    PLACEMENT: _one_of("compact", "spread", "per_node", "per_llc"),
    MEMORY_POLICY: _one_of("none", "local", "bind", "interleave"),
}
_VARIABLES = {
    "MALLOC_CONF": _written(_list_of(r"\w+:[^,:]+"), "name:value,name:value"),
    "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": _BYTES,
    "MIMALLOC_LARGE_OS_PAGES": _SWITCH,
    "GLIBC_TUNABLES": _written(_list_of(r"glibc(\.\w+)+=[^:=]+", ":"), "glibc.malloc.name=value"),
    "THP_MEM_ALLOC_ENABLE": _one_of("0", "1"),
    "OMP_NUM_THREADS": Domain(
        at_least=1,
        grammar=_list_of(r"0*[1-9]\d{0,8}"),
        meaning="a list of these, one for each level of nesting",
    ),
    "MKL_NUM_THREADS": _AT_LEAST_1,
    "OMP_WAIT_POLICY": _one_of("ACTIVE", "PASSIVE"),
    "OMP_PROC_BIND": _written(
        f"true|false|{_list_of('(master|primary|close|spread)')}",
        "TRUE, FALSE, or a list of MASTER, PRIMARY, CLOSE and SPREAD",
    ),
    "OMP_PLACES": _written(
        r"(threads|cores|sockets|ll_caches|numa_domains)( *\( *\d+ *\))?|[-{}!0-9,: ]+",
        "threads, cores, sockets, ll_caches, numa_domains, or a list such as {0:4},{4:4}",
    ),
    "OMP_SCHEDULE": _written(
        r"((non)?monotonic *: *)?(static|dynamic|guided|auto|trapezoidal|static_steal)( *, *\d+)?",
        "STATIC, DYNAMIC, GUIDED or AUTO, and a chunk after a comma",
    ),
    "OMP_DYNAMIC": _SWITCH,
    "OMP_THREAD_LIMIT": _AT_LEAST_1,
    "GOMP_CPU_AFFINITY": _written(
        _list_of(r"\d+(-\d+(:\d+)?)?", "[ ,]"), "a list of CPUs such as 0 3 4-15:2"
    ),
    "KMP_AFFINITY": _written(
        _list_of(
            r"(granularity=\w+|proclist=\[[-\d,{}: ]+\]|(no)?(respect|verbose|warnings|reset)"
            r"|balanced|compact|disabled|explicit|none|scatter|physical|logical|\d+)"
        ),
        "such as granularity=fine,compact,1,0",
    ),
    "KMP_BLOCKTIME": Domain(
        at_least=0,
        grammar=r"\d{1,9} *(us|ms|s)|infinit(e|y)",
        meaning="a number with the unit us, ms or s; infinite",
    ),
    "KMP_TPAUSE": _AT_LEAST_0,
    "KMP_FORKJOIN_BARRIER_PATTERN": _BARRIER,
    "KMP_PLAIN_BARRIER_PATTERN": _BARRIER,
    "KMP_REDUCTION_BARRIER_PATTERN": _BARRIER,
    "ONEDNN_MAX_CPU_ISA": _written(
        r"all|default|sse41|avx\w*|asimd|sve_\d+", "ALL, or a name such as AVX2"
    ),
    "ONEDNN_DEFAULT_FPMATH_MODE": _PRECISION,
    "DNNL_DEFAULT_FPMATH_MODE": _PRECISION,
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _AT_LEAST_0,
    "ATEN_CPU_CAPABILITY": _written(
        r"default|avx2|avx512\w*|amx\w*|vsx|zvector|sve\d*", "default, or a name such as avx2"
    ),
    "LRU_CACHE_CAPACITY": _AT_LEAST_0,
    "TORCH_MKLDNN_MATMUL_MIN_DIM": _AT_LEAST_0,
    "TF_NUM_INTRAOP_THREADS": _AT_LEAST_0,
    "TF_NUM_INTEROP_THREADS": _AT_LEAST_0,
    "TF_ENABLE_ONEDNN_OPTS": _SWITCH,
    "TF_ENABLE_MKL_NATIVE_FORMAT": _SWITCH,
    "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": _SWITCH,
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": _SWITCH,
    "TF_MKL_ALLOC_MAX_BYTES": _BYTES,
    "TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE": _SWITCH,
    "TF_XLA_FLAGS": _written(_list_of(r"--\w+(=\S+)?", " "), "flags such as --tf_xla_auto_jit=2"),
}
_FRAMEWORKS = {
    "torch.interop_threads": _AT_LEAST_1,
    "torch.flush_denormal": _BOOLEAN,
    "torch.mkldnn": _BOOLEAN,
    "torch.weights": _one_of("private", "mapped"),
    "torch.memory_format": _one_of("contiguous", "channels_last"),
    "torch.compile.mode": _one_of("off", "default", "freezing"),
    "torch.compile.max_autotune": _BOOLEAN,
    "torch.compile.cpp_wrapper": _BOOLEAN,
    "torch.jit.mode": _one_of("off", "freeze", "optimize"),
    "torch.export.mode": _one_of("off", "aot_inductor"),
    "torch.autocast": _one_of("off", "bf16"),
    "torch.dtype": _one_of("fp32", "bf16"),
    "torch.fp32_precision": _one_of("none", "ieee", "tf32", "bf16"),
    "tensorflow.frozen": _BOOLEAN,
    "tensorflow.jit_compile": _BOOLEAN,
    "tensorflow.data_format": _one_of("NHWC", "NCHW"),
    "tensorflow.layout_optimizer": _BOOLEAN,
    "tensorflow.remapping": _BOOLEAN,
    "tensorflow.auto_mixed_precision": _one_of("off", "bf16"),
    "tensorflow.keras_policy": _one_of("float32", "mixed_bfloat16"),
    "fake.layout": _one_of("plain", "blocked", "packed"),
    "fake.compile": _one_of("off", "fast", "frozen"),
    "fake.streams": _AT_LEAST_1,
    "fake.precision": _one_of("fp32", "bf16"),
}
DOMAINS: dict[str, Domain] = {
    **_LAUNCH,
    **{f"env.{name}": domain for name, domain in _VARIABLES.items()},
    **_FRAMEWORKS,
}
"""By the id of the knob; every knob of the catalogue has one."""
