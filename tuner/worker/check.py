"""Whether a configuration's outputs are still the model's: a check that can fail.

Drift of an output tensor = ||y - y0|| / ||y0 - mean over inputs of y0||, y0 the default's outputs:
relative to how much the outputs tell inputs apart, so that a constant or an exchanged output has a
drift of about 1, however large its common part is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.record.launch import OutputCheck

MAX_DRIFT_SAME = 1e-4
MAX_DRIFT_REDUCED = 5e-2
# A class is clear if it leads by this many times the typical (RMS) error of a score. Plain bf16
# rounding flipped classes that led by up to 5.9 times it (a small network; 2.3 on resnet50).
_MARGIN = 8.0
MIN_TOP1_INPUTS = 64
MIN_TOP1_CLASSES = 16

Array = npt.NDArray[np.floating]


def compare(outputs: Sequence[Array], reference: Sequence[Array], has_classes: bool) -> OutputCheck:
    """Compare outputs with the reference's first inputs; each array has the input axis first.

    A wrong number of outputs, a wrong shape or a value that is not finite is infinite drift.
    """
    n_inputs = int(outputs[0].shape[0]) if outputs else 0
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
        spread = full.astype(np.float64) - full.mean(axis=0, dtype=np.float64)
        scale = np.sqrt((spread**2).sum() * len(y) / len(full))
        error = np.linalg.norm(a - b)
        drift = max(drift, float(error / scale) if scale > 0 else float(error > 0) * np.inf)
    if not has_classes:
        return OutputCheck(drift, n_inputs)
    return _with_top1(drift, outputs[0].astype(np.float64), reference[0].astype(np.float64))


def _with_top1(
    drift: float, y: npt.NDArray[np.float64], full: npt.NDArray[np.float64]
) -> OutputCheck:
    y0 = full[: len(y)].reshape(len(y), -1)
    y = y.reshape(len(y), -1)
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


def fault(check: OutputCheck, changes_numerics: bool) -> str | None:
    """Return why the outputs are wrong, or None if they may stand."""
    bound = MAX_DRIFT_REDUCED if changes_numerics else MAX_DRIFT_SAME
    if not check.drift <= bound:  # also where it is not a number
        return f"outputs drift by {check.drift:.2g} from the default's, allowed is {bound:g}"
    if check.top1_informative and check.top1_agreement != 1.0:
        return (
            f"top-1 differs on {1 - (check.top1_agreement or 0):.1%} of {check.top1_inputs} inputs "
            "with a clear class"
        )
    return None
