"""Batches from a data loader of the user's, in the place of one that lies in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.torch import LOADER_PREFETCH, LOADER_WORKERS

_USUAL_PREFETCH = 2
"""Batches that each worker process makes ahead: PyTorch's default."""


class Loader:
    """An endless stream of the batches that a user's loader gives, epoch after epoch.

    Its worker processes start with the first batch, and live until the process ends or, unless they
    are persistent, until the epoch does.
    """

    def __init__(
        self,
        torch: Any,
        make: Callable[[int], Any],
        batch: int,
        expected: Sequence[tuple[int, ...]],
        axes: Sequence[int],
        settings: Mapping[str, Value],
    ) -> None:
        """Call make, the user's function of the batch.

        expected: the shapes of the arrays of a batch. axes: which dimension of each is the batch.

        Raises UsageError for what is no loader of such batches.
        """
        self._torch = torch
        self._expected, self._axes = tuple(expected), axes
        self._settings = settings
        try:
            made = make(batch)
            self.made = self._as_set(made)
        except UsageError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise self._fault(error) from error
        self._batches: Iterator[Any] | None = None
        self.wait_s = 0.0
        """Seconds that the last batch was waited for."""

    @property
    def divides(self) -> bool:
        """Whether worker processes can share its work: each makes batches of its own.

        Those of an iterable data set would each make all of them.
        """
        data = self._torch.utils.data
        return type(self.made) is data.DataLoader and not isinstance(
            self.made.dataset, data.IterableDataset
        )

    @property
    def n_ahead(self) -> int:
        """Batches that worker processes may have ready."""
        workers = getattr(self.made, "num_workers", 0)
        return int(workers * (getattr(self.made, "prefetch_factor", None) or 0))

    def in_words(self) -> str:
        """Name the class of the loader, and its worker processes."""
        name = type(self.made).__name__
        return f"{name} with {self.made.num_workers} worker processes" if self.divides else name

    def workers(self) -> list[int]:
        """Return the process numbers of its workers that are alive."""
        processes = getattr(self._batches, "_workers", ())  # PyTorch has no name for them
        return [each.pid for each in processes if each.is_alive()]

    def read_back(self) -> list[ReadBack]:
        """Report the settings in force, if they are this loader's, after a first batch."""
        if not self.divides:
            return []
        n, of = len(self.workers()), self.made.num_workers
        how = f"{n} worker processes of the DataLoader are alive, num_workers is {of}"
        found = [ReadBack(LOADER_WORKERS, self._settings.get(LOADER_WORKERS), n, "effective", how)]
        if n:
            factor = self.made.prefetch_factor
            how = "the attribute of the DataLoader"
            found.append(
                ReadBack(
                    LOADER_PREFETCH, self._settings.get(LOADER_PREFETCH), factor, "accepted", how
                )
            )
        return found

    def next(self) -> tuple[Any, ...]:
        """Return the tensors of the next whole batch.

        Smaller ones, at the end of an epoch, are left out. Raises UsageError for other batches.
        """
        begun = time.perf_counter()
        for _ in range(2):  # the rest of this epoch, and the next one
            try:
                if self._batches is None:
                    self._batches = iter(self.made)
                for made in self._batches:
                    if (found := self._whole(made)) is not None:
                        self.wait_s = time.perf_counter() - begun
                        return found
            except UsageError:
                raise
            except Exception as error:
                raise self._fault(error) from error
            self._batches = None
        raise UsageError("loader() gives no batch of the stated size in an epoch")

    def _whole(self, made: Any) -> tuple[Any, ...] | None:
        """Return a batch's tensors; None of one that is smaller than the others."""
        tensors = tuple(made) if isinstance(made, list | tuple) else (made,)
        if not all(map(self._torch.is_tensor, tensors)):
            kind = type(made).__name__ if len(tensors) == 1 else type(made).__name__ + " of others"
            raise UsageError(
                f"loader() gives a {kind}; a batch must be a tensor, or a list or tuple of tensors"
            )
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

    def _as_set(self, made: Any) -> Any:
        """Return the loader with the worker processes that are set, else as it is."""
        data = self._torch.utils.data
        if not hasattr(made, "__iter__"):
            raise UsageError(
                f"loader() returned a {type(made).__name__}; it must return a "
                "torch.utils.data.DataLoader, or another iterable of batches"
            )
        if hasattr(made, "__next__"):
            raise UsageError(
                f"loader() returned a {type(made).__name__}, which ends with its first epoch; "
                "return what can be iterated over again, such as a DataLoader"
            )
        if not {LOADER_WORKERS, LOADER_PREFETCH} & set(self._settings):
            return made
        if type(made) is not data.DataLoader:
            raise UsageError(f"{LOADER_WORKERS} is a setting of a DataLoader")
        n = int(self._settings.get(LOADER_WORKERS, made.num_workers))
        ahead = self._settings.get(LOADER_PREFETCH, made.prefetch_factor) or _USUAL_PREFETCH
        persists = made.persistent_workers
        chosen = (
            {"batch_sampler": made.batch_sampler}
            if made.batch_sampler is not None
            else {"batch_size": None, "sampler": made.sampler}
        )
        return data.DataLoader(
            made.dataset,
            **chosen,
            num_workers=n,
            prefetch_factor=ahead if n else None,
            persistent_workers=n > 0 and (LOADER_WORKERS in self._settings or persists),
            in_order=made.in_order,
            collate_fn=made.collate_fn,
            pin_memory=made.pin_memory,
            timeout=made.timeout if n else 0,
            worker_init_fn=made.worker_init_fn,
            multiprocessing_context=made.multiprocessing_context if n else None,
            generator=made.generator,
        )

    @staticmethod
    def _fault(error: Exception) -> UsageError:
        first_line = str(error).strip().partition("\n")[0]
        return UsageError(f"loader() raised {type(error).__name__}: {first_line}")


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes)) or "none"
