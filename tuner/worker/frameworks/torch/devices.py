"""The devices of PyTorch: where tensors are, when a call has ended, and what shows its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tuner.errors import UsageError
from tuner.record.launch import DeviceMemory
from tuner.record.workload import CPU, CUDA
from tuner.worker.frameworks.torch.account import Account
from tuner.worker.frameworks.torch.kernels import Kernels
from tuner.worker.frameworks.torch.onednn import Primitives


class Device(Protocol):
    """A device, by PyTorch's name for its kind."""

    name: str

    def check(self, torch: Any) -> None:
        """Raise UsageError where this build of PyTorch cannot compute on it."""

    def placed(self, thing: Any) -> Any:
        """Return a tensor or a module on the device; a module is moved in place."""

    def ended(self, torch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return a call that ends when its outputs are ready."""

    def exact(self, torch: Any) -> AbstractContextManager[None] | None:
        """Return a context in which products are rounded to fp32; None if they always are."""

    def account(
        self, torch: Any, call: Callable[[], Any] | None, *, traces: bool = True
    ) -> Account:
        """Make a call and return the report of the device's libraries.

        traces: whether the call may be traced if that takes seconds.
        """

    def memory(self, torch: Any) -> DeviceMemory | None:
        """Return this process's memory on the device; None if that is the host's memory."""


class Cpu:
    """The CPU: its calls return when their outputs are ready."""

    name = CPU

    def check(self, torch: Any) -> None:
        """Every build computes on it."""

    def placed(self, thing: Any) -> Any:
        """Return it as it is: it is built there."""
        return thing

    def ended(self, torch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return the call as it is."""
        return call

    def exact(self, torch: Any) -> None:
        """The default is exact."""

    def account(
        self, torch: Any, call: Callable[[], Any] | None, *, traces: bool = True
    ) -> Account:
        """Make oneDNN report a call."""
        return Primitives(torch, call)

    def memory(self, torch: Any) -> DeviceMemory | None:
        """All of it is the host's."""
        return None


class Cuda:
    """The card that CUDA numbers first; its calls only queue kernels."""

    name = CUDA

    def check(self, torch: Any) -> None:
        """Raise UsageError if the build has no CUDA, or if it cannot be used."""
        if torch.version.cuda is None:
            raise UsageError(
                f"torch {torch.__version__} is built without CUDA: install PyTorch's CUDA build "
                "(pip install torch, on most machines), or tune the CPU with another --hw"
            )
        if not torch.cuda.is_available():
            raise UsageError(
                f"torch {torch.__version__} (CUDA {torch.version.cuda}) cannot use the GPU here: "
                "see what this prints: python -c 'import torch; torch.cuda.init()'; most often the "
                "driver is older than CUDA asks for"
            )

    def placed(self, thing: Any) -> Any:
        """Copy it to the card."""
        return thing.to(CUDA)

    def ended(self, torch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
        """Wait for the card after each call."""
        synchronize = torch.cuda.synchronize

        def ended() -> Any:
            result = call()
            synchronize()
            return result

        return ended

    @contextlib.contextmanager
    def exact(self, torch: Any) -> Iterator[None]:
        """Forbid TF32: cuDNN convolves in it by default (torch.backends.cudnn, PyTorch 2.9+)."""
        parts = (torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.cuda.matmul)
        before = [part.fp32_precision for part in parts]
        for part in parts:
            part.fp32_precision = "ieee"
        try:
            yield
        finally:
            for part, precision in zip(parts, before, strict=True):
                part.fp32_precision = precision

    def account(
        self, torch: Any, call: Callable[[], Any] | None, *, traces: bool = True
    ) -> Account:
        """Trace a call's kernels."""
        return Kernels.of(torch, call if traces else None)

    def memory(self, torch: Any) -> DeviceMemory | None:
        """Return what PyTorch's allocator took; the context's own is not in it."""
        return DeviceMemory(
            allocated_peak_bytes=torch.cuda.max_memory_allocated(),
            reserved_peak_bytes=torch.cuda.max_memory_reserved(),
            reserved_bytes=torch.cuda.memory_reserved(),
            card_bytes=torch.cuda.mem_get_info()[1],
        )


DEVICES: dict[str, Callable[[], Device]] = {CPU: Cpu, CUDA: Cuda}
