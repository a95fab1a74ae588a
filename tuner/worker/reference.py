"""The study's reference: what every launch restores, and what every output is compared with.

Written once per study, by a process that measures nothing, as an .npz file:
  version         of this format (record/protocol.py)
  tensor:NAME     a conditioned tensor (batch-norm statistics, damped scales)
  output:0 ...    what is kept of the default's outputs, those for every shape of inputs after
                  each other (kept.py)
  sums:0 ...      sums of all elements, for the outputs of which only some are kept
  sample_seed     which elements those are
  accuracy        the result of the user's accuracy function for the outputs, if there is one
  drift, changed  how far the default's own outputs are from these, if these are more exact
  output_dims     which dimension of each of the model's outputs is the batch; the first of all, if
                  it is missing
  draws           there if a step of training draws random numbers
In training the outputs are losses and gradients (training.py).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from tuner.errors import UsageError
from tuner.record.numerics import Level
from tuner.record.output_check import bounds_of
from tuner.record.protocol import REFERENCE_VERSION
from tuner.worker import check
from tuner.worker.accuracy import Scores
from tuner.worker.frameworks import Build, Tensors
from tuner.worker.kept import Kept

FIRST_CHECK_INPUT = 1_000
FIRST_CONDITIONING_INPUT = 2_000
N_CONDITIONING_INPUTS = 32
FIRST_CALIBRATION_INPUT = 3_000
N_CALIBRATION_INPUTS = 64
"""For the ranges of activations in static quantization. From one call of four, resnet50 in int8
drifts by 0.24 in OpenVINO."""


class OwnError(msgspec.Struct, frozen=True):
    """How far the default's own outputs are from the reference's; 0 if it is exact."""

    drift: float = 0.0
    changed: float = 0.0
    """Share of its integers that differ."""


class Facts(msgspec.Struct, frozen=True):
    """The content of a reference besides outputs and tensors."""

    accuracy: Scores | None = None
    """What the user's accuracy function says of the default."""
    own: OwnError = OwnError()
    sample_seed: int = 0
    output_dims: tuple[int, ...] = ()
    """Which dimension of each of the model's outputs is the batch; the first of all, if empty."""
    draws: bool = False
    """Whether a step of training draws random numbers, which are switched off to compare it."""


def exact(
    build: Build,
    outputs: list[Kept],
    outputs_at: Callable[[int], list[Kept]],
    batches: Sequence[int],
    n_shapes: int,
) -> tuple[list[Kept], OwnError]:
    """Return outputs rounded only to fp32, and how far the default's are from them.

    outputs: the default's, at the first of the batches. Other batches may have other kernels, which
    round differently: the distance is the largest over all. Raises UsageError if it is not finite.
    """
    exactly = build.exact()
    if exactly is None:
        return outputs, OwnError()
    first, *others = dict.fromkeys(batches)
    by_default = [outputs]
    for batch in others:
        # one that there is no room for says nothing here; where it is measured, that is its outcome
        with contextlib.suppress(*build.out_of_memory_errors()):
            by_default.append(outputs_at(batch))
    with exactly:
        found = outputs_at(first)
    # how far it is off is not known yet, but it is: nothing is hidden below the largest bound's
    # share of rounding
    bounds = bounds_of(Level.REDUCED, default_drift=1.0)
    compared = [check.compare(each, found, bounds, n_shapes=n_shapes) for each in by_default]
    drift = max(each.drift for each in compared)
    if not math.isfinite(drift):
        raise UsageError(
            "the default's outputs are not finite, or change their shape with the batch: nothing "
            "can be compared with them"
        )
    return found, OwnError(drift, max(each.changed or 0.0 for each in compared))


def write(
    path: Path, tensors: Tensors, outputs: Sequence[Kept], facts: Facts | None = None
) -> None:
    """Write the reference so that it is there whole or not at all."""
    facts = facts or Facts()
    arrays = {f"tensor:{name}": value for name, value in tensors.items()}
    for i, kept in enumerate(outputs):
        arrays[f"output:{i}"] = kept.values
        if kept.sums is not None:
            arrays[f"sums:{i}"] = kept.sums
    arrays["version"] = np.asarray(REFERENCE_VERSION)
    arrays["sample_seed"] = np.asarray(facts.sample_seed)
    if facts.accuracy is not None:
        arrays["accuracy"] = facts.accuracy
    arrays["drift"] = np.asarray(facts.own.drift, dtype=np.float64)
    arrays["changed"] = np.asarray(facts.own.changed, dtype=np.float64)
    if any(facts.output_dims):
        arrays["output_dims"] = np.asarray(facts.output_dims, dtype=np.int64)
    if facts.draws:
        arrays["draws"] = np.asarray(True)
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


def read_outputs(path: Path) -> list[Kept]:
    """Return what is kept of the default's outputs."""
    with np.load(path, allow_pickle=False) as file:
        n_outputs = sum(k.startswith("output:") for k in file)
        return [Kept(file[f"output:{i}"], file.get(f"sums:{i}")) for i in range(n_outputs)]


def read_facts(path: Path) -> Facts:
    """Return what else is known of them."""
    with np.load(path, allow_pickle=False) as file:
        return Facts(
            file.get("accuracy"),
            OwnError(float(file["drift"]), float(file["changed"])),
            int(file["sample_seed"]),
            tuple(file["output_dims"].tolist()) if "output_dims" in file else (),
            "draws" in file,
        )
