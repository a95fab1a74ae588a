"""Inputs that a random network tells apart: varied in their low frequencies, or a user's own.

White noise looks the same to a convolutional network after its first pooling, so outputs would
barely depend on the input and any check of them would pass. Images are therefore 2 x 2 random
colours, interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.worker.gallery import (
    Features,
    Image,
    Input,
    Integers,
    Lookups,
    Mask,
    Recorded,
    Tokens,
    Values,
)
from tuner.worker.gallery.recorded import read
from tuner.worker.gallery.statement import batch_axis

Array = npt.NDArray[Any]


def generate(
    inputs: Sequence[Input],
    first: int,
    count: int,
    seed: int,
    *,
    shape: int = 0,
    channels_first: bool = False,
    batch_dim: int | None = None,
) -> list[Array]:
    """Return one array per input for samples first .. first+count-1.

    shape: which of a model's lengths (gallery/statement.py). batch_dim: which dimension of the
    arrays is the batch. A sample depends on the seed, its own number and the shape alone, so that
    every batch size and every launch sees the same ones.
    """
    samples = range(first, first + count)
    made: list[Array] = []
    for slot, spec in enumerate(inputs):
        if isinstance(spec, Recorded):
            rows = _recorded(spec)
            each = [rows[s % len(rows)] for s in samples]
        elif isinstance(spec, Mask):
            tokens = next(i for i in inputs if isinstance(i, Tokens))
            slot = inputs.index(tokens)  # noqa: PLW2901  # the mask is that of these tokens
            each = [_is_own(tokens, shape, _draw(seed, slot, s)) for s in samples]
        else:
            each = [_sample(spec, shape, _draw(seed, slot, s)) for s in samples]
            if channels_first and isinstance(spec, Image):
                each = [image.transpose(2, 0, 1) for image in each]
        axis = batch_axis(batch_dim, each[0].ndim + 1)
        made.append(np.ascontiguousarray(np.stack(each, axis)))
    return made


def _draw(seed: int, slot: int, sample: int) -> np.random.Generator:
    return np.random.default_rng([seed, slot, sample])


@cache
def _recorded(spec: Recorded) -> Array:
    return read(spec)


def _sample(spec: Input, shape: int, random: np.random.Generator) -> Array:
    """Return one sample, without the batch."""
    match spec:
        case Image(height=height, width=width, channels=channels):
            grid = random.standard_normal((2, 2, channels), dtype=np.float32) * 2
            rows, columns = _interpolation(height), _interpolation(width)
            image: Array = np.einsum("hi,ijc,wj->hwc", rows, grid, columns, optimize=True)
            return image.astype(np.float32)
        case Features(size=size):
            return random.standard_normal(size, dtype=np.float32)
        case Values(shape=sizes):
            return np.asarray(random.standard_normal(sizes, dtype=np.float32))
        case Tokens(vocabulary=vocabulary):
            own = _is_own(spec, shape, random)
            return random.integers(0, vocabulary, len(own)) * own
        case Integers(shape=sizes, low=low, high=high, dtype=dtype):
            return np.asarray(random.integers(low, high + 1, sizes)).astype(dtype)
        case Lookups(rows=n_rows, count=count, tables=tables, skew=skew):
            sizes = (count,) if tables == 1 else (tables, count)
            if skew > 1:  # the most frequent row first, as in tables sorted by frequency
                return (random.zipf(skew, sizes) - 1) % n_rows
            return random.integers(0, n_rows, sizes)
    raise TypeError(f"nothing generates {spec}")


def _interpolation(size: int) -> Array:
    """Return (size, 2) weights between the two ends."""
    position = np.linspace(0.0, 1.0, size, dtype=np.float32)
    return np.stack([1 - position, position], axis=1)


def _is_own(tokens: Tokens, shape: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return which tokens are a sample's own, as the generator's first draw."""
    lengths = tokens.lengths
    length = lengths[shape % len(lengths)]
    shorter = max((other for other in lengths if other < length), default=0)
    is_varied = len(set(lengths)) > 1
    n_own = int(random.integers(shorter + 1, length + 1)) if is_varied else length
    return (np.arange(length) < n_own).astype(np.int64)


def n_recorded(spec: Recorded) -> int:
    """Count the samples of a recorded input."""
    return len(_recorded(spec))
