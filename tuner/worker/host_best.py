"""The best that this host does: the fastest of several operators, by a framework's own kernels.

No theoretical peak: clocks, quotas and neighbours decide what can be reached. One square product is
beaten by a convolution; so several are tried, and the fastest repetition counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tuner.host.limits import read_memory
from tuner.record.protocol import MeasureBest
from tuner.record.why import HostBest
from tuner.worker.frameworks import Microbenchmark, framework

_REPETITIONS = 7
"""Timed calls of an operator."""
_MOST_S = 0.7
"""Seconds of one operator's repetitions, at most."""
_MOST_OF_ALL_S = 5.0
"""Seconds after which no further operator is tried: without instructions for bf16, its products
take hundreds of times as long as in fp32."""
_LEAST_STREAMED_BYTES = 1 << 28
_BEYOND_CACHES = 2
"""Of an array, over all last-level caches together: what is read again must not lie in them."""
_MOST_OF_MEMORY = 1 / 16
"""Of the memory that may be used, an array; there are three of them."""


def measure_best(order: MeasureBest, tell: Callable[[str], None]) -> HostBest:
    """Import the framework with nothing set, and run its operators on all cores."""
    tell("importing")
    adapter = framework(order.framework, device=order.device)
    adapter.build.start({})
    clock = adapter.work.clock
    tell("measuring what this host can do")
    flops: dict[str, float] = {}
    fastest: dict[str, str] = {}
    with adapter.work.running():
        for dtype in order.dtypes:
            flops[dtype], fastest[dtype] = _best(adapter.microbenchmarks.products(dtype), clock)
        try:
            streams = adapter.microbenchmarks.streams(_streamed_bytes())
            bytes_per_s, stream = _best(streams, clock)
        except adapter.build.out_of_memory_errors():
            bytes_per_s, stream = 0.0, ""
    return HostBest(flops, fastest, bytes_per_s, stream)


def _streamed_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of an array that the caches of this host do not hold."""
    caches: dict[str, tuple[int, int]] = {}
    for folder in root.glob("sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size, shared = (
                (folder / name).read_text().strip() for name in ("level", "size", "shared_cpu_list")
            )
            found = int(level), int(size.removesuffix("K")) << 10
        except (OSError, ValueError):  # a hypervisor may hide some of it
            continue
        caches[shared] = max(caches.get(shared, found), found)
    last = max((level for level, _ in caches.values()), default=0)
    n_bytes = _BEYOND_CACHES * sum(size for level, size in caches.values() if level == last)
    return min(max(n_bytes, _LEAST_STREAMED_BYTES), int(_MOST_OF_MEMORY * read_memory()))


def _best(candidates: Iterable[Microbenchmark], clock: Callable[[], float]) -> tuple[float, str]:
    """Return the highest rate of all, and the operator that reached it."""
    began = clock()
    found: list[tuple[float, str]] = []
    for each in candidates:
        found.append((each.work / _shortest_s(each.call, clock), each.name))
        if clock() - began > _MOST_OF_ALL_S:
            break
    return max(found)


def _shortest_s(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of the shortest of several calls, after one that is not timed."""
    call()
    began = clock()
    times: list[float] = []
    while len(times) < _REPETITIONS and (not times or clock() - began < _MOST_S):
        begun = clock()
        call()
        times.append(clock() - begun)
    return min(times)
