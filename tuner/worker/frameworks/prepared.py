"""What a program calls instead of its model: the model itself, except for its calls."""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol


class Caller(Protocol):
    """What makes the calls of a prepared model."""

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call."""

    def weights_change(self) -> None:
        """Note that the model's weights may be others from now on."""


class Unfit(Enum):
    """Why a call runs in the model as it was given, and in no form that was built for it."""

    TRAINING = "training"
    IN_A_GRAPH = "in_a_graph"
    ARGUMENT = "argument"
    KINDS = "kinds"
    WEIGHTS = "weights"
    BUILD = "build"


class Arguments(NamedTuple):
    """The arguments of a call as the placed model takes them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kind: Hashable = ()
    """The kind that a form is built for: structure, shapes, types and constants."""
    unfit: Unfit | None = None
    detail: str = ""
    weights: Hashable = ()
    """Changes when the model's weights do; empty if only methods show changes."""


def seen_as(model: Any, attributes: Mapping[str, Any]) -> Any:
    """Return an object of the model's own class and state, with some attributes of its own.

    A subclass with the same name stands in between, so that isinstance, attributes and methods are
    the model's. Copied or pickled, it is the model without these attributes.
    """

    class Seen:
        def __init_subclass__(cls) -> None:
            """Keep registries of subclasses out of it: this is no class of the program's."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            return copy.copy, (model,)

    kind: Any = type(model)
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, **attributes}
    seen = object.__new__(type(kind)(kind.__name__, (Seen, kind), own))
    object.__setattr__(seen, "__dict__", model.__dict__)
    return seen


def changing(kind: type, method: str, call: Caller) -> Any:
    """Return a method of a class that changes weights, which then tells so."""

    def changes(self: Any, *args: Any, **kwargs: Any) -> Any:
        call.weights_change()
        return getattr(kind, method)(self, *args, **kwargs)

    return functools.wraps(getattr(kind, method))(changes)


class CalledInstead:
    """A function, or an object whose class cannot be extended, with other calls."""

    def __init__(self, model: Any, call: Caller) -> None:
        self._model = model
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call."""
        return self._call(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return the model's attribute."""
        return getattr(self._model, name)
