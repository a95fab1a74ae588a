"""How far a configuration's outputs are from the default's, and how far they may be.

Evidence for the bounds: docs/method.md, "Outputs".
"""

from __future__ import annotations

import msgspec

from tuner.record.numerics import Level

MAX_DRIFT_SAME = 1e-4
"""Drift up to which outputs count as the default's, for settings that keep the numerics."""
SAME_AS_DEFAULT = 1.5
"""If the default itself rounds more coarsely than fp32 (cuDNN convolves in TF32), outputs may be
this many times as far from exact ones as its own. Measured on an H100, resnet50: the default is off
by 2.0e-3, compiled and with folded norms too; from each other they are 5e-4 to 2.6e-3 away."""
MAX_DRIFT_REDUCED = 5e-2
"""The same for reduced precision, unless the model states a bound of its own."""
MAX_DRIFT_INT8 = 0.15
"""The same for int8."""
MAX_DRIFT_TRAINING = 0.25
"""The same for losses and gradients, relative to how much they differ between batches: it adds its
square, 6 %, to the variance that the choice of a batch has."""
CHANNEL_FACTOR = 10.0
"""A channel may drift this many times as far as its whole tensor. Plain bf16 within the drift above
reached 3 times in most built-in models (0.09), and 16 times (0.21) in one of squeezenet's classes,
which a rectifier keeps at 0 for most inputs. 0.26 in one of 25,600 such numbers was the most."""
MAX_CHANNEL_DRIFT = 0.5
"""The most for a channel, whatever the factor: one that no longer depends on the inputs has 1."""
MAX_CHANGED_REDUCED = 0.10
"""Share of the top-1 classes, and of other integers, that reduced precision may change. Plain bf16
within the drift above changed 0 to 7.0 % of the classes of random networks, about 1.8 times the
drift; trained ones have larger margins."""
BY_CHANCE = 2
"""This many more inputs (or integers) may change: 32 inputs measure a share of 10 % no better."""
MOST_CHANGED = 0.5
"""The most that may change, however few there are: exchanged answers have 1."""
MIN_TOP1_INPUTS = 64
"""With fewer inputs equal classes say little: 20 that agree leave 14 % of flips possible (95 %)."""
CLEAR_MARGIN = 8.0
"""A class is clear if it leads by this many times the drift that is allowed. Plain bf16 rounding
flipped classes that led by up to 5.9 times its own drift (a small network; 2.3 on resnet50)."""
_FP32, _TF32, _BF16, _INT8 = 2.0**-24, 2.0**-11, 2.0**-9, 2.0**-8
"""Largest relative error of one rounding to each; int8's relative to the largest number."""
FP32_ROUNDING = 16 * _FP32
"""Relative error that fp32 rounding may make in a whole call."""
_TF32_ROUNDING = 4 * _TF32
"""Relative error that rounding in the last steps before an output may make."""
_ROUNDING = {Level.REDUCED: 4 * _BF16, Level.INT8: 4 * _INT8}
"""The same for settings that reduce the precision, by their level."""


class OutputCheck(msgspec.Struct, frozen=True):
    """How far the outputs are from the default's, and whether that is allowed.

    drift: the largest over output tensors of ||y - y0|| / ||y0 - mean over inputs of y0||.
    top1_agreement: share of equal top-1 classes over the `top1_inputs` inputs whose class leads
    clearly in the default; None if the model has no classes, or none is clear. `top1_informative`
    is False for few inputs, and if a constant answer would agree as well. accuracy: the result of
    the user's function for these outputs and the default's; None without such a function, or if the
    numerics are the same.

    None, "" and 0 appear in files of earlier versions, which did not have the later figures. Their
    clear inputs led by 8 times the error of the compared outputs themselves.
    """

    drift: float
    n_inputs: int
    top1_agreement: float | None = None
    top1_inputs: int = 0
    top1_classes: int = 0
    """How many classes the default gives."""
    top1_informative: bool = False
    accuracy: float | None = None
    default_accuracy: float | None = None
    default_drift: float = 0.0
    """How far the default itself is from exact fp32: outputs are compared with the exact ones. 0 if
    the default is exact."""
    top1_all: float | None = None
    """Share of equal top-1 classes over all inputs; None if the model has no classes."""
    channel_drift: float | None = None
    """The largest drift of a channel: one index of an axis after the inputs'."""
    channel: str = ""
    """Which one that is: output 0[:, :, 4]."""
    input_drift: float | None = None
    """Nine inputs in ten are off by at most this share of how far a typical output is from the
    median one."""
    changed: float | None = None
    """Share of a tensor's integers that differ, of those that differ between inputs, for the tensor
    furthest beyond its bound. None without such tensors."""
    changed_of: int = 0
    """How many integers of that tensor differ between inputs, over all inputs."""
    most_accuracy_loss: float | None = None
    """The upper bound, with 95 % confidence, of the default's accuracy less this one's; None if the
    user's function returns one number for all samples."""
    accuracy_samples: int = 0
    """How many samples have scores of their own; 0 if none has."""
    accuracy_samples_needed: int = 0
    """How many would show that a loss like this is allowed; 0 if no number does."""
    unrelated: str = ""
    """The first output that no longer changes with the inputs as the default's does."""


class Bounds(msgspec.Struct, frozen=True):
    """How far outputs may be from the default's; the figures are those of an OutputCheck."""

    drift: float
    channel_drift: float
    """Also for `input_drift`."""
    flipped: float
    """Share of the inputs whose top-1 class may differ."""
    changed: float
    """Share of the integers that may differ."""
    rounding: float
    """Error of a channel, or of an input, that rounding alone makes, relative to its size."""
    default_rounding: float
    """The same in the default's own precision."""

    @property
    def clear_margin(self) -> float:
        """By how much a clear class leads, of the typical spread of a score over the inputs."""
        return CLEAR_MARGIN * self.drift


def max_drift(level: Level) -> float:
    """Return the drift that a level of reduced precision may have, if the user states none."""
    return MAX_DRIFT_INT8 if level is Level.INT8 else MAX_DRIFT_REDUCED


def bounds_of(
    level: Level,
    tolerance: float | None = None,
    default_drift: float = 0.0,
    default_changed: float = 0.0,
) -> Bounds:
    """Return the bounds for outputs.

    tolerance: the drift that the user allows under reduced precision; a larger one allows
    proportionally more changed classes and integers. default_drift, default_changed: how far the
    default's own outputs are from exact ones; 0 if it is exact.
    """
    drift = same = same_bound(default_drift)
    flipped = MAX_CHANGED_REDUCED * same / MAX_DRIFT_REDUCED
    changed = max(flipped, SAME_AS_DEFAULT * default_changed) if default_drift else 0.0
    if level > Level.SAME:
        drift = max_drift(level) if tolerance is None else max(tolerance, _FP32)
        # the default's own rounding is in what is compared, whatever the user allows
        drift = max(drift, same) if default_drift else drift
        changed = flipped = MAX_CHANGED_REDUCED * max(1.0, drift / MAX_DRIFT_REDUCED)
    default_rounding = _TF32_ROUNDING if default_drift else FP32_ROUNDING
    return Bounds(
        drift=drift,
        channel_drift=max(drift, min(CHANNEL_FACTOR * drift, MAX_CHANNEL_DRIFT)),
        flipped=flipped,
        changed=changed,
        rounding=_ROUNDING.get(level, default_rounding),
        default_rounding=default_rounding,
    )


def changed_bound(share: float, n: int) -> float:
    """Return the share of n inputs or integers that may change if `share` of all may; 0 stays 0."""
    return min(share + BY_CHANCE / max(n, 1), max(share, MOST_CHANGED)) if share else 0.0


def same_bound(default_drift: float) -> float:
    """Return the drift up to which outputs count as the default's, by that of the default itself.

    Never more than reduced precision may have.
    """
    return min(max(MAX_DRIFT_SAME, SAME_AS_DEFAULT * default_drift), MAX_DRIFT_REDUCED)
