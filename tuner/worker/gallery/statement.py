"""The statement of a model file: its inputs, its batches, and its correct output."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tuner.record.configuration import Value
from tuner.record.time_to_target import MOST_STEPS, Target
from tuner.record.workload import LAST_BATCH_DIM

KINDS = ("cnn", "transformer", "recommendation", "recurrent", "mlp", "other")
FAMILIES = (
    "cnn", "detection", "vision transformer", "encoder", "decoder", "translation", "speech",
    "recommendation", "recurrent", "game", "mlp", "other",
)  # fmt: skip
MAX_LENGTHS = 8
"""As many shapes as torch.compile keeps for one function (torch._dynamo.config.recompile_limit)."""


_LARGEST = 2**31 - 1
"""Frameworks count the elements of a dimension in more bits; no host holds as many of a model's."""
_NO_SIZES = ("low", "high", "skew")


class Image(msgspec.Struct, frozen=True):
    """An image of float32, (height, width, channels) in TensorFlow, channels first in PyTorch."""

    height: int
    width: int
    channels: int


class Features(msgspec.Struct, frozen=True):
    """A vector of `size` normally distributed float32."""

    size: int


class Values(msgspec.Struct, frozen=True):
    """An array of normally distributed float32, of this shape without the batch."""

    shape: tuple[int, ...]


class Tokens(msgspec.Struct, frozen=True):
    """Token ids, int64, below `vocabulary`, (length,).

    lengths: one, or several that are used in turn (repeat one for more weight): a timed round holds
    a batch of every length. With several, a sample's own tokens end between the next shorter length
    and this one, and zeros fill the rest.
    """

    lengths: tuple[int, ...]
    vocabulary: int


class Mask(msgspec.Struct, frozen=True):
    """1 where a token of the first Tokens input is the sample's own, 0 for padding; int64."""


class Integers(msgspec.Struct, frozen=True):
    """An array of whole numbers from low to high, all alike, of this shape without the batch."""

    shape: tuple[int, ...]
    low: int
    high: int
    dtype: str = "int64"


class Lookups(msgspec.Struct, frozen=True):
    """Rows to look up in embedding tables, int64, (tables, count), or (count,) for a single table.

    skew: 0.0 draws all rows alike (the worst case for caches), above 1 by Zipf's law with that
    exponent.
    """

    rows: int
    count: int
    tables: int = 1
    skew: float = 0.0


class Recorded(msgspec.Struct, frozen=True):
    """Rows of an array that the user recorded, from a NumPy file (.npz, or .npy), in their order.

    path: relative to the model file. name: which array of an .npz, by default the first. Arrays are
    given as they are, images in the layout of the framework; after the last row comes the first.
    """

    path: str
    name: str = ""
    dtype: str = ""
    """NumPy's name of the type to take it as; as recorded if empty, but float64 as float32."""


Input = Image | Features | Values | Tokens | Mask | Integers | Lookups | Recorded


class Model(msgspec.Struct, frozen=True):
    """The facts about a model before it is built."""

    title: str
    task: str
    kind: str
    inputs: tuple[Input, ...]
    reference_batch: int
    batches: tuple[int, ...]
    n_classes: int | None = None
    """Number of classes if output 0 holds one score per class, else None."""
    damped_norms: str = ""
    """Regular expression over the names of the batch norms that end a residual block: their scale
    is set to 0.2, because random residual sums otherwise drown the input (outputs become constant
    and every output check passes)."""
    tolerance: float | None = None
    """Drift that reduced precision may have (tuner/worker/check.py); None for the tool's own."""
    accuracy_loss: float = 0.01
    """By how much the file's `accuracy` may fall under reduced precision, if it has one."""
    n_parameters: int = 0
    """Trainable parameters, for the list of models; 0 if not stated."""
    macs: int = 0
    """Multiply-accumulates per item, for the list of models; 0 if not stated."""
    widths: dict[str, float] = {}
    """Average width of the graph per framework (tuner/worker/graph.py), for the list of models."""
    family: str = "other"
    """One of FAMILIES: models with similar computation and purpose, narrower than `kind`."""
    item: str = "sample"
    """The user's word for one sample: sample, prompt, token."""
    follows: str = ""
    """The reference that its sizes come from."""
    systems: tuple[str, ...] = ()
    """The benchmark systems that measure this model, at whatever size."""
    server_bound_s: float | None = None
    """MLPerf Inference's bound on a server's latency; None if it has none."""
    small: dict[str, Value] = {}
    """Parameters of the small variant that tests build; empty if the model is small."""
    differs: str = ""
    """How the frameworks' models differ; empty if they are the same, or there is one only."""
    targets: tuple[Input, ...] = ()
    """What the outputs are compared with in training, one for each output, or whatever the file's
    loss(model, batch) takes after the inputs; empty for random ones."""
    target: Target | None = None
    """The quality that training has to reach; None if the file states none."""
    batch_dim: int | None = None
    """Which dimension of the inputs is the batch, 1 for (time, batch, features); None is the first.
    An input with fewer dimensions has it last. To state 0 says that the first is the batch even
    though samples influence each other, which one batch size alone can have."""

    def n_shapes(self) -> int:
        """Count the batches of different shapes that make a round."""
        return max((len(i.lengths) for i in self.inputs if isinstance(i, Tokens)), default=1)


def batch_axis(batch_dim: int | None, n_dims: int) -> int:
    """Return the batch axis of an array with this many dimensions."""
    return min(batch_dim or 0, n_dims - 1)


Accuracy = Callable[[Sequence[Any], Sequence[Any]], Any]
"""A user's function of (outputs, inputs), NumPy arrays with the samples first. It returns a number,
of which more is better, or for each sample whether it is right."""


class Learning(NamedTuple):
    """How a model learns, as its file states it; None for what it does not state."""

    loss: Callable[[Any, Sequence[Any]], Any] | None = None
    """A function of (model, batch), which returns a scalar tensor."""
    optimizer: Callable[..., Any] | None = None
    """In PyTorch a function of the parameters, in TensorFlow of nothing."""
    loader: Callable[[int], Any] | None = None
    """A function of the batch: an iterable of batches, inputs and then targets."""


Samples = Callable[[int, int], Sequence[Any]]
HeldOut = Callable[[], Sequence[Any]]
Quality = Callable[[Sequence[Any], Sequence[Any]], float]


class TargetFunctions(NamedTuple):
    """What a model is trained on and how its quality is measured, as its file states it.

    All arrays are NumPy's, in the layout of the framework; None for what the file does not state.
    """

    samples: Samples | None = None
    """A function of (n, seed): n samples for a step, the inputs and then the targets. The same
    arguments give the same samples."""
    held_out: HeldOut | None = None
    """A function of nothing: the samples on which the quality is measured, likewise."""
    quality: Quality | None = None
    """A function of (outputs, targets), all of the held-out samples: a number; more is better."""


class StatesNoLearning:
    """What a source says of training whose format states nothing of it."""

    def learning(self, framework: str) -> Learning:
        """Return nothing."""
        return Learning()

    def target_functions(self, framework: str) -> TargetFunctions:
        """Return nothing."""
        return TargetFunctions()


def as_called(model: Model, batch: int | None, batch_dim: int | None) -> Model:
    """Return a statement with the user's batch dimension instead of its own."""
    if batch is not None:
        model = msgspec.structs.replace(model, reference_batch=batch, batches=(batch,))
    return model if batch_dim is None else msgspec.structs.replace(model, batch_dim=batch_dim)


def _fault_of_sizes(given: Input) -> str:
    """Return the invalid size of an input; empty if all are valid."""
    for name, value in msgspec.structs.asdict(given).items():
        if isinstance(value, str) or name in _NO_SIZES:
            continue
        for size in value if isinstance(value, tuple) else (value,):
            if not isinstance(size, numbers.Integral) or not 1 <= int(size) <= _LARGEST:
                return (
                    f"{type(given).__name__} with {name}={value} is invalid; sizes are whole "
                    f"numbers from 1 to {_LARGEST}"
                )
    return ""


def fault_of(model: Model) -> str:
    """Return why a statement cannot be used; empty if it can."""
    if model.kind not in KINDS:
        return f"kind {model.kind!r} is unknown; allowed are {', '.join(KINDS)}"
    if model.family not in FAMILIES:
        return f"family {model.family!r} is unknown; allowed are {', '.join(FAMILIES)}"
    smallest = min((model.reference_batch, *model.batches))
    if smallest < 1:
        return f"batch {smallest} is invalid; batches are positive"
    if not model.inputs:
        return "inputs must not be empty"
    for given in (*model.inputs, *model.targets):
        if fault := _fault_of_sizes(given):
            return fault
    counts = {len(i.lengths) for i in model.inputs if isinstance(i, Tokens)} - {1}
    if 0 in counts or len(counts) > 1 or max(counts, default=1) > MAX_LENGTHS:
        return f"Tokens have one length or equally many each, at most {MAX_LENGTHS}"
    if model.batch_dim is not None and not 0 <= model.batch_dim <= LAST_BATCH_DIM:
        return f"batch_dim={model.batch_dim} is invalid; it is a dimension, 0 to {LAST_BATCH_DIM}"
    for name, number in (("tolerance", model.tolerance), ("accuracy_loss", model.accuracy_loss)):
        if number is not None and not 0 <= number < float("inf"):
            return f"{name}={number} is invalid; it is at least 0 and finite"
    if (target := model.target) is not None:
        if not math.isfinite(target.at_least):
            return f"target: at_least={target.at_least} is invalid; it is a finite number"
        is_whole = 1 <= target.every <= target.most_steps and not target.most_steps % target.every
        if not is_whole or target.most_steps > MOST_STEPS:
            return (
                f"target: every={target.every} and most_steps={target.most_steps} are invalid; "
                f"most_steps is a multiple of every, at most {MOST_STEPS}, and every at least 1"
            )
    if any(isinstance(i, Mask) for i in model.inputs) and not any(
        isinstance(i, Tokens) for i in model.inputs
    ):
        return "a Mask tells which Tokens are a sample's own; there are no Tokens"
    return ""
