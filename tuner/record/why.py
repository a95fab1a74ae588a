"""Where the time of a call goes, by class of operator, and where a difference comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from tuner.record.configuration import Value
from tuner.record.interval import Interval
from tuner.record.launch import LaunchRecord

LEAST_ROUNDS = 3
"""Rounds from which an interval is stated."""


class OperatorClass(StrEnum):
    """What an operator computes; the value is its name in reports."""

    CONVOLUTION = "convolution"
    PRODUCT = "matrix product"
    ATTENTION = "attention"
    RECURRENT = "recurrent cells"
    ELEMENTWISE = "normalisation and elementwise"
    COPY = "reorders and copies"
    LOOKUP = "embedding and gather"
    UPDATE = "optimizer"
    FUSED = "generated code"
    """Kernels that a compiler fused, and whose names do not say what they compute."""
    OTHER = "other operators"
    OVERHEAD = "framework overhead"
    """Of a call, what is in no operator: Python, dispatch, the executor."""


MULTIPLYING = (
    OperatorClass.CONVOLUTION,
    OperatorClass.PRODUCT,
    OperatorClass.ATTENTION,
    OperatorClass.RECURRENT,
)
"""The classes whose multiply-accumulates a model's count is made of."""


class HostBest(msgspec.Struct, frozen=True, tag="host_best"):
    """The fastest of several operators that a framework ran on all cores of this host."""

    flops: dict[str, float]
    """Floating-point operations per second, by data type: fp32, bf16."""
    fastest: dict[str, str]
    """The operator that reached it, by data type."""
    bytes_per_s: float = 0.0
    """Bytes that operators on arrays larger than the caches read and write per second; 0 if not
    measured."""
    stream: str = ""
    """The operator that reached it."""


class OperatorWork(msgspec.Struct, frozen=True):
    """What the default computes in all operators of one name."""

    name: str
    flops: float | None
    """Floating-point operations of an item, in products; None if they cannot be counted."""
    item_bytes: float
    """Bytes of an item that they read and write, parameters apart."""
    call_bytes: float
    """Bytes of parameters that they read in a call, whatever its batch."""


class ModelWork(msgspec.Struct, frozen=True, tag="model_work"):
    """The work of a model, counted on its default: compilers fuse operators, and do no less."""

    operators: tuple[OperatorWork, ...]
    """Empty if the framework's operators cannot be counted."""
    how: str
    """What counted them."""


class Seen(NamedTuple):
    """A configuration in one round."""

    timed: LaunchRecord
    """A launch whose slices count."""
    profiled: LaunchRecord
    """A launch whose profile counts; the same one where a profiler changes nothing in it."""


class ProfiledRound(NamedTuple):
    """Launches of the default and a configuration, at about the same time."""

    default: Seen
    tuned: Seen
    baseline: Seen | None = None
    """The best recommendation of others; None if it was left out of this round."""


class ScalingRound(NamedTuple):
    """Launches of the configuration alone, at about the same time."""

    whole: LaunchRecord
    one_core: LaunchRecord | None
    """On one core; None if it was not measured."""
    half_batch: LaunchRecord | None
    """At half its batch."""


class ClassTime(msgspec.Struct, frozen=True):
    """The time of one class of operators."""

    name: OperatorClass
    default: Interval
    """Mean seconds per item over rounds: the class's share of a profiled call, of an unprofiled
    one."""
    tuned: Interval
    saved_s: Interval
    """The mean difference; above 0: the tuned configuration takes less."""

    @property
    def default_s(self) -> float:
        """Return the mean of the default."""
        return self.default.point

    @property
    def tuned_s(self) -> float:
        """Return the mean of the tuned configuration."""
        return self.tuned.point

    @property
    def is_sure(self) -> bool:
        """Tell whether the interval of the difference excludes 0."""
        return self.saved_s.low > 0 or self.saved_s.high < 0


class BaselineTimes(msgspec.Struct, frozen=True):
    """Where the time of the best recommendation of others goes."""

    name: str
    configuration: dict[str, Value]
    item_s: float
    """Seconds per item, unprofiled."""
    classes: dict[OperatorClass, float]
    """Mean seconds per item over its rounds, scaled as the default's in these to those in all."""


class Efficiency(msgspec.Struct, frozen=True):
    """How fast a configuration multiplies, beside the best that the host did."""

    default: float
    """The rate of the default's multiplying operators, as a share of the best one's in fp32."""
    tuned: float
    """The same of the configuration, which may compute in any of the types that were measured."""
    dtype: str
    """The type of the fastest operator, with which the configuration is compared."""


class RooflinePoint(msgspec.Struct, frozen=True):
    """The work of a class of operators, and the time that it takes."""

    name: OperatorClass | None
    """None: the whole model."""
    flops: float
    """Floating-point operations of an item."""
    default_bytes: float
    """Bytes of an item that its operators read and write, parameters included."""
    tuned_bytes: float
    """The same at the configuration's batch and data type."""
    default_s: float
    tuned_s: float


class Roofline(msgspec.Struct, frozen=True):
    """The speed of products beside the best that the host did, and what they are limited by.

    Williams, Waterman, Patterson: Roofline (2009), https://doi.org/10.1145/1498765.1498785
    """

    points: list[RooflinePoint]
    """The whole model, and the multiplying classes if no kernel of unknown class hides them."""
    dtype: str
    """The data type of the best product with which the configuration is compared."""
    attainable_s: float
    """Seconds in which the products of an item would be done at the roof, at this data type."""
    left: OperatorClass
    """The class that takes most of the configuration's time beyond it."""
    left_s: float


class Why(msgspec.Struct, frozen=True):
    """Why a configuration differs in speed from the default."""

    configuration: dict[str, Value]
    n_rounds: int
    default_s: float
    """Seconds per item, unprofiled."""
    tuned_s: float
    classes: list[ClassTime]
    """Those that took time in either, the largest difference first."""
    accounted: float | None
    """Share of the difference that is in classes of operators, and not in framework overhead or
    other operators; None if the two do not differ in speed."""
    profiled: Interval
    """Speed of the configuration over the default's, by the seconds of profiled calls."""
    how: str
    """The profiler."""
    n_cores: int = 1
    """Those that the configuration uses."""
    on_all_cores: Interval | None = None
    """The speed on these cores over that on one; None if it was not measured."""
    at_half_batch: Interval | None = None
    """The seconds of an item at half the batch over those at the whole; None if not measured."""
    busy: tuple[float, float] | None = None
    """Shares of the time of their own CPUs that the processes of both used, the default first. A
    spinning thread uses it, too. None if it is unknown."""
    best: HostBest | None = None
    """None if it was not measured."""
    efficiency: Efficiency | None = None
    """None if the multiply-accumulates are not known, or are in kernels of unknown class."""
    roofline: Roofline | None = None
    """None if the model's operators or the host's best were not counted."""
    baseline: BaselineTimes | None = None
    """None if it is the configuration itself, or was measured in fewer than LEAST_ROUNDS rounds."""
