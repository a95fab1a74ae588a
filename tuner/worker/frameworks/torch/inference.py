"""Calls of a placed PyTorch model, without gradients: inference_mode is part of the default."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.record.launch import ReadBack
from tuner.worker.frameworks import Array, OnTheClock
from tuner.worker.frameworks.outputs import tensors_in
from tuner.worker.frameworks.prepared import Arguments, Caller, Unfit, seen_as
from tuner.worker.frameworks.torch.build import TorchBuild
from tuner.worker.frameworks.torch.flattened import CONSTANTS
from tuner.worker.frameworks.torch.forms import GRAPHS, Form


class _Weights:
    """Tells by storages and version counters whether a module's weights were changed.

    Loads, optimizers, moves and operations in place are all seen, whichever module they go through.
    It takes a fraction of a microsecond for each tensor and module, so that every call can ask.
    """

    def __init__(self, model: Any) -> None:
        modules = list(model.modules())
        self.model = model
        self._tensors = [d for m in modules for d in (m._parameters, m._buffers)]
        self._children = [m._modules for m in modules]

    def seen(self) -> Hashable:
        """Return what differs after a change."""
        tensors = [t for each in self._tensors for t in each.values() if t is not None]
        try:
            versions = [(t.data_ptr(), t._version) for t in tensors]
        except RuntimeError:  # made in inference mode, or without a storage of its own
            versions = [_version_of(t) for t in tensors]
        return (*versions, *(id(m) for each in self._children for m in each.values()))


def _version_of(tensor: Any) -> tuple[int, int]:
    try:
        place = tensor.data_ptr()
    except RuntimeError:
        place = id(tensor)
    return place, 0 if tensor.is_inference() else tensor._version


def fault_of(tensor: Any) -> str:
    """Say what kind of tensor cannot be compared; empty for one that can."""
    import torch

    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_complex() or tensor.is_quantized:
        return f"a tensor of {str(tensor.dtype).removeprefix('torch.')}"
    return ""


class TorchInference(OnTheClock):
    """The timed work of a model that serves."""

    n_passes = 0
    """Backward passes of the last step of training."""

    def __init__(self, build: TorchBuild) -> None:
        self._build = build
        self._weights: _Weights | None = None
        self._built_by: Form | None = None
        self._built: dict[Hashable, Callable[..., Any]] = {}
        """Functions of the last form, by shapes, types and layouts of their tensors."""
        self.last_call: Callable[[], Any] | None = None
        """What `program` bound last: the call that evidence is taken from."""

    def given(self, tensor: Any) -> Any:
        """Return an input in the precision and layout that the placed model takes.

        Code that was compiled ahead of time reads any tensor as if it lay like the first one: what
        is not contiguous is copied for all built forms.
        """
        torch = self._build.torch
        tensor = self._build.device.placed(tensor)
        if self._build.dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self._build.dtype)
        if tensor.ndim == 4 and self._build.is_channels_last:
            return tensor.contiguous(memory_format=torch.channels_last)
        is_dense = tensor.layout is torch.strided and not tensor.is_quantized
        return tensor.contiguous() if self._build.form.is_built and is_dense else tensor

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the model as a function of such arguments, in the form that is set."""
        function = self._build.form.function(args, kwargs)
        if not self._build.settings.get(GRAPHS):
            return function
        torch = self._build.torch

        def kept(*args: Any, **kwargs: Any) -> Any:  # the next call overwrites a graph's outputs
            result = function(*args, **kwargs)
            return torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, result)

        return kept

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return a call's arguments in the placed model's precision and layout, and their kind.

        If the model runs as it is, eager, all calls are of one kind.
        """
        torch, model = self._build.torch, self._build.model
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return Arguments(args, kwargs, unfit=Unfit.IN_A_GRAPH)
        structure: Hashable = len(args)
        if not kwargs and all(map(torch.is_tensor, args)):
            leaves = args = tuple(map(self.given, args))
        else:
            trees = torch.utils._pytree
            taken, structure = trees.tree_flatten((args, kwargs))
            leaves = tuple(self.given(x) if torch.is_tensor(x) else x for x in taken)
            if any(a is not b for a, b in zip(leaves, taken, strict=True)):
                args, kwargs = trees.tree_unflatten(leaves, structure)
        if model.training:
            return Arguments(args, kwargs, unfit=Unfit.TRAINING)
        if not self._build.form.is_built:
            return Arguments(args, kwargs)
        if not any(map(torch.is_tensor, leaves)):
            return Arguments(args, kwargs, unfit=Unfit.ARGUMENT, detail="inputs without tensors")
        constants = (*CONSTANTS, torch.dtype, torch.device)
        for leaf in leaves:
            if not (torch.is_tensor(leaf) or isinstance(leaf, constants)):
                detail = f"an argument that is a {type(leaf).__name__}"
                return Arguments(args, kwargs, unfit=Unfit.ARGUMENT, detail=detail)
        kinds = tuple(
            (x.shape, x.dtype, x.device) if torch.is_tensor(x) else (type(x), x) for x in leaves
        )
        if self._weights is None or self._weights.model is not model:
            self._weights = _Weights(model)
        return Arguments(args, kwargs, (structure, kinds), weights=self._weights.seen())

    @property
    def model(self) -> Any:
        """The placed module."""
        return self._build.model

    @property
    def folds_weights(self) -> bool:
        """Whether one is built at all: compilers and tracers may fold weights."""
        return self._build.form.is_built

    def prepared(self, call: Caller) -> Any:
        """Return a module of the model's own class, with other calls.

        Wrappers of the model's calls (hooks, a __call__ of its class) are part of the form.
        """

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            return call(args, kwargs)

        kind = type(self.model)
        if forward := getattr(kind, "forward", None):  # TorchScript's classes have none
            functools.update_wrapper(__call__, forward)  # programs look at its parameters
        return seen_as(self.model, {"__call__": __call__, "forward": __call__})

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind tensors that lie on the device; a call returns when its outputs are ready there."""
        tensors = tuple(self.given(self._build.torch.from_numpy(array)) for array in arrays)
        function = self._function_of(tensors)
        call = self._build.device.ended(self._build.torch, lambda: function(*tensors))
        self.last_call = call
        return call

    def _function_of(self, tensors: tuple[Any, ...]) -> Callable[..., Any]:
        """Return the placed model as a function of such tensors, built once for each shape."""
        form = self._build.form
        if not form.is_built:
            return form.function(tensors, {})
        if self._built_by is not form:
            self._built_by, self._built = form, {}
        key = tuple((t.shape, t.dtype, t.stride()) for t in tensors)
        if key not in self._built:
            self._built[key] = form.function(tensors, {})
        return self._built[key]

    def loading(self) -> list[ReadBack]:
        """Report nothing: a service is given its inputs."""
        return []

    def updates(self) -> Counter[str]:
        """Count nothing: nothing learns."""
        return Counter()

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
        """No gradients; autocast if it is set."""
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
