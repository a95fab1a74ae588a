"""The study's reference: what every launch restores, and what every output is compared with.

Written once per study, by a process that measures nothing, as an .npz file:
    tensor:NAME     a conditioned tensor (batch-norm statistics, damped scales)
    output:0 ...    the default's outputs, those for every shape of inputs after each other; the
                    batch first
    accuracy        what the user's accuracy function makes of them, if there is one
    output_dims     which dimension of each of the model's outputs is the batch; all the first, if
                    it is not there
    drift           how far the default's own outputs are from these, where these are more exact
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tuner.errors import UsageError
from tuner.worker import check
from tuner.worker.frameworks import Array, Build, Tensors

FIRST_CHECK_INPUT = 1_000
FIRST_CONDITIONING_INPUT = 2_000
N_CONDITIONING_INPUTS = 32


def exact(
    build: Build,
    outputs: list[Array],
    outputs_at: Callable[[int], list[Array]],
    batches: Sequence[int],
    n_shapes: int,
) -> tuple[list[Array], float]:
    """Return outputs that are rounded to fp32 and no more, and how far the default's are from them.

    outputs: the default's, at the first of the batches. Other batches may have other kernels, which
    round otherwise: the distance is the largest over all. Raises UsageError where it is not finite.
    """
    exactly = build.exact()
    if exactly is None:
        return outputs, 0.0
    first, *others = dict.fromkeys(batches)
    by_default = [outputs]
    for batch in others:
        # one that there is no room for says nothing here; where it is measured, that is its outcome
        with contextlib.suppress(*build.out_of_memory_errors()):
            by_default.append(outputs_at(batch))
    with exactly:
        found = outputs_at(first)
    drift = max(check.compare(each, found, False, n_shapes).drift for each in by_default)
    if not math.isfinite(drift):
        raise UsageError(
            "the default's outputs are not finite, or change their shape with the batch: nothing "
            "can be compared with them"
        )
    return found, drift


def write(
    path: Path,
    tensors: Tensors,
    outputs: Sequence[Array],
    accuracy: float | None = None,
    drift: float = 0.0,
    output_dims: Sequence[int] = (),
) -> None:
    """Write the reference so that it is there whole or not at all."""
    arrays = {f"tensor:{name}": value for name, value in tensors.items()}
    arrays |= {f"output:{i}": value for i, value in enumerate(outputs)}
    if accuracy is not None:
        arrays["accuracy"] = np.asarray(accuracy, dtype=np.float64)
    if drift:
        arrays["drift"] = np.asarray(drift, dtype=np.float64)
    if any(output_dims):
        arrays["output_dims"] = np.asarray(output_dims, dtype=np.int64)
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub takes its keywords for flags
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_tensors(path: Path) -> Tensors:
    """Return the conditioned tensors by name."""
    with np.load(path, allow_pickle=False) as file:
        return {k.removeprefix("tensor:"): file[k] for k in file if k.startswith("tensor:")}


def read_outputs(path: Path) -> list[Array]:
    """Return the default's outputs."""
    with np.load(path, allow_pickle=False) as file:
        n_outputs = sum(k.startswith("output:") for k in file)
        return [file[f"output:{i}"] for i in range(n_outputs)]


def read_output_dims(path: Path, n_outputs: int) -> tuple[int, ...]:
    """Return which dimension of each of the model's outputs is the batch."""
    with np.load(path, allow_pickle=False) as file:
        return tuple(file["output_dims"].tolist()) if "output_dims" in file else (0,) * n_outputs


def read_accuracy(path: Path) -> float | None:
    """Return the accuracy of the default's outputs; None where there is no function for it."""
    with np.load(path, allow_pickle=False) as file:
        return float(file["accuracy"]) if "accuracy" in file else None


def read_drift(path: Path) -> float:
    """Return how far the default's own outputs are from the reference's; 0 where these are its."""
    with np.load(path, allow_pickle=False) as file:
        return float(file["drift"]) if "drift" in file else 0.0
