"""Weights in a mapped file: instances that map the same one share its pages, in memory and cache.

Each content has its own file, so that processes share exactly if their weights are equal. It is
next to the compiler's cache in a study; in a user's program, in the user's cache folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.worker.engines.conversion import PACKAGES
from tuner.worker.evidence.process import mapped_file

WEIGHTS = "torch.weights"
_MOST = 0.9
"""Share of the parameters' bytes that must lie in mapped files to call the weights mapped."""


def _folder() -> Path:
    if kept := os.environ.get(PACKAGES):
        return Path(kept)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "tune-framework"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def map_weights(torch: Any, model: Any) -> None:
    """Exchange the model's parameters and buffers for equal ones in a mapped file, in place.

    The first process that needs the file writes it; the others wait for it.
    """
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    path = _folder() / f"weights-{digest.hexdigest()[:16]}.pt"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            draft = path.with_suffix(".new")
            torch.save(state, draft)
            draft.replace(path)
    model.load_state_dict(torch.load(path, mmap=True, weights_only=True), assign=True)


def read_back(model: Any, settings: Mapping[str, Value]) -> ReadBack:
    """Find where the parameters are: in mapped files, or in this process's own memory."""
    total = mapped = 0
    files: dict[int, bool] = {}
    for parameter in model.parameters():
        storage = parameter.untyped_storage()
        if storage.data_ptr() not in files:
            files[storage.data_ptr()] = mapped_file(parameter.data_ptr()).startswith("/")
        size = parameter.numel() * parameter.element_size()
        total += size
        mapped += size * files[storage.data_ptr()]
    value = "mapped" if total and mapped >= _MOST * total else "private"
    how = f"{mapped >> 20} of {total >> 20} MiB of parameters lie in a mapped file"
    return ReadBack(WEIGHTS, settings.get(WEIGHTS), value, "effective", how)
