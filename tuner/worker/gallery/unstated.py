"""The default statement of a model without one: its kind, batches, and inputs like an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError
from tuner.worker.gallery.recorded import TEXTS
from tuner.worker.gallery.statement import (
    Features,
    Image,
    Input,
    Integers,
    Model,
    Values,
    batch_axis,
)

BATCHES = (4, 16)
# from the most telling layer to the least
_KINDS = (
    ("transformer", re.compile(r"attention", re.IGNORECASE)),
    ("cnn", re.compile(r"conv\d?d", re.IGNORECASE)),
    ("recommendation", re.compile(r"embedding_?bag", re.IGNORECASE)),
    ("mlp", re.compile(r"linear|dense", re.IGNORECASE)),
)
_MAX_CHANNELS = 4
_LOW = ("bfloat16", "float16")
_IN_FLOAT32 = "give it in float32, the default that settings are compared with; bf16 is one of them"


_Size = TypeVar("_Size")


def unstated(
    title: str, layers: Iterable[str], inputs: Sequence[Input] = (), batch: int | None = None
) -> Model:
    """Return the statement of a model of which only its layers' class names are known.

    batch: the only one that it takes; None for the usual ones.
    """
    names = " ".join(layers)
    kind = next((kind for kind, pattern in _KINDS if pattern.search(names)), "other")
    batches = BATCHES if batch is None else (batch,)
    return Model(title, "", kind, tuple(inputs), batches[0], batches)


def input_of(name: str, shape: Sequence[int | None], dtype: str) -> Input:
    """Return what to generate for an input of this shape without the batch.

    Raises UsageError where shape or range cannot be known.
    """
    recorded = "record some rows of it and name the file: --inputs FILE.npz"
    if dtype == TEXTS:
        raise UsageError(
            f"input {name} takes texts, which are not generated: {recorded}; or give the model "
            "that comes after its look-up of words"
        )
    if dtype in _LOW:
        raise UsageError(f"input {name} is of {dtype}: {_IN_FLOAT32}")
    if any(size is None or size < 1 for size in shape):
        shown = ", ".join("?" if size is None or size < 1 else str(size) for size in shape)
        raise UsageError(f"input {name} has no fixed size ({shown}); {recorded}")
    sizes = tuple(int(size) for size in shape if size is not None)
    if not np.issubdtype(np.dtype(dtype), np.floating):
        raise UsageError(f"input {name} is of {dtype}, the range of which is not known; {recorded}")
    if dtype != "float32":
        raise UsageError(f"input {name} is of {dtype}, which is not generated; {recorded}")
    return _of_float(sizes)


def _of_float(shape: tuple[int, ...]) -> Input:
    """Take what looks like an image, with its channels first or last, for one."""
    if len(shape) == 3 and shape[0] <= _MAX_CHANNELS < min(shape[1:]):
        return Image(shape[1], shape[2], shape[0])
    if len(shape) == 3 and shape[2] <= _MAX_CHANNELS < min(shape[:2]):
        return Image(*shape)
    return Features(shape[0]) if len(shape) == 1 else Values(shape)


def inputs_like(example: Any, batch_dim: int | None = None) -> tuple[Input, ...]:
    """Return what to generate to get inputs like an example batch: its shapes, types and ranges.

    example: a tensor or array, or a sequence of them. batch_dim: which dimension of it is the
    batch; None for the first. Raises UsageError.
    """
    if isinstance(example, Mapping):
        raise UsageError(
            f"example inputs are a mapping ({', '.join(map(str, example))}): give them as a tuple, "
            "in the order that the model takes"
        )
    parts = example if isinstance(example, tuple | list) else (example,)
    return tuple(_like(_array_of(part), batch_dim) for part in parts)


def without_batch(shape: Sequence[_Size], batch_dim: int | None) -> tuple[_Size, ...]:
    """Return the shape of one sample, from that of a batch."""
    axis = batch_axis(batch_dim, len(shape))
    return (*shape[:axis], *shape[axis + 1 :])


def _array_of(part: Any) -> npt.NDArray[Any]:
    """Return a part of an example as an array; raises UsageError if it holds no numbers."""
    for name in _LOW:
        if name in str(getattr(part, "dtype", "")):  # NumPy has no bfloat16
            raise UsageError(f"an example input is of {name}: {_IN_FLOAT32}")
    try:
        # PyTorch hands out no array of a tensor with a gradient, or on a card
        array = np.asarray(part.detach().cpu() if hasattr(part, "detach") else part)
    except (TypeError, ValueError, RuntimeError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"an example input is a {type(part).__name__} that is no array of numbers: {first_line}"
        ) from error
    if array.dtype.kind in "OUS":
        raise UsageError(
            f"an example input is a {type(part).__name__} of texts or objects, and none are "
            "generated: record some rows of it and name the file: --inputs FILE.npz; or give the "
            "model that comes after its look-up of words"
        )
    return array


def _like(array: npt.NDArray[Any], batch_dim: int | None) -> Input:
    if array.ndim < 1 or not array.size:
        raise UsageError(f"an example input has the shape {array.shape}: it holds no batch")
    shape = without_batch(array.shape, batch_dim)
    if array.dtype in (np.float32, np.float64):  # NumPy's default; float32 is generated
        return _of_float(shape) if shape else Values(())
    if np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_:
        low, high = int(array.min()), int(array.max())
        return Integers(shape, low, high, str(array.dtype))
    raise UsageError(f"an example input is of {array.dtype}; give float32, integers or bool")
