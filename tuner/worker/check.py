"""Whether a configuration's outputs are still the model's: a check that can fail.

Drift of an output tensor = ||y - y0|| / ||y0 - mean over inputs of y0||, y0 the default's outputs:
relative to how much the outputs tell inputs apart, so that a constant or an exchanged output has a
drift of about 1, however large its common part is.

A user's accuracy function stands in the place of the bound for reduced precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.record.output_check import (
    MAX_DRIFT_REDUCED,
    OutputCheck,
    same_bound,
)

# A class is clear if it leads by this many times the typical (RMS) error of a score. Plain bf16
# rounding flipped classes that led by up to 5.9 times it (a small network; 2.3 on resnet50).
_MARGIN = 8.0
MIN_TOP1_INPUTS = 64
MIN_TOP1_CLASSES = 16
_CONSTANT_BELOW = 1e-6
"""Relative spread over inputs below which an output is a constant, rounding apart."""
MAX_ELEMENTS = 8192
"""Per input and output tensor; of larger ones as many elements are compared, spread at random."""

Array = npt.NDArray[np.floating]


def thinned(output: Array) -> Array:
    """Return an output (inputs, ...) as it is, or of a large one some elements (inputs, elements).

    The elements are the same at every call. Something that is not finite anywhere stays so.
    """
    size = int(np.prod(output.shape[1:]))
    if size <= MAX_ELEMENTS:
        return output
    chosen = np.sort(np.random.default_rng(size).choice(size, MAX_ELEMENTS, replace=False))
    kept = output.reshape(len(output), -1)[:, chosen]
    return kept if np.isfinite(output).all() else np.full_like(kept, np.nan)


def compare(
    outputs: Sequence[Array], reference: Sequence[Array], has_classes: bool, n_shapes: int = 1
) -> OutputCheck:
    """Compare outputs with the reference's first inputs; each array has the input axis first.

    n_shapes: how many sets of output tensors follow each other, for inputs of different shapes.
    A wrong number of outputs, a wrong shape or a value that is not finite is infinite drift.
    """
    every = max(1, len(outputs) // n_shapes)  # output 0 of each shape
    n_inputs = sum(len(y) for y in outputs[::every])
    lost = OutputCheck(float("inf"), n_inputs)
    if len(outputs) != len(reference):
        return lost
    drift = 0.0
    for y, full in zip(outputs, reference, strict=True):
        y0 = full[: len(y)]
        if y.shape != y0.shape or not np.isfinite(y).all():
            return lost
        a, b = y.astype(np.float64), y0.astype(np.float64)
        # the spread over all of the reference's inputs: the yardstick is one for every check
        scale = _spread(full)[0] * np.sqrt(len(y) / len(full))
        error = np.linalg.norm(a - b)
        drift = max(drift, float(error / scale) if scale > 0 else float(error > 0) * np.inf)
    if not has_classes:
        return OutputCheck(drift, n_inputs)
    scores = [y.reshape(len(y), -1).astype(np.float64) for y in outputs[::every]]
    defaults = [y.reshape(len(y), -1).astype(np.float64) for y in reference[::every]]
    pairs = list(zip(scores, defaults, strict=True))
    return _with_top1(
        drift, np.concatenate(scores), np.concatenate([y0[: len(y)] for y, y0 in pairs])
    )


def _with_top1(
    drift: float, y: npt.NDArray[np.float64], y0: npt.NDArray[np.float64]
) -> OutputCheck:
    best = np.sort(y0, axis=1)
    margin = best[:, -1] - best[:, -2]
    error = np.sqrt(((y - y0) ** 2).mean())
    counted = margin > _MARGIN * error
    n_counted = int(counted.sum())
    classes = y0.argmax(axis=1)[counted]
    agree = y.argmax(axis=1)[counted] == classes
    n_classes = len(set(classes.tolist()))
    return OutputCheck(
        drift=drift,
        n_inputs=len(y),
        top1_agreement=float(agree.mean()) if n_counted else None,
        top1_inputs=n_counted,
        top1_classes=n_classes,
        top1_informative=n_counted >= MIN_TOP1_INPUTS and n_classes >= MIN_TOP1_CLASSES,
    )


def blind_spot(outputs: Sequence[Array]) -> str:
    """Return why a check against these outputs of the default could not fail; empty if it can."""
    if not all(np.isfinite(y).all() for y in outputs):
        return "the default's own outputs are not finite: give inputs that the model is made for"
    if all(_spread(y)[1] for y in outputs):
        return (
            "the outputs do not depend on the inputs: no check of them could notice a fault; give "
            "inputs that the model is made for (--inputs FILE.npz)"
        )
    return ""


def _spread(y: Array) -> tuple[float, bool]:
    """Return how much outputs differ between inputs, and whether that is rounding alone.

    Where it is, the size of the outputs is returned in its place: what it should be compared with.
    """
    full = y.astype(np.float64)
    spread, size = float(np.linalg.norm(full - full.mean(axis=0))), float(np.linalg.norm(full))
    is_constant = spread <= _CONSTANT_BELOW * size
    return (size if is_constant else spread), is_constant


def fault(
    check: OutputCheck,
    changes_numerics: bool,
    tolerance: float | None = None,
    accuracy_loss: float = 0.0,
) -> str | None:
    """Return why the outputs are wrong, or None if they may stand.

    tolerance: the drift that the user allows under reduced precision. accuracy_loss: by how much
    the user's accuracy may fall, which then decides alone.
    """
    is_judged = check.accuracy is not None and check.default_accuracy is not None
    if changes_numerics and is_judged and np.isfinite(check.drift):
        assert check.accuracy is not None
        assert check.default_accuracy is not None
        if check.accuracy >= check.default_accuracy - accuracy_loss:
            return None
        return (
            f"accuracy is {check.accuracy:.4g}, the default's is {check.default_accuracy:.4g}, "
            f"allowed is a loss of {accuracy_loss:g}"
        )
    same = same_bound(check.default_drift)
    # the default's own rounding is in what is compared, whatever the user allows besides
    reduced = MAX_DRIFT_REDUCED if tolerance is None else tolerance
    if check.default_drift:
        reduced = max(reduced, same)
    bound = reduced if changes_numerics else same
    if not np.isfinite(check.drift):
        return "outputs are not finite, or of another number or shape than the default's"
    if check.drift > bound:
        of = "exact fp32's" if check.default_drift else "the default's"
        return f"outputs drift by {check.drift:.2g} from {of}, allowed is {bound:g}"
    if check.top1_informative and check.top1_agreement != 1.0:
        return (
            f"top-1 differs on {1 - (check.top1_agreement or 0):.1%} of {check.top1_inputs} inputs "
            "with a clear class"
        )
    return None
