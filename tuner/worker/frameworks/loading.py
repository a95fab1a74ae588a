"""An endless stream of the batches that a user's loader gives, epoch after epoch."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tuner.errors import UsageError


class BatchStream(ABC):
    """What loaders of all frameworks have in common; a subclass knows tensors and loaders."""

    usual = ""
    """What the user's function should return, in words."""

    def __init__(
        self,
        make: Callable[[int], Any],
        batch: int,
        expected: Sequence[tuple[int, ...]],
        axes: Sequence[int],
    ) -> None:
        """Call make, the user's function of the batch.

        expected: the shapes of the arrays of a batch. axes: which dimension of each is the batch.

        Raises UsageError for what is no loader of such batches.
        """
        self._expected, self._axes = tuple(expected), axes
        try:
            made = make(batch)
            self._check(made)
            self.made = self.as_set(made)
        except UsageError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise _fault(error) from error
        self._batches: Iterator[Any] | None = None
        self.wait_s = 0.0
        """Seconds that the last batch was waited for."""

    def as_set(self, made: Any) -> Any:
        """Return the loader with what is set, else as it is."""
        return made

    def epoch(self) -> Iterator[Any]:
        """Return the batches of an epoch."""
        return iter(self.made)

    @abstractmethod
    def tensors_of(self, made: Any) -> tuple[Any, ...]:
        """Return the tensors of a batch; raises UsageError for another thing."""

    def next(self) -> tuple[Any, ...]:
        """Return the tensors of the next whole batch.

        Smaller ones, at the end of an epoch, are left out. Raises UsageError for other batches.
        """
        begun = time.perf_counter()
        for _ in range(2):  # the rest of this epoch, and the next one
            try:
                if self._batches is None:
                    self._batches = self.epoch()
                for made in self._batches:
                    if (found := self._whole(made)) is not None:
                        self.wait_s = time.perf_counter() - begun
                        return found
            except UsageError:
                raise
            except Exception as error:
                raise _fault(error) from error
            self._batches = None
        raise UsageError("loader() gives no batch of the stated size in an epoch")

    def _whole(self, made: Any) -> tuple[Any, ...] | None:
        """Return a batch's tensors; None of one that is smaller than the others."""
        tensors = self.tensors_of(made)
        shapes = tuple(tuple(t.shape) for t in tensors)
        if shapes == self._expected:
            return tensors
        is_smaller = len(shapes) == len(self._expected) and all(
            len(s) == len(e) and s[axis] < e[axis] and s == (*e[:axis], s[axis], *e[axis + 1 :])
            for s, e, axis in zip(shapes, self._expected, self._axes, strict=True)
        )
        if is_smaller:
            return None
        raise UsageError(
            f"loader() gives a batch of shapes {_listed(shapes)}; the model's file states "
            f"{_listed(self._expected)}, inputs and then targets"
        )

    def _check(self, made: Any) -> None:
        kind = type(made).__name__
        if not hasattr(made, "__iter__") and not hasattr(made, "__getitem__"):
            raise UsageError(
                f"loader() returned an object of type {kind}; it must return {self.usual}, or "
                "another iterable of batches"
            )
        if hasattr(made, "__next__"):
            raise UsageError(
                f"loader() returned an object of type {kind}, which ends with its first epoch; "
                f"return what can be iterated over again, such as {self.usual}"
            )


def _fault(error: Exception) -> UsageError:
    first_line = str(error).strip().partition("\n")[0]
    return UsageError(f"loader() raised {type(error).__name__}: {first_line}")


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes)) or "none"
