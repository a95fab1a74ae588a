"""Environment variables by name: which libraries read them, and which nothing reads.

The names of closed families are those in the strings of the libraries themselves: libiomp5 of
intel-openmp 2025, libgomp of GCC 13, and the MKL inside PyTorch 2.13's libtorch_cpu.so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from tuner.host.environment import is_tuning_variable

_KMP = """
ABORT_DELAY ADAPTIVE_LOCK_PROPS AFFINITY ALIGN_ALLOC ALL_THREADPRIVATE ALL_THREADS ATOMIC_MODE
BLOCKTIME CONSISTENCY_CHECK CPUINFO_FILE DETERMINISTIC_REDUCTION DEVICE_THREAD_LIMIT
DISP_HAND_THREAD DISP_NUM_BUFFERS DUPLICATE_LIB_OK DYNAMIC_MODE ENABLE_TASK_THROTTLING
FORCE_MONOTONIC_DYNAMIC_SCHEDULE FORCE_REDUCTION FOREIGN_THREADS_THREADPRIVATE FORKJOIN_BARRIER
FORKJOIN_BARRIER_PATTERN FORKJOIN_FRAMES FORKJOIN_FRAMES_MODE GTID_MODE HANDLE_SIGNALS
HIDDEN_HELPER_AFFINITY HOT_TEAMS_MAX_LEVEL HOT_TEAMS_MODE HW_SUBSET INHERIT_FP_CONTROL INIT_AT_FORK
ITT_PREPARE_DELAY LIBRARY LOAD_BALANCE_INTERVAL LOCK_KIND MALLOC_POOL_INCR MONITOR_STACKSIZE
MWAIT_HINTS NESTING_MODE NUM_LOCKS_IN_BLOCK PLACE_THREADS PLAIN_BARRIER PLAIN_BARRIER_PATTERN
REDUCTION_BARRIER REDUCTION_BARRIER_PATTERN SCHEDULE SETTINGS SPIN_BACKOFF_PARAMS STACKOFFSET
STACKPAD STACKSIZE STORAGE_MAP TASKING TASKLOOP_MIN_TASKS TASK_STEALING_CONSTRAINT TEAMS_PROC_BIND
TEAMS_THREAD_LIMIT TOPOLOGY_METHOD TPAUSE USER_LEVEL_MWAIT USE_YIELD VERSION WARNINGS
"""
_OMP = """
AFFINITY_FORMAT ALLOCATOR AVAILABLE_DEVICES CANCELLATION DEBUG DEFAULT_DEVICE DISPLAY_AFFINITY
DISPLAY_ENV DYNAMIC MAX_ACTIVE_LEVELS MAX_TASK_PRIORITY NESTED NUM_TEAMS NUM_THREADS PLACES
PROC_BIND SCHEDULE STACKSIZE TARGET_OFFLOAD TEAMS_THREAD_LIMIT THREADS_RESERVE THREAD_LIMIT TOOL
TOOL_LIBRARIES TOOL_VERBOSE_INIT WAIT_POLICY
"""
_GOMP = "CPU_AFFINITY DEBUG OPENACC_DIM SPINCOUNT STACKSIZE"
_MKL = """
CBWR DISABLE_FAST_MM DOMAIN_NUM_THREADS DYNAMIC ENABLE_INSTRUCTIONS FAST_MEMORY_LIMIT MPI_PPN
NUM_STRIPES NUM_THREADS VERBOSE VERBOSE_OUTPUT_FILE
"""
_CLOSED = {"KMP": _KMP, "OMP": _OMP, "GOMP": _GOMP, "MKL": _MKL}
READ = frozenset(
    {f"{family}_{name}" for family, names in _CLOSED.items() for name in names.split()}
    | {
        "MIMALLOC_ALLOW_LARGE_OS_PAGES",
        "TF_CPU_ENABLE_ONEDNN_OPTS",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "BLIS_NUM_THREADS",
    }
)
"""Variables that libraries read, however near their names are to others'."""
_LONG = 10
"""Characters of a name in which two slips may be."""


class Unread(msgspec.Struct, frozen=True):
    """A variable that nothing reads, though scripts copy it."""

    pattern: str
    """Of names, as a regular expression."""
    why: str
    since: str
    """The version from which on; empty: from the first."""
    source: str
    value: str = ".*"
    """A regular expression: another value has an effect."""

    @property
    def reason(self) -> str:
        """Why, and since when."""
        return f"{self.why} (since {self.since})" if self.since else self.why


UNREAD = (
    Unread(
        "MKL_DEBUG_CPU_TYPE",
        "MKL does not read it any more",
        "Intel MKL 2020 Update 1",
        "https://danieldk.eu/Posts/2020-08-31-MKL-Zen.html",
    ),
    Unread(
        "MKLDNN_.*",
        "the library is called oneDNN now and reads ONEDNN_* and DNNL_*",
        "oneDNN 3.0, renamed in 1.1",
        "https://oneapi-src.github.io/oneDNN/v2.4/dev_guide_transition_to_dnnl.html",
    ),
    Unread(
        "VECLIB_.*",
        "vecLib is a library of macOS",
        "",
        "https://developer.apple.com/reference/accelerate/1660528-veclib",
    ),
    Unread(
        "TF_XLA_FLAGS",
        "it only lets XLA cluster on CPUs: --tf_xla_auto_jit=2 beside it makes clusters",
        "",
        "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/jit/flags.h",
        value=r"\s*--tf_xla_cpu_global_jit(=\w+)?\s*",
    ),
)
ON_BY_DEFAULT = {
    # https://github.com/tensorflow/tensorflow/releases/tag/v2.9.0
    "env.TF_ENABLE_ONEDNN_OPTS": "oneDNN is on without it since TensorFlow 2.9 (x86-64 Linux)",
}
"""Settings that guides for older versions name, and since when they are needless."""


def unread(name: str, value: str) -> Unread | None:
    """Return the entry of a variable that nothing reads with this value; None of any other."""
    return next(
        (
            each
            for each in UNREAD
            if re.fullmatch(each.pattern, name) and re.fullmatch(each.value, value, re.DOTALL)
        ),
        None,
    )


def misspelt(name: str, others: Iterable[str] = ()) -> str | None:
    """Return the variable of which a name seems to be a typo, or None.

    One typo, or two in a long name of a family whose names are all known. A name of another family
    never counts, however similar: MKL_DYNAMIC is not OMP_DYNAMIC.

    others: further names that are read.
    """
    known = {*READ, *others}
    if name in known or unread(name, ""):
        return None
    family = name.partition("_")[0]
    if is_tuning_variable(name):
        known = {each for each in known if each.partition("_")[0] == family}
    most = 2 if family in _CLOSED and len(name) >= _LONG else 1
    near = [(distance(name, each), each) for each in sorted(known) if len(each) >= _LONG - 1]
    best = min(near, default=(most + 1, ""))
    return best[1] if best[0] <= most else None


def distance(one: str, other: str) -> int:
    """Count insertions, deletions, replacements and swaps of neighbours between two words.

    The optimal string alignment distance: at most one edit of each character.
    """
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
