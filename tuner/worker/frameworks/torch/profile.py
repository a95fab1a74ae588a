"""Where the time of PyTorch's calls goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from tuner.record.launch import Operator

_HASH = re.compile(r"\s*\b[0-9a-z]{32,}\b")
"""In the name of a compiled graph: that of its code, another one with every version."""


class TorchProfile:
    """PyTorch's own profiler."""

    title = "torch.profiler, on the calling thread"

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Return what each operator took on the calling thread: threads inside it are not seen."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]) as seen:
            calls()
        microseconds: Counter[str] = Counter()
        n_calls: Counter[str] = Counter()
        for event in seen.key_averages():
            name = _HASH.sub("", event.key)
            microseconds[name] += event.self_cpu_time_total
            n_calls[name] += event.count
        return [Operator(name, microseconds[name] / 1e6, n_calls[name]) for name in microseconds]
