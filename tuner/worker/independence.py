"""Whether a model's answer to a sample depends on that sample alone, checked before any timing.

Comparing outputs is meaningless if the answer also depends on earlier calls, on random numbers, or
on other samples of the batch. The last is so if the dimension taken for the batch is another one:
PyTorch's recurrent and attention layers have the time first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError
from tuner.worker.gallery.statement import Model, batch_axis

Array = npt.NDArray[Any]
_SAME_CALL = 1e-4
"""Relative to the size of an output: two calls with the same inputs differ by 1e-6 where sums are
taken in another order, and by more where something else changed."""
_SAME_ROW = 0.05
"""Relative to how much samples differ: activations that are quantised by the batch's largest value
change a row by about 1 %, another time step by 30 % and more."""
_LEAST_SPREAD = 0.01
"""Relative to the size of an output; random networks differ by about as much between samples."""
_SEED = 1


class Independence:
    """A built model with nothing set, called a few times more."""

    def __init__(
        self,
        model: Model,
        inputs: Callable[[int, int], list[Array]],
        call: Callable[[list[Array]], list[Array]],
        to_front: Callable[[list[Array], int], list[Array]],
        seed: Callable[[int], None],
    ) -> None:
        """Take the model.

        inputs: samples by the first and their number. call: the outputs for inputs. to_front:
        outputs with the batch, of that size, moved to the front. seed: of all random numbers.
        """
        self._model = model
        self._inputs = inputs
        self._call = call
        self._to_front = to_front
        self._seed = seed

    def check(self, arrays: list[Array], outputs: list[Array], batch: int) -> None:
        """Raise UsageError if the outputs depend on more than the sample.

        arrays: the first inputs; outputs: those of the first call, for these.
        """
        kept = batch // 2
        dim = self._model.batch_dim or 0
        beside = self._call(_with_kept(self._inputs(batch + 1, batch), arrays, dim, kept))
        self._check_steady(arrays, outputs)
        is_stated = self._model.batch_dim is not None
        if is_stated and len(set(self._model.batches)) == 1:
            return  # samples may influence each other where no two batch sizes are compared
        if batch > 1:
            front, moved = self._to_front(outputs, batch), self._to_front(beside, batch)
            if changed := changed_rows(front, moved, kept):
                raise UsageError(self._mixing(changed, arrays, outputs, batch))
        elif not is_stated and self._mixes_two():
            raise UsageError(
                "two samples in a batch change each other's answers, so that dimension 0 of the "
                f"inputs, here of the shape {arrays[0].shape}, may be something else, such as the "
                "time: --batch-dim 1 says that dimension 1 is the batch; --batch-dim 0, or "
                "batch_dim=0 in its Model, that the model takes one sample at a time"
            )

    def _check_steady(self, arrays: list[Array], outputs: list[Array]) -> None:
        """Call again with the same inputs, after a call with others."""
        if not differ(outputs, self._call(arrays)):
            return
        self._seed(_SEED)
        once = self._call(arrays)
        self._seed(_SEED)
        if differ(once, self._call(arrays)):
            raise UsageError(
                "the answers depend on earlier calls: the same inputs got other outputs after a "
                "call with others, though random numbers were seeded alike. The model changes what "
                "it keeps (a buffer, a cache, a counter) when it is called: let it begin anew in "
                "every call, or take that state as an input"
            )
        raise UsageError(
            "the outputs are random: two calls with the same inputs differ, and agree where random "
            "numbers are seeded alike before each. Switch off what draws them when the model "
            "answers, such as F.dropout(x, training=self.training), sampling or noise"
        )

    def _mixes_two(self) -> bool:
        """Check whether two samples change each other, for a model called with one sample."""
        arrays = self._inputs(0, 2)
        # one that takes a sample at a time may fail here in any way, or take the two for one
        with contextlib.suppress(Exception):
            outputs = self._call(arrays)
            beside = self._call(_with_kept(self._inputs(3, 2), arrays, 0, 1))
            are_two = all(y.ndim and len(y) == 2 for y in (*outputs, *beside))
            return are_two and bool(changed_rows(outputs, beside, 1))
        return False

    def _mixing(
        self, changed: Sequence[int], arrays: list[Array], outputs: list[Array], batch: int
    ) -> str:
        dim = self._model.batch_dim or 0
        if len(changed) < len(outputs):
            shape = outputs[changed[0]].shape
            return (
                f"output {changed[0]} of the model, of the shape {shape} for {batch} inputs, "
                "changes for a sample with the samples beside it; other outputs do not: let the "
                "model return those alone"
            )
        other = 0 if dim else 1
        hint = f"name the one that is: {_how_to_name('N')}"
        if self._is_batch(other, arrays, outputs):
            hint = f"dimension {other} behaves as the batch: {_how_to_name(other)}"
        return (
            f"the answer to a sample changes with the samples beside it: {_not_batch(dim, arrays)}"
            f": {hint}. If samples are meant to influence each other, fix the batch size and say "
            f"so: --batch N --batch-dim {dim}"
        )

    def other_dimension(self, arrays: list[Array], outputs: list[Array]) -> str:
        """Say which dimension of the inputs is the batch if the outputs have none; or nothing."""
        dim = self._model.batch_dim or 0
        other = 0 if dim else 1
        with contextlib.suppress(Exception):  # a model may raise anything at other inputs
            if self._is_batch(other, arrays, outputs):
                return (
                    f"{_not_batch(dim, arrays)}: dimension {other} behaves as the batch: "
                    f"{_how_to_name(other)}"
                )
        return ""

    def _is_batch(self, dim: int, arrays: list[Array], outputs: list[Array]) -> bool:
        """Tell whether a dimension of the inputs is one along which the samples stay apart."""
        sizes = {a.shape[batch_axis(dim, a.ndim)] for a in arrays}
        size = min(sizes)
        if len(sizes) > 1 or size < 2:
            return False
        kept = size // 2
        n_samples = arrays[0].shape[batch_axis(self._model.batch_dim, arrays[0].ndim)]
        others = self._inputs(n_samples + 1, n_samples)
        beside = self._call(_with_kept(others, arrays, dim, kept))
        for y, z in zip(outputs, beside, strict=True):
            axis = next((d for d in (dim, 0, 1) if d < y.ndim and y.shape[d] == size), None)
            if axis is None or y.shape != z.shape:
                return False
            if changed_rows([np.moveaxis(y, axis, 0)], [np.moveaxis(z, axis, 0)], kept):
                return False
        return True


def _how_to_name(dim: int | str) -> str:
    return f"give --batch-dim {dim}, or state batch_dim={dim} in its Model"


def _not_batch(dim: int, arrays: Sequence[Array]) -> str:
    shapes = " and ".join(str(a.shape) for a in arrays)
    return (
        f"dimension {dim} of the inputs, here of the shape {shapes}, is not the batch (in nn.LSTM "
        "and nn.Transformer the time comes first)"
    )


def _with_kept(others: list[Array], own: list[Array], dim: int, kept: int) -> list[Array]:
    """Return other samples, but for one of the own at its place along a dimension."""
    made = []
    for there, here in zip(others, own, strict=True):
        at = (slice(None),) * batch_axis(dim, here.ndim) + (kept,)
        changed = there.copy()
        changed[at] = here[at]
        made.append(changed)
    return made


def differ(outputs: Sequence[Array], again: Sequence[Array]) -> bool:
    """Tell whether two calls gave outputs of other shapes, or farther apart than rounding."""
    if [y.shape for y in outputs] != [y.shape for y in again]:
        return True
    return any(_distance(y, z) > _SAME_CALL * _norm(y) for y, z in zip(outputs, again, strict=True))


def changed_rows(outputs: Sequence[Array], beside: Sequence[Array], row: int) -> list[int]:
    """Return the numbers of the outputs whose row (batch first) differs.

    beside: the outputs for a batch in which only that sample is the same.
    """
    found = []
    for number, (y, z) in enumerate(zip(outputs, beside, strict=True)):
        if y.shape != z.shape:
            found.append(number)
            continue
        spread = _norm(y - y.mean(axis=0, dtype=np.float64)) / np.sqrt(len(y))
        typical = max(spread, _LEAST_SPREAD * _norm(y[row]))
        if _distance(y[row], z[row]) > _SAME_ROW * typical:
            found.append(number)
    return found


def _norm(y: Array) -> float:
    return float(np.linalg.norm(np.asarray(y, dtype=np.float64)))


def _distance(y: Array, z: Array) -> float:
    """Return how far apart outputs are; 0 where both are not finite in the same places."""
    a, b = np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b)
    return float(np.linalg.norm(apart))
