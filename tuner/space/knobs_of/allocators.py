"""What memory allocators read."""

from __future__ import annotations

from tuner.space.knob import (
    BYTES,
    SWITCH,
    list_of,
    one_of,
    variable,
    written,
)

KNOBS = (
    variable(
        "MALLOC_CONF",
        "jemalloc's options",
        domain=written(list_of(r"\w+:[^,:]+"), "name:value,name:value"),
    ),
    variable("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "tcmalloc's thread caches", domain=BYTES),
    variable("MIMALLOC_LARGE_OS_PAGES", "huge pages for mimalloc", domain=SWITCH),
    variable(
        "GLIBC_TUNABLES",
        "glibc malloc's thresholds and huge pages",
        domain=written(list_of(r"glibc(\.\w+)+=[^:=]+", ":"), "glibc.malloc.name=value"),
    ),
    variable(
        "THP_MEM_ALLOC_ENABLE",
        "huge pages for large tensors",
        ("torch",),
        marker="THP_MEM_ALLOC_ENABLE",
        domain=one_of("0", "1"),
    ),
)
