"""Batches from a tf.data.Dataset or a keras.utils.PyDataset of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.host.interference import cpu_seconds
from tuner.worker.frameworks.loading import BatchStream

_MOST_AHEAD = 1000
"""Batches that threads may have ready: tf.data does not tell the size of a buffer that it tunes."""


class Loader(BatchStream):
    """The batches of a data set, or of another iterable; threads of this process make them."""

    usual = "a tf.data.Dataset or a keras.utils.PyDataset"
    n_ahead = _MOST_AHEAD

    def __init__(
        self,
        tf: Any,
        make: Callable[[int], Any],
        batch: int,
        expected: Sequence[tuple[int, ...]],
        axes: Sequence[int],
    ) -> None:
        """The arguments are BatchStream's."""
        self._tf = tf
        super().__init__(make, batch, expected, axes)

    def in_words(self) -> str:
        """Name the class of the loader."""
        is_dataset = isinstance(self.made, self._tf.data.Dataset)
        return "tf.data.Dataset" if is_dataset else type(self.made).__name__

    def workers(self) -> list[int]:
        """Return none: its threads are this process's."""
        return []

    def used_s(self) -> float:
        """Return the CPU seconds of this process."""
        return cpu_seconds([os.getpid()])

    def epoch(self) -> Iterator[Any]:
        """Return the batches of an epoch; those of a PyDataset by their numbers."""
        made = self.made
        if isinstance(made, self._tf.keras.utils.PyDataset):
            return map(made.__getitem__, range(made.num_batches))
        return iter(made)

    def as_set(self, made: Any) -> Any:
        """Return the loader; raises UsageError for one whose workers fit() alone would start."""
        is_numbered = isinstance(made, self._tf.keras.utils.PyDataset)
        if is_numbered and (made.workers > 1 or made.use_multiprocessing):
            raise UsageError(
                f"loader() returned a PyDataset with workers={made.workers}, which fit() alone "
                "starts: they are not measured; return a tf.data.Dataset, or one without workers"
            )
        return made

    def tensors_of(self, made: Any) -> tuple[Any, ...]:
        """Return the arrays of a batch, however nested, as tensors."""
        found = []
        for part in self._tf.nest.flatten(made):
            if not hasattr(part, "shape"):
                raise UsageError(
                    f"loader() gives a batch with an object of type {type(part).__name__}; it must "
                    "hold arrays or tensors: the inputs, then the targets"
                )
            found.append(self._tf.convert_to_tensor(part))
        return tuple(found)
