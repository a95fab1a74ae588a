"""An estimate and how sure it is."""

from __future__ import annotations

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """A point estimate with its confidence interval."""

    point: float
    low: float
    high: float
    confidence: float
