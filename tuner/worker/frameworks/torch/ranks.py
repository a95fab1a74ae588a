"""Several processes that train one model on one host, each on its part of every batch.

This process starts the others (tuner/worker/rank.py) and tells them what to do; gradients are
averaged by DistributedDataParallel over gloo.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tuner.record.protocol import Begin
from tuner.worker.frameworks import Array

LOOPBACK = "lo"
_BATCH, _STORE, _BUILT = "batch.npz", "store", "built-"
_POLL_S = 0.05
_HANGS = timedelta(minutes=5)


class Rank:
    """A process among those that train a model."""

    def __init__(self, torch: Any, number: int, n: int, folder: Path) -> None:
        """Wait for the others. number: of this process, from 0. folder: theirs in common."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        self.number, self.n = number, n
        self._torch, self._folder = torch, folder
        store = f"file://{folder / _STORE}"
        (folder / f"{_BUILT}{number}").touch()
        torch.distributed.init_process_group(
            "gloo", store, timeout=_HANGS, rank=number, world_size=n
        )

    def wrapped(self, model: Any) -> Any:
        """Return the model as one whose backward pass averages gradients over all processes."""
        return self._torch.nn.parallel.DistributedDataParallel(model)

    def mean(self, loss: float) -> float:
        """Return the mean loss of all processes, which all have to ask for."""
        whole = self._torch.tensor([loss], dtype=self._torch.float64)
        self._torch.distributed.all_reduce(whole)
        return float(whole) / self.n

    def bound(self) -> list[Array]:
        """Read the batch that the first process has bound."""
        with np.load(self._folder / _BATCH) as kept:
            return [kept[name] for name in kept.files]

    def tell(self, order: str) -> None:
        """Do nothing: only the first process is followed."""

    def bind(self, arrays: Sequence[Array]) -> None:
        """Do nothing, likewise."""


class FirstRank(Rank):
    """The process that is measured, and that the others follow."""

    def __init__(self, torch: Any, order: Begin, n: int, cpus: Collection[int]) -> None:
        """Start the others, and wait until they have built the model.

        cpus: on which they may run; an OpenMP runtime may have bound this thread to one of them.
        """
        self._temporary = tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True)
        folder, own = Path(self._temporary.name), ",".join(map(str, sorted(cpus)))
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tuner.worker.rank", str(number), str(n), str(folder), own],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            for number in range(1, n)
        ]
        self.tell(msgspec.json.encode(order).decode())
        while not all((folder / f"{_BUILT}{number}").exists() for number in range(1, n)):
            if any(process.poll() is not None for process in self._processes):
                raise ChildProcessError("another rank ended before it had built the model")
            time.sleep(_POLL_S)
        super().__init__(torch, 0, n, folder)

    def tell(self, order: str) -> None:
        """Tell all others; raises BrokenPipeError if one has gone."""
        line = f"{order}\n".encode()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()

    def bind(self, arrays: Sequence[Array]) -> None:
        """Have the others bind a batch, of which each takes its part."""
        draft = self._folder / f"draft-{_BATCH}"
        np.savez(draft, *arrays)
        draft.replace(self._folder / _BATCH)
        self.tell("bind")

    @property
    def others(self) -> list[int]:
        """The process numbers of those that were started from here."""
        return [process.pid for process in self._processes]
