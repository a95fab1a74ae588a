"""Whether a configuration's outputs are still the model's: a check that can fail.

Drift of an output tensor = ||y - y0|| / ||y0 - mean over inputs of y0||, y0 the default's outputs.
It is relative to how much the outputs distinguish inputs, so that a constant or an exchanged output
has a drift of about 1, however large its common part is. One number for a tensor hides small parts
of it. Four further figures have bounds (record/output_check.py):

- the drift of every channel, which is one index of an axis after the inputs' axis: for example the
  scores of boxes given as (x, y, w, h, score), or one class;
- how far nine inputs in ten are off, relative to a typical output: a few large ones hide no others;
- whether every output still depends on the inputs where the default's does;
- the share of integers (token ids, classes, booleans) that differ: they have no size.

A user's accuracy function replaces the bounds for reduced precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from tuner.record.output_check import (
    FP32_ROUNDING,
    MIN_TOP1_INPUTS,
    Bounds,
    OutputCheck,
    changed_bound,
)
from tuner.worker.kept import Array, Kept

_FOLLOWS = 0.5
"""Least correlation over the inputs with the default's output."""
_MOVED_BY = 4.0
"""A channel is judged alone if at least this many of its elements vary over all inputs (their
effective number). If it is one number, and 0 for all inputs but one, the rounding of that one may
be all there is."""
_MOST_OFF = 0.9
"""Quantile over inputs of how far they are off."""

Floats = npt.NDArray[np.float64]


class _Apart(msgspec.Struct, frozen=True):
    """How far one array of floats is from the default's."""

    drift: float
    channel_drift: float
    channel: str
    input_drift: float
    is_unrelated: bool
    """It no longer changes with the inputs as the default's does."""


class _Spread(msgspec.Struct, frozen=True):
    """The variation of the default's outputs, summed over all inputs: squares for every element."""

    mean: Floats
    spread2: Floats
    size2: Floats
    """Of the elements that differ between inputs alone: a constant mask of -1e38 is no size."""
    whole2: Floats
    fourth: Floats
    """Fourth powers in the place of the squares of `spread2`: how few inputs make that up."""

    @classmethod
    def of(cls, y0: Array) -> _Spread:
        mean = y0.mean(axis=0, dtype=np.float64)
        spread2, whole2, fourth = (np.zeros_like(mean) for _ in range(3))
        for row in y0:
            own = row.astype(np.float64)
            squares = (own - mean) ** 2
            spread2 += squares
            fourth += squares**2
            whole2 += own**2
        is_varied = (y0 != y0[:1]).any(axis=0)
        spread2, size2, fourth = (np.where(is_varied, a, 0.0) for a in (spread2, whole2, fourth))
        return cls(mean, spread2, size2, whole2, fourth)

    def varies(self, rounding: float) -> bool:
        """Tell whether outputs differ between inputs by more than a few roundings make of them."""
        return bool(_norm(self.spread2) > rounding / 4 * _norm(self.size2))


def _norm(squares: Floats) -> float:
    return math.sqrt(float(squares.sum()))


def compare(
    outputs: Sequence[Kept],
    reference: Sequence[Kept],
    bounds: Bounds,
    has_classes: bool = False,
    n_shapes: int = 1,
) -> OutputCheck:
    """Compare outputs with the reference's first inputs.

    n_shapes: how many sets of output tensors follow each other, for inputs of different shapes.
    A wrong number of outputs, a wrong shape or type, or a value that is not finite is infinite
    drift.
    """
    every = max(1, len(outputs) // n_shapes)  # output 0 of each shape
    n_inputs = sum(len(y.values) for y in outputs[::every])
    lost = OutputCheck(math.inf, n_inputs)
    if len(outputs) != len(reference):
        return lost
    found: list[_Apart] = []
    changed: list[tuple[float, int]] = []
    unrelated = ""
    for i, (kept, whole) in enumerate(zip(outputs, reference, strict=True)):
        for y, y0 in zip(_arrays(kept), _arrays(whole), strict=True):
            if y is None and y0 is None:
                continue
            if y is None or y0 is None or not _is_comparable(y, y0[: len(y)]):
                return lost
            place = f"output {i % every}{'' if y is kept.values else ' (sums)'}"
            if y.dtype.kind != "f":
                # one change in a group changes its sum: these are for who allows none
                if y is kept.values or not bounds.changed:
                    changed.append(_changed(y, y0))
                continue
            apart = _apart(y, y0, bounds, place)
            found.append(apart)
            unrelated = unrelated or (place if apart.is_unrelated else "")
    check = OutputCheck(
        drift=max((a.drift for a in found), default=0.0),
        n_inputs=n_inputs,
        unrelated=unrelated,
    )
    if changed:  # the most of what may change
        share, of = max(changed, key=lambda c: c[0] - changed_bound(bounds.changed, c[1]))
        check = msgspec.structs.replace(check, changed=share, changed_of=of)
    if found:
        worst = max(found, key=lambda a: a.channel_drift)
        check = msgspec.structs.replace(
            check,
            channel_drift=worst.channel_drift,
            channel=worst.channel,
            input_drift=max(a.input_drift for a in found),
        )
    scores = [kept.values for kept in outputs[::every]]
    if not has_classes or any(y.dtype.kind != "f" or y[0].size < 2 for y in scores if len(y)):
        return check
    return _with_top1(check, scores, [kept.values for kept in reference[::every]], bounds)


def _arrays(kept: Kept) -> tuple[Array, Array | None]:
    return kept.values, kept.sums


def _is_comparable(y: Array, y0: Array) -> bool:
    same_kind = (y.dtype.kind == "f") == (y0.dtype.kind == "f")
    return y.shape == y0.shape and same_kind and bool(np.isfinite(y).all())


def _changed(y: Array, y0: Array) -> tuple[float, int]:
    """Return the share of integers that differ, of those that depend on inputs; their number."""
    if not y.size:
        return 0.0, 0
    share = float(np.mean(y != y0[: len(y)]))
    usual = float(
        np.mean([np.mean(a != b) for a, b in zip(y0, np.roll(y0, 1, axis=0), strict=True)])
    )
    usual = usual or 1.0
    return min(1.0, share / usual), max(1, round(usual * y.size))


def _apart(y: Array, full: Array, bounds: Bounds, place: str) -> _Apart:
    """Compare one array of floats with the default's."""
    n = len(y)
    if not y.size:
        return _Apart(0.0, 0.0, "", 0.0, False)
    y, full = (
        y.reshape(n, *(y.shape[1:] or (1,))),
        full.reshape(len(full), *(full.shape[1:] or (1,))),
    )
    # the spread over all of the reference's inputs: the yardstick is one for every check
    default, part = _Spread.of(full), n / len(full)
    error2 = np.zeros_like(default.mean)
    offs = np.empty(n)
    for i in range(n):
        squares = (y[i].astype(np.float64) - full[i].astype(np.float64)) ** 2
        error2 += squares
        offs[i] = squares.sum()
    varies = default.varies(bounds.default_rounding)
    spread, size = (math.sqrt(part) * _norm(each) for each in (default.spread2, default.size2))
    own = spread if varies else math.sqrt(part) * _norm(default.whole2)
    drift = _ratio(_norm(error2), max(own, FP32_ROUNDING / bounds.drift * size))
    at_least = bounds.rounding / bounds.channel_drift
    channel_drift, channel = _worst_channel(error2 / part, default, len(full), bounds, at_least)
    return _Apart(
        drift=drift,
        channel_drift=channel_drift,
        channel=f"{place}{channel}",
        input_drift=_off(np.sqrt(offs), full, at_least) if varies else 0.0,
        is_unrelated=varies and not _follows(y, full[:n]),
    )


def _ratio(error: float, scale: float) -> float:
    if not error:
        return 0.0
    found = error / scale if scale > 0 else math.inf
    return math.inf if math.isnan(found) else found


def _follows(y: Array, y0: Array) -> bool:
    """Tell whether outputs go with the default's from input to input."""
    mean, mean0 = y.mean(axis=0, dtype=np.float64), y0.mean(axis=0, dtype=np.float64)
    both = own = usual = 0.0
    for row, row0 in zip(y, y0, strict=True):
        a, b = row - mean, row0 - mean0
        both, own, usual = (
            both + float((a * b).sum()),
            own + float((a * a).sum()),
            usual + float((b * b).sum()),
        )
    return not usual or both > _FOLLOWS * math.sqrt(own * usual)


def _worst_channel(
    error2: Floats, default: _Spread, n_inputs: int, bounds: Bounds, at_least: float
) -> tuple[float, str]:
    """Return the largest drift of a channel, and which one it is.

    Channels in which few elements vary are judged together: rounding may remove one of them, but
    not most of what they contain. Constant channels are compared with their size or with what
    varies in the others. So are those few if hardly any element varies in all of them.

    error2: as large as over all n inputs. at_least: the part of its size with which an error is
    compared at least.
    """
    worst, where = 0.0, ""
    n_axes = error2.ndim
    for axis in range(n_axes):
        others = tuple(each for each in range(n_axes) if each != axis)
        error, spread, size, whole, fourth = (
            each.sum(axis=others)
            for each in (error2, default.spread2, default.size2, default.whole2, default.fourth)
        )
        usual, own_error = float(spread.mean()), error.copy()
        varies = spread > (bounds.default_rounding / 4) ** 2 * size
        enough = min(_MOVED_BY, n_inputs * error2.size / error.size / 4)
        is_few = varies & (spread**2 < enough * fourth)
        for each in (error, spread, size, whole, fourth):
            each[is_few] = each[is_few].sum()
        is_judged = varies & (spread**2 >= enough * fourth)
        scale = np.where(is_judged, spread, np.maximum(whole, usual))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(error > 0, error / np.maximum(scale, at_least**2 * size), 0.0)
        drifts = np.sqrt(np.nan_to_num(ratios, nan=np.inf, posinf=np.inf))
        most = int(np.argmax(drifts))
        together = is_few[most] and is_few.sum() > 1
        if together:
            most = int(np.argmax(np.where(is_few, own_error, -1.0)))
        if drifts[most] > worst or not where:
            places = [":", *(str(most) if each == axis else ":" for each in range(n_axes))]
            worst, where = float(drifts[most]), f"[{', '.join(places)}]"
            where += " with others that few inputs move" if together else ""
    return worst, where


def _off(offs: Floats, full: Array, at_least: float) -> float:
    """Return what nine inputs in ten are off by at most, against a typical output.

    That is how far outputs are from the median one: the median of those distances, or an input's
    own if it is larger.
    """
    median = np.partition(full, len(full) // 2, axis=0)[len(full) // 2]
    far = np.array([np.linalg.norm((row.astype(np.float64) - median).ravel()) for row in full])
    size = np.array([np.linalg.norm(row.astype(np.float64).ravel()) for row in full])
    typical = float(np.median(far[far > 0])) if (far > 0).any() else 0.0
    n = len(offs)
    scale = np.maximum(np.maximum(far[:n], typical), at_least * size[:n])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(offs > 0, offs / scale, 0.0)
    return float(np.quantile(ratios, _MOST_OFF, method="inverted_cdf"))


def _with_top1(
    check: OutputCheck, outputs: Sequence[Array], reference: Sequence[Array], bounds: Bounds
) -> OutputCheck:
    """Add how often the largest score is that of the default's class."""
    y = np.concatenate([each.reshape(len(each), -1) for each in outputs])
    used = [full[: len(each)] for each, full in zip(outputs, reference, strict=True)]
    y0 = np.concatenate([each.reshape(len(each), -1) for each in used]).astype(np.float64)
    deviations = [_Spread.of(full.reshape(len(full), -1)) for full in reference]
    n_scores = sum(full.size for full in reference)
    spread = math.sqrt(sum(float(each.spread2.sum()) for each in deviations) / n_scores)
    best = np.partition(y0, -2, axis=1)
    is_clear = best[:, -1] - best[:, -2] > bounds.clear_margin * spread
    # of classes that are equal to the default each is its answer
    agrees = y0[np.arange(len(y0)), y.argmax(axis=1)] == best[:, -1]
    classes, counts = np.unique(y0.argmax(axis=1), return_counts=True)
    n_clear = int(is_clear.sum())
    others = 1 - float(counts.max()) / len(y0)
    return msgspec.structs.replace(
        check,
        top1_agreement=float(agrees[is_clear].mean()) if n_clear else None,
        top1_inputs=n_clear,
        top1_classes=len(classes),
        top1_informative=len(y0) >= MIN_TOP1_INPUTS
        and others > changed_bound(bounds.flipped, len(y0)),
        top1_all=float(agrees.mean()),
    )


def blind_spot(outputs: Sequence[Kept], rounding: float) -> str:
    """Return why a check against these outputs of the default could not fail; empty if it can.

    rounding: what rounding alone makes of an output, relative to its size.
    """
    if not all(np.isfinite(y.values).all() for y in outputs):
        return "the default's own outputs are not finite: give inputs that the model is made for"
    if not any(_depends(y.values, rounding) for y in outputs):
        return (
            "the outputs do not depend on the inputs: no check of them could notice a fault; give "
            "inputs that the model is made for (--inputs FILE.npz)"
        )
    return ""


def _depends(y0: Array, rounding: float) -> bool:
    if y0.dtype.kind != "f":
        return bool((y0 != y0[:1]).any())
    return _Spread.of(y0).varies(rounding)


def fault(check: OutputCheck, bounds: Bounds, accuracy_loss: float = 0.0) -> str | None:
    """Return why the outputs are wrong, or None if they may stand.

    accuracy_loss: by how much the user's accuracy may fall, which then decides alone.
    """
    if not math.isfinite(check.drift):
        return "outputs are not finite, or of another number or shape (or type) than the default's"
    if check.accuracy is not None and check.default_accuracy is not None:
        loss, most = check.default_accuracy - check.accuracy, check.most_accuracy_loss
        if (loss if most is None else most) <= accuracy_loss:
            return None
        found = f"accuracy is {check.accuracy:.4g}, the default's is {check.default_accuracy:.4g}"
        if most is not None:
            found += (
                f": by these {check.accuracy_samples} samples the loss is at most {most:.2g}, with "
                "95 % confidence"
            )
        needed = check.accuracy_samples_needed
        more = f"; about {needed} samples would show that it is allowed" if needed else ""
        return f"{found}, allowed is a loss of {accuracy_loss:g}{more}"
    of = "exact fp32's" if check.default_drift else "the default's"
    unrelated = f"{check.unrelated} no longer changes with the inputs as {of} does"
    if check.drift > bounds.drift:
        drift = f"outputs drift by {check.drift:.2g} from {of}, allowed is {bounds.drift:g}"
        return f"{drift}; {unrelated}" if check.unrelated else drift
    if check.unrelated:
        return unrelated
    if (check.channel_drift or 0.0) > bounds.channel_drift:
        return (
            f"{check.channel} drifts by {check.channel_drift:.2g} from {of}, allowed for a part of "
            f"an output is {bounds.channel_drift:g}"
        )
    if (check.input_drift or 0.0) > bounds.channel_drift:
        return (
            f"more than a tenth of the inputs are off by {check.input_drift:.2g} of what a typical "
            f"output differs by or more, allowed is {bounds.channel_drift:g}"
        )
    return _fault_of_integers(check, bounds) or _fault_of_top1(check, bounds)


def _fault_of_integers(check: OutputCheck, bounds: Bounds) -> str | None:
    allowed = changed_bound(bounds.changed, check.changed_of)
    if (check.changed or 0.0) <= allowed:
        return None
    may = f"allowed is {allowed:.1%}" if allowed else "none may"
    return (
        f"integers of the outputs differ: {check.changed:.3%} of the {check.changed_of} that "
        f"inputs change; {may}"
    )


def _fault_of_top1(check: OutputCheck, bounds: Bounds) -> str | None:
    if check.top1_agreement is not None and check.top1_agreement < 1:
        return (
            f"top-1 differs on {1 - check.top1_agreement:.1%} of {check.top1_inputs} inputs "
            "with a clear class"
        )
    allowed = changed_bound(bounds.flipped, check.n_inputs)
    if check.top1_all is not None and 1 - check.top1_all > allowed:
        return (
            f"top-1 differs on {1 - check.top1_all:.1%} of {check.n_inputs} inputs, allowed is "
            f"{allowed:.1%}"
        )
    return None
