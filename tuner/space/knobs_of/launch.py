"""How processes are started and placed, and with which libraries."""

from __future__ import annotations

from tuner.engines import FRAMEWORK
from tuner.space.knob import (
    AT_LEAST_1,
    Applies,
    Bound,
    Domain,
    Knob,
    one_of,
)

BATCH = "workload.batch"
ALLOCATOR = "launch.allocator"
OPENMP = "launch.openmp"
CPUS = "launch.cpus"
NUMA_NODE = "launch.numa_node"
INSTANCES = "launch.instances"
CORES_PER_INSTANCE = "launch.cores_per_instance"
PLACEMENT = "launch.placement"
MEMORY_POLICY = "launch.memory_policy"
MAX_WAIT = "server.max_wait_ms"

PRELOADED: dict[str, tuple[str, ...]] = {
    ALLOCATOR: ("tcmalloc", "jemalloc", "mimalloc"),
    OPENMP: ("libomp", "libiomp5"),
}
"""The libraries that a launch can preload, by knob (found by host/libraries.py)."""
KNOBS = (
    Knob(
        BATCH,
        Applies.CALL,
        "batch size",
        how="call the model with batches of {value}",
        domain=AT_LEAST_1,
    ),
    Knob(
        MAX_WAIT,
        Applies.PROCESS,
        "longest that a request waits for others, while the batch is not full",
        how="answer at the latest when the oldest request has waited {value} ms for others",
        domain=Domain(at_least=0, at_most=60_000),
    ),
    Knob(
        ALLOCATOR,
        Applies.LAUNCH,
        "memory allocator, by LD_PRELOAD",
        domain=one_of("glibc", *PRELOADED[ALLOCATOR]),
    ),
    Knob(
        OPENMP,
        Applies.LAUNCH,
        "OpenMP runtime, by LD_PRELOAD",
        frameworks=("torch",),
        domain=one_of("libgomp", *PRELOADED[OPENMP]),
        engines=(FRAMEWORK,),
    ),
    Knob(
        CPUS,
        Applies.LAUNCH,
        "CPUs: all allowed ones, or one of each physical core",
        domain=one_of("all", "one_per_core"),
    ),
    Knob(
        NUMA_NODE,
        Applies.LAUNCH,
        "one NUMA node's CPUs and memory, or none",
        domain=Domain(at_least=0, words=("none",)),
    ),
    Knob(
        INSTANCES,
        Applies.LAUNCH,
        "processes that share the work, each with cores of its own",
        domain=Domain(at_least=1, bound=Bound("host.usable_cores", "core")),
    ),
    Knob(
        CORES_PER_INSTANCE,
        Applies.LAUNCH,
        "physical cores of each instance",
        domain=Domain(at_least=1, words=("share",)),
    ),
    Knob(
        PLACEMENT,
        Applies.LAUNCH,
        "how instances are laid over nodes and last-level caches",
        domain=one_of("compact", "spread", "per_node", "per_llc"),
    ),
    Knob(
        MEMORY_POLICY,
        Applies.LAUNCH,
        "memory near its CPU, bound there, or interleaved",
        domain=one_of("none", "local", "bind", "interleave"),
    ),
)
