"""Calls of a placed PyTorch model, without gradients: inference_mode is part of the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.worker.frameworks import Array, OnTheClock
from tuner.worker.frameworks.outputs import tensors_in
from tuner.worker.frameworks.torch.build import TorchBuild


def fault_of(tensor: Any) -> str:
    """Say what kind of tensor cannot be compared; empty for one that can."""
    import torch

    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_complex() or tensor.is_quantized:
        return f"a tensor of {str(tensor.dtype).removeprefix('torch.')}"
    return ""


class TorchInference(OnTheClock):
    """What is timed of a model that serves."""

    def __init__(self, build: TorchBuild) -> None:
        self._build = build
        self.last_call: Callable[[], Any] | None = None
        """What `program` bound last: the call that evidence is taken from."""

    def given(self, tensor: Any) -> Any:
        """Return an input in the precision and layout that the placed model takes."""
        torch = self._build.torch
        tensor = self._build.device.placed(tensor)
        if self._build.dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self._build.dtype)
        if tensor.ndim == 4 and self._build.is_channels_last:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def function(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the model as a function of tensors of these shapes, in the form that is set."""
        return self._build.form.function(tensors)

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind tensors that lie on the device; a call returns when its outputs are ready there."""
        tensors = tuple(self.given(self._build.torch.from_numpy(array)) for array in arrays)
        function = self.function(tensors)
        call = self._build.device.ended(self._build.torch, lambda: function(*tensors))
        self.last_call = call
        return call

    def outputs(self, result: Any) -> list[Array]:
        """Flatten tensors, tuples, lists and mappings in order, without None."""
        # cloned, as inference tensors share memory with the next call under a compiler
        return [
            self._widened(tensor.detach()).contiguous().clone().cpu().numpy()
            for tensor in tensors_in(result, self._build.torch.is_tensor, fault_of)
        ]

    def _widened(self, tensor: Any) -> Any:
        """Return floats that NumPy has no type for, or a coarser one, as float32."""
        is_low = tensor.is_floating_point() and tensor.dtype is not self._build.torch.float64
        return tensor.float() if is_low else tensor

    @contextmanager
    def running(self) -> Iterator[None]:
        """No gradients; autocast where it is set."""
        torch, dtype = self._build.torch, self._build.autocast
        with (
            torch.inference_mode(),
            torch.autocast(
                self._build.device.name,
                dtype=dtype or torch.bfloat16,
                enabled=dtype is not None,
            ),
        ):
            yield
