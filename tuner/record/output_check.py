"""How far a configuration's outputs are from the default's, and how far they may be."""

from __future__ import annotations

import msgspec

MAX_DRIFT_SAME = 1e-4
"""Drift up to which outputs count as the default's where no setting changes numerics."""
SAME_AS_DEFAULT = 1.5
"""Where the default itself rounds more coarsely than fp32 (cuDNN convolves in TF32), outputs may be
so many times as far from exact ones as its own. Measured on an H100, resnet50: the default is off
by 2.0e-3, compiled and with folded norms too; from each other they are 5e-4 to 2.6e-3 away."""
MAX_DRIFT_REDUCED = 5e-2
"""The same for reduced precision, unless the model states a bound of its own."""


class OutputCheck(msgspec.Struct, frozen=True):
    """How far the outputs are from the default's, and whether that is allowed.

    drift: the largest over output tensors of ||y - y0|| / ||y0 - mean over inputs of y0||.
    top1_agreement: share of equal top-1 classes over the `top1_inputs` inputs whose margin exceeds
    the drift; None where the model has no classes. `top1_informative` is False where they fall
    into too few classes to mean anything. accuracy: what the user's function made of these outputs
    and of the default's; None where there is no such function, or numerics are the same.
    """

    drift: float
    n_inputs: int
    top1_agreement: float | None = None
    top1_inputs: int = 0
    top1_classes: int = 0
    top1_informative: bool = False
    accuracy: float | None = None
    default_accuracy: float | None = None
    default_drift: float = 0.0
    """How far the default itself is from fp32 that rounds nothing else: outputs are compared with
    those. 0 where the default is exact."""


def same_bound(default_drift: float) -> float:
    """Return the drift up to which outputs count as the default's, by that of the default itself.

    Never more than reduced precision may have.
    """
    return min(max(MAX_DRIFT_SAME, SAME_AS_DEFAULT * default_drift), MAX_DRIFT_REDUCED)
