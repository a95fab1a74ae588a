"""The frameworks a worker can measure, one file each.

Contract of a framework, in the order in which a launch uses it:

start(settings)         import it and apply what must come before any work
seed(number)            seed the framework's random numbers, before a model is built
adopt(model)            take the built model, in the default's form
condition(arrays, ...)  make a random-weight model tell inputs apart (batch-norm statistics, damped
                        residual blocks); returns the changed tensors by name. Batch norms that
                        were trained are left as they are
restore(tensors)        put such tensors into a freshly built model
place(settings)         apply the model-level settings
given(tensor)           an input of the framework's own, in the precision and layout that is set
function(tensors)       the model as a function of such inputs, in the form that is set
program(arrays)         bind inputs, trace and freeze; returns a call that ends when its outputs
                        are ready
outputs(result)         the outputs of a call as float32 arrays, batch first; raises UsageError for
                        what is no tensor (outputs.py)
operators(calls)        make calls under the framework's profiler; returns in no order what each
                        kind of operator took in all of them, those inside it not counted. Nothing
                        is timed afterwards
profiler                what that profiler is, in words
read_back(settings)     what is in force, for every knob of the framework, after a first call
clock()                 the clock that slices are timed with
graph(arrays)           the operators of the default model, in topological order
parameters()            the trainable tensors of the default model, in its own order
macs(call, batch)       multiply-accumulates per sample in a call of the default, and who counted
                        them; None where nothing that is installed counts all of them
running()               the context in which calls are made (no gradients, precision)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy.typing as npt

from tuner.errors import UnknownName
from tuner.frameworks import FRAMEWORKS
from tuner.record.configuration import Value
from tuner.record.launch import Operator, ReadBack
from tuner.record.workload import Parameter
from tuner.worker.graph import Node

Array = npt.NDArray[Any]
"""float32, or integers in inputs that are indices."""
Tensors = dict[str, Array]


class Framework(Protocol):
    """What a worker needs of a framework; the contract stands above."""

    def start(self, settings: Mapping[str, Value]) -> None: ...

    channels_first: bool
    """Whether images are given as (batch, channels, height, width)."""

    def seed(self, number: int) -> None: ...

    def adopt(self, model: Any) -> None: ...

    def condition(self, arrays: Sequence[Array], damped_norms: str) -> Tensors: ...

    def restore(self, tensors: Tensors) -> None: ...

    def place(self, settings: Mapping[str, Value]) -> None: ...

    def given(self, tensor: Any) -> Any: ...

    def function(self, tensors: Sequence[Any]) -> Callable[..., Any]: ...

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]: ...

    def outputs(self, result: Any) -> list[Array]: ...

    profiler: str

    def operators(self, calls: Callable[[], None]) -> list[Operator]: ...

    def read_back(self, settings: Mapping[str, Value]) -> list[ReadBack]: ...

    def clock(self) -> float: ...

    def running(self) -> AbstractContextManager[None]: ...

    def graph(self, arrays: Sequence[Array]) -> list[Node]: ...

    def versions(self) -> dict[str, str]: ...

    def parameters(self) -> list[Parameter]: ...

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None: ...

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]: ...


def framework(name: str) -> Framework:
    """Return a framework's adapter; the framework itself is imported by its `start`.

    Raises UnknownName, or MissingFramework with the command to type.
    """
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS, "see --help")
    path, attribute = FRAMEWORKS[name].adapter
    adapter: Framework = getattr(importlib.import_module(path), attribute)()
    return adapter
