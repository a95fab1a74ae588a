"""Batches from a data loader of the user's, in the place of one that lies in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.host.interference import cpu_seconds
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.torch import LOADER_PREFETCH, LOADER_WORKERS
from tuner.worker.frameworks.loading import BatchStream

_USUAL_PREFETCH = 2
"""Batches that each worker process makes ahead: PyTorch's default."""


class Loader(BatchStream):
    """The batches of a DataLoader, or of another iterable.

    Its worker processes start with the first batch, and live until the process ends or, unless they
    are persistent, until the epoch does.
    """

    usual = "a torch.utils.data.DataLoader"

    def __init__(
        self,
        torch: Any,
        make: Callable[[int], Any],
        batch: int,
        expected: Sequence[tuple[int, ...]],
        axes: Sequence[int],
        settings: Mapping[str, Value],
    ) -> None:
        """settings: of the loader; the other arguments are BatchStream's."""
        self._torch = torch
        self._settings = settings
        super().__init__(make, batch, expected, axes)

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

    def used_s(self) -> float:
        """Return the CPU seconds of its workers."""
        return cpu_seconds(self.workers())

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

    def tensors_of(self, made: Any) -> tuple[Any, ...]:
        """Return a tensor, or those of a list or tuple."""
        tensors = tuple(made) if isinstance(made, list | tuple) else (made,)
        if not all(map(self._torch.is_tensor, tensors)):
            kind = type(made).__name__ if len(tensors) == 1 else type(made).__name__ + " of others"
            raise UsageError(
                f"loader() gives a {kind}; a batch must be a tensor, or a list or tuple of tensors"
            )
        return tensors

    def as_set(self, made: Any) -> Any:
        """Return the loader with the worker processes that are set, else as it is."""
        data = self._torch.utils.data
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
