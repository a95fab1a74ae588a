"""A PyTorch model as a function of tensors alone: what tracers and exporters take.

Models take keywords and return dictionaries, data classes and Nones. Around a traced or exported
function of tensors, arguments are taken apart and outputs are put together as the model's own are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError

CONSTANTS = (bool, int, float, str, bytes, type(None))
"""Arguments that are no tensors and are part of a traced or exported function."""


class Flattened:
    """A model for one structure of arguments; `module` takes and returns tensors in a row.

    The structure of the outputs is found when `module` is first called, by whomever.
    """

    def __init__(
        self, torch: Any, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        from torch.utils import _pytree

        self._torch, self._trees, self._model = torch, _pytree, model
        self._leaves, self._taken = _pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._places = [i for i, leaf in enumerate(self._leaves) if torch.is_tensor(leaf)]
        self.tensors = tuple(self._leaves[i] for i in self._places)
        for i in self._places:
            self._leaves[i] = None  # a constant stays; a tensor is given with each call
        self._is_flat = not kwargs and all(map(torch.is_tensor, args))
        self._returned: Any = None
        self._is_output: list[bool] = []
        self.module = self._as_module()

    def _as_module(self) -> Any:
        call = self._call

        class OfTensors(self._torch.nn.Module):  # type: ignore[name-defined]
            def __init__(self, model: Any) -> None:
                super().__init__()
                self.model = model
                self.training = False  # of this module alone: the model's parts are as they were

            def forward(self, *tensors: Any) -> tuple[Any, ...]:
                return call(self.model, tensors)

        return OfTensors(self._model)

    def _call(self, model: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
        leaves = list(self._leaves)
        for i, tensor in zip(self._places, tensors, strict=True):
            leaves[i] = tensor
        args, kwargs = self._trees.tree_unflatten(leaves, self._taken)
        parts, self._returned = self._apart(model(*args, **kwargs))
        self._is_output = [part is not None for part in parts]
        return tuple(part for part in parts if part is not None)

    def _apart(self, result: Any) -> tuple[list[Any], Any]:
        """Return the tensors and Nones of an output and its structure; raises UsageError."""
        parts, structure = self._trees.tree_flatten(result)
        others = [p for p in parts if p is not None and not self._torch.is_tensor(p)]
        classes = {type(p) for p in others if dataclasses.is_dataclass(p)}
        for each in classes:
            self._torch.export.register_dataclass(each)
        if classes:
            return self._apart(result)
        if others:
            name = type(others[0]).__name__
            raise UsageError(
                f"the model returns a value of type {name} among its outputs, which a traced or "
                "exported form would repeat in every call: let it return tensors and None, also "
                "within tuples, lists, dictionaries and data classes"
            )
        return parts, structure

    @property
    def n_outputs(self) -> int:
        """How many tensors it returned when it was called."""
        return sum(self._is_output)

    def distinct(self) -> tuple[Any, ...]:
        """Return the tensors as objects of their own: exporters take one object for one input."""
        return tuple(tensor.clone() for tensor in self.tensors)

    def call_once(self) -> None:
        """Call the model itself, on the given tensors: that shows what its outputs really are.

        A tracer would turn the numbers among them into tensors. Raises UsageError for such outputs.
        """
        self.module(*self.tensors)

    def with_structure(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the model's own arguments and outputs, around one of tensors."""
        if self._returned is None:
            self.call_once()  # a kept package spared the export
        trees, places = self._trees, self._places
        returned, is_output = self._returned, self._is_output

        def together(found: Sequence[Any]) -> Any:
            parts = iter(found)
            whole = [next(parts) if is_tensor else None for is_tensor in is_output]
            return trees.tree_unflatten(whole, returned)

        def in_tensors(*args: Any) -> Any:
            return together(function(*args))

        def in_structures(*args: Any, **kwargs: Any) -> Any:
            leaves = trees.tree_flatten((args, kwargs))[0]
            return together(function(*(leaves[i] for i in places)))

        def to_one_tensor(*args: Any) -> Any:
            return function(*args)[0]

        if not self._is_flat:
            return in_structures
        return to_one_tensor if returned.is_leaf() and is_output == [True] else in_tensors
