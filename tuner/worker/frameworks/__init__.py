"""The frameworks that a worker can measure, a module or package each, and their interface."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from tuner.errors import UnknownName, UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.record.configuration import Value
from tuner.record.launch import DeviceMemory, Operator, ReadBack
from tuner.record.load import INFERENCE
from tuner.record.why import ModelWork
from tuner.record.workload import CPU, Parameter
from tuner.worker.frameworks.prepared import Arguments, Caller
from tuner.worker.graph import Node

Array = npt.NDArray[Any]
"""Floats are float32 or float64; integers and booleans are of their own width."""
Tensors = dict[str, Array]
InBatches = Callable[[], Iterable[Sequence[Array]]]


class Setter(NamedTuple):
    """A function of a framework by which a program sets a knob itself, in the place of a launch."""

    knob: str
    module: Any
    name: str
    shown: str
    """As programs write it: torch.set_num_threads."""
    current: Callable[[], int] | None = None
    """The settings now; None for those that can be set only once, before any work."""


class Microbenchmark(NamedTuple):
    """An operator whose work is known."""

    name: str
    work: float
    """Floating-point operations of a call, or bytes."""
    call: Callable[[], Any]
    """Ends when the result is there."""


Calibration = Callable[[Sequence[Array]], Iterable[Sequence[Array]]]
"""From the inputs of one call to others of the same shapes and types."""


def no_inputs(_example: Sequence[Array]) -> Iterable[Sequence[Array]]:
    """Return no further inputs."""
    return ()


class Build(Protocol):
    """From nothing to a placed model."""

    channels_first: bool
    """Whether images are given as (batch, channels, height, width)."""
    setters: Sequence[Setter]
    """The functions by which a program sets knobs itself; known from `start` on."""
    calibration: Calibration
    """Further inputs for static quantization; `no_inputs` where only those of a call are known."""

    def start(self, settings: Mapping[str, Value]) -> None:
        """Import the framework and apply the settings that must come before any work."""

    def seed(self, number: int) -> None:
        """Seed the framework's random numbers, and those that a built model draws itself."""

    def save(self, path: Path) -> bool:
        """Keep the adopted model's weights in a file; False if they are not kept."""

    def rebuilt(self, make: Callable[[], Any], path: Path) -> Any:
        """Return what `make` builds, with weights that were kept in the place of drawn ones."""

    def adopt(self, model: Any) -> None:
        """Take the built model, in the default's form."""

    def condition(
        self, arrays: Sequence[Array], damped_norms: str, in_batches: InBatches | None = None
    ) -> Tensors:
        """Make a random-weight model tell inputs apart; return the changed tensors by name.

        Batch-norm statistics, damped residual blocks; norms that were trained are left alone.
        in_batches: the same inputs for a model that does not take them all at once; without, what
        it raises then is let through.
        """

    def restore(self, tensors: Tensors) -> None:
        """Put such tensors into a freshly built model."""

    def place(self, settings: Mapping[str, Value]) -> None:
        """Apply the model-level settings."""

    def versions(self) -> dict[str, str]:
        """Return the versions that were really imported."""

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory."""

    def exact(self) -> AbstractContextManager[None] | None:
        """Return a context in which the default computes in exact fp32.

        None if it always does.
        """

    def device_memory(self) -> DeviceMemory | None:
        """Return this process's memory on a card; None without a card."""


class NoWeightCache:
    """The answers of a build that keeps no weights."""

    def save(self, path: Path) -> bool:
        """There is nothing to be gained."""
        return False

    def rebuilt(self, make: Callable[[], Any], path: Path) -> Any:
        """Build as ever."""
        return make()


class OnTheCpu:
    """The answers of a build that knows no device but the CPU."""

    def exact(self) -> None:
        """Fp32 there is exact by default."""

    def device_memory(self) -> None:
        """There is the host's memory alone."""


class Work(Protocol):
    """The timed work: the calls of a placed model, in one mode."""

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return a call's arguments in the precision and layout that is set, and their kind."""

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the model as a function of such arguments, in the form that is set."""

    @property
    def model(self) -> Callable[..., Any]:
        """The placed model, which takes any arguments that it ever took."""

    @property
    def folds_weights(self) -> bool:
        """Whether a form that was built keeps the weights that the model then had."""

    def prepared(self, call: Caller) -> Any:
        """Return an object that is the model to a program, except for its calls."""

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind inputs, trace and freeze; return a call that ends when its outputs are ready."""

    def outputs(self, result: Any) -> list[Array]:
        """Return the outputs of a call as arrays, batch first, without rounding.

        Floats as float32 (float64 stays), integers and booleans as they are. Raises UsageError for
        anything that is not a tensor (outputs.py).
        """

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which calls are made (no gradients, precision)."""

    def clock(self) -> float:
        """Return the seconds of the clock that slices are timed with."""

    def wait_until(self, moment: float) -> None:
        """Return at a moment of that clock, or at once if it is over."""


class OnTheClock:
    """The answers of work in real time."""

    def clock(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        """Sleep: polling would take the CPU from the measured work."""
        time.sleep(max(0.0, moment - time.perf_counter()))


class Evidence(Protocol):
    """The model's properties, and the settings in force."""

    def read_back(self, settings: Mapping[str, Value], *, traces: bool = True) -> list[ReadBack]:
        """Report what is in force, for every knob of the framework, after a first call.

        traces: whether a call may be traced if that is costly; without it, `accepted` is enough.
        """

    def parameters(self) -> list[Parameter]:
        """Return the trainable tensors of the default model, in its own order."""

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None:
        """Return the multiply-accumulates per sample of the default, and what counted them.

        None where nothing that is installed counts all of them.
        """

    def work(self, call: Callable[[], Any], arrays: Sequence[Array], batch: int) -> ModelWork:
        """Return the operations and bytes of the default's operators.

        call: one call of the model with arrays of `batch` items.
        """

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """Return the operators of the default model, in topological order."""


class Profile(Protocol):
    """Where the time of calls goes."""

    title: str
    """The name of the profiler."""

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Make calls under the framework's profiler; return the time of each kind of operator.

        Summed over all calls, without operators inside it, in no order. Nothing is timed
        afterwards.
        """


class Microbenchmarks(Protocol):
    """Operators that show what a framework can do on this host."""

    def products(self, dtype: str) -> Iterator[Microbenchmark]:
        """Yield operators that multiply (fp32, bf16), the cheaper ones first."""

    def streams(self, n_bytes: int) -> Iterator[Microbenchmark]:
        """Yield operators on arrays of `n_bytes`; their work is what they read and write."""


class Framework(Protocol):
    """A framework's interface for a worker, in the order in which a launch uses it.

    A framework has a class for each part; another mode (training) is another `work`. Built from the
    names of a mode and a device (tuner/record/workload.py).
    """

    @property
    def build(self) -> Build: ...

    @property
    def work(self) -> Work: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def profile(self) -> Profile: ...

    @property
    def microbenchmarks(self) -> Microbenchmarks: ...


def framework(name: str, mode: str = INFERENCE, device: str = CPU) -> Framework:
    """Return a framework's adapter; the framework itself is imported by its build's `start`.

    Raises UnknownName, MissingFramework with the command to type, or UsageError for a device that
    it is not measured on.
    """
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS, "see --help")
    if device not in FRAMEWORKS[name].devices:
        raise UsageError(f"{name} is not measured on {device}")
    path, attribute = FRAMEWORKS[name].adapter
    adapter: Framework = getattr(importlib.import_module(path), attribute)(mode, device)
    return adapter


def prepared(adapter: Framework) -> Any:
    """Return the adapter's placed model as a program calls it: in forms, if forms are built."""
    from tuner.worker.frameworks.calls import Calls

    return adapter.work.prepared(Calls(adapter.work))


def prepared_to_learn(adapter: Framework, optimizer: Any) -> Any:
    """Return the placed model of an adapter for training, for a loop of the user's own.

    Raises UsageError for an optimizer that the settings need and that is not given.
    """
    model: Any = adapter.work.prepared_to_learn(optimizer)  # type: ignore[attr-defined]
    return model
