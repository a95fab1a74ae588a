"""How near a configuration comes to the best that the host did, class by class.

Operations and bytes are those of the default's operators, whatever a compiler fuses. Products take
at least their operations at the rate of the host's fastest product, and at least their bytes at
that of its fastest stream. Other operators can be fused into these, and count as nothing: the
attainable time is that of products alone. Operands in caches are faster than the stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuner.analysis.operator_classes import class_of
from tuner.record.why import (
    MULTIPLYING,
    ClassTime,
    HostBest,
    ModelWork,
    OperatorClass,
    Roofline,
    RooflinePoint,
)

_WIDTH = {"fp32": 4, "bf16": 2}
"""Bytes of an element; the model's work is counted in fp32."""


class _Work(NamedTuple):
    """The work of a class."""

    flops: float
    item_bytes: float
    call_bytes: float

    def n_bytes(self, batch: int, dtype: str = "fp32") -> float:
        """Return the bytes of an item at a batch, over which parameters are spread."""
        return (self.item_bytes + self.call_bytes / batch) * _WIDTH[dtype] / _WIDTH["fp32"]


def roofline(
    classes: Sequence[ClassTime],
    work: ModelWork,
    best: HostBest,
    batches: tuple[int, int],
    seconds: tuple[float, float],
    *,
    is_hidden: bool,
    is_narrow: bool,
) -> Roofline | None:
    """Return the points of the whole model and of its products; None if not all work is known.

    batches, seconds: of the default and the configuration, a call's and an item's. is_hidden:
    whether products lie in kernels of unknown class. is_narrow: whether the configuration's tensors
    are of its reduced data type; else only products are computed in it.
    """
    by_class = _by_class(work)
    if by_class is None or not best.bytes_per_s or not best.flops:
        return None
    dtype = max(best.flops, key=lambda name: best.flops[name])
    stored = dtype if is_narrow else "fp32"
    products = {name: each for name, each in by_class.items() if name in MULTIPLYING}
    total_flops = sum(each.flops for each in products.values())
    if not total_flops:
        return None

    def point(
        name: OperatorClass | None, flops: float, own: Sequence[_Work], took: tuple[float, float]
    ) -> RooflinePoint:
        default, tuned = (
            sum(each.n_bytes(batch, kind) for each in own)
            for batch, kind in zip(batches, ("fp32", stored), strict=True)
        )
        return RooflinePoint(name, flops, default, tuned, *took)

    took = {each.name: (each.default_s, each.tuned_s) for each in classes}
    points = [point(None, total_flops, list(by_class.values()), seconds)]
    if not is_hidden:
        points += [
            point(name, each.flops, [each], took[name])
            for name, each in products.items()
            if each.flops and name in took and min(took[name]) > 0
        ]
    bounds = {
        name: max(
            each.flops / best.flops[dtype], each.n_bytes(batches[1], stored) / best.bytes_per_s
        )
        for name, each in products.items()
        if each.flops
    }
    beyond = {each.name: each.tuned_s - bounds.get(each.name, 0.0) for each in classes}
    left = max(beyond, key=lambda name: beyond[name])
    return Roofline(points, dtype, sum(bounds.values()), left, beyond[left])


def _by_class(work: ModelWork) -> Mapping[OperatorClass, _Work] | None:
    """Return the work of each class of operators; None if the operations of one are unknown."""
    sums: dict[OperatorClass, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for operator in work.operators:
        if operator.flops is None:
            return None
        own = sums[class_of(operator.name)]
        own[0] += operator.flops
        own[1] += operator.item_bytes
        own[2] += operator.call_bytes
    return {name: _Work(*own) for name, own in sums.items()}
