"""The part of an output that is kept to compare it: all of it, or a sample and sums.

The reference holds the default's outputs for up to 512 inputs; a worker holds its own as well. An
output with more than MAX_ELEMENTS numbers per input is reduced to a random sample, new in each
study, and to signed sums over groups of all its elements. The sample shows how far the output is
off. The sums miss no element: one that is off by its own spread over the inputs moves its sum by
more than the bound for the same precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_ELEMENTS = 2**17
"""Per input, over all outputs: 64 MiB of float32 for 128 inputs."""
_LEAST_ELEMENTS = 8192
"""Per input and output, however many outputs there are."""
_MAX_SUMS = 4096


class Kept(msgspec.Struct, frozen=True):
    """Numbers of one output, the inputs' axis first; every other axis is one of the output's."""

    values: Array
    sums: Array | None = None
    """Sums of signed elements; None where `values` holds every element."""

    def first(self, n: int) -> Kept:
        """Return what is kept of the first n inputs."""
        return Kept(self.values[:n], None if self.sums is None else self.sums[:n])


def keep(output: Array, seed: int, n_outputs: int = 1) -> Kept:
    """Return what is kept of an output (inputs, ...) of a model with n outputs.

    seed: the study's; the same seed keeps the same elements of every output of this shape.
    """
    shape = output.shape[1:]
    limit = max(_LEAST_ELEMENTS, MAX_ELEMENTS // max(n_outputs, 1))
    if math.prod(shape) <= limit:
        return Kept(output)
    random = np.random.default_rng([seed, *shape])
    return Kept(_sampled(output, limit, random), _summed(output, random))


def joined(parts: Sequence[Kept]) -> Kept:
    """Return what is kept of several batches as one."""
    sums = [part.sums for part in parts if part.sums is not None]
    values = np.concatenate([part.values for part in parts])
    return Kept(values, np.concatenate(sums) if sums else None)


def _sampled(output: Array, limit: int, random: np.random.Generator) -> Array:
    """Draw indices of the longest axes until no more than `limit` elements are left."""
    while (size := math.prod(output.shape[1:])) > limit:
        axis = 1 + int(np.argmax(output.shape[1:]))
        length = output.shape[axis]
        n_kept = max(1, limit * length // size)
        output = output.take(np.sort(random.choice(length, n_kept, replace=False)), axis)
    return output


def _summed(output: Array, random: np.random.Generator) -> Array:
    """Sum groups along the longest axes until no more than _MAX_SUMS are left.

    Elements have random signs, or the sums of normalised outputs would all be 0 or 1. Integers are
    summed exactly: the sum may wrap around, and tells every single change all the same.
    """
    kind = output.dtype.kind
    signs: list[tuple[int, Array, Array]] = []
    shape = list(output.shape[1:])
    while (size := math.prod(shape)) > _MAX_SUMS:
        axis = int(np.argmax(shape))
        n_groups = max(1, _MAX_SUMS * shape[axis] // size)
        sign = random.choice(np.array([-1, 1]), shape[axis])
        starts = np.linspace(0, shape[axis], n_groups, endpoint=False).astype(np.int64)
        signs.append((axis, sign.reshape([-1, *[1] * (len(shape) - axis - 1)]), starts))
        shape[axis] = n_groups
    rows = []
    for each in output:  # one input at a time: in float64 a batch would take twice its memory
        row = each.astype(np.float64 if kind == "f" else np.int64)
        for axis, sign, starts in signs:
            row = np.add.reduceat(row * sign, starts, axis=axis)
        rows.append(row)
    return np.stack(rows)
