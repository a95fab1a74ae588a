"""Where the time of PyTorch's calls goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from tuner.record.launch import Operator
from tuner.record.workload import CUDA
from tuner.worker.frameworks.torch.devices import Device

_HASH = re.compile(r"\s*\b[0-9a-z]{32,}\b")
"""In the name of a compiled graph: that of its code, another one with every version."""

_ARGUMENTS = re.compile(r"^void |[<(].*")
"""The parameters and arguments in the name of a kernel's template."""
_UNNAMED = "(anonymous namespace)::"
_LONGEST = 80


class TorchProfile:
    """PyTorch's own profiler."""

    def __init__(self, device: Device) -> None:
        self._is_on_card = device.name == CUDA
        on = "kernels on the GPU" if self._is_on_card else "on the calling thread"
        self.title = f"torch.profiler, {on}"

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Return the time of each operator on the calling thread: threads inside it are not seen.

        On a card, the time of each kernel there.
        """
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if self._is_on_card:
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities) as seen:
            calls()
        microseconds: Counter[str] = Counter()
        n_calls: Counter[str] = Counter()
        for event in seen.key_averages():
            is_kernel = str(event.device_type).endswith("CUDA") and not event.is_user_annotation
            if self._is_on_card and not is_kernel:
                continue  # the host only queues
            name = _HASH.sub("", event.key)
            if self._is_on_card:
                name = _ARGUMENTS.sub("", name.replace(_UNNAMED, ""))[:_LONGEST]
                microseconds[name] += event.self_device_time_total
            else:
                microseconds[name] += event.self_cpu_time_total
            n_calls[name] += event.count
        return [Operator(name, microseconds[name] / 1e6, n_calls[name]) for name in microseconds]
