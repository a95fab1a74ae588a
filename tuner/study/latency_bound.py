"""The latency bound of a server if the user names none.

It is five times the default's median latency for one request at a time: long enough for a queue and
a batch, short enough that both matter. It is measured once, at the start, and kept: a resumed study
and a verification on another host use the same.
"""

from __future__ import annotations

import statistics

from tuner.errors import NothingMeasured
from tuner.measurement.bench import Bench
from tuner.measurement.steps import SLICE_S
from tuner.record.configuration import Configuration
from tuner.record.journal import SloFixed
from tuner.record.launch import Purpose
from tuner.record.load import USUAL_QUANTILE, Slo, Trace
from tuner.record.store import Store

TIMES = 5
"""Default bound, in units of the default's median latency."""
_SLICES = 4
"""Slices of the launch that measures it."""


def fix_bound(
    store: Store, bench: Bench, trace: Trace | None, stand_in: Configuration | None = None
) -> Slo:
    """Measure the default, note the bound of the study and return it.

    bench: measures the same workload in the scenario single-stream. trace: of the requests.
    stand_in: measured instead of a default that does not answer.

    Raises NothingMeasured if the default cannot be measured.
    """
    whose = "the default" if stand_in is None else stand_in.label()
    launch = bench.launcher.start(stand_in or Configuration(), Purpose.BOUND)
    for _ in range(_SLICES):
        launch.take_slice(store.next_slice_index(), SLICE_S)
    record = launch.finish()
    if not record.slices:
        why = "" if record.ending is None else f"{record.ending.outcome}: {record.ending.reason}"
        raise NothingMeasured(f"{whose} cannot be measured, one request at a time: {why}")
    median_s = statistics.median(seconds for s in record.slices for seconds in s.call_s)
    origin = f"{TIMES} times {whose}'s {1000 * median_s:.3g} ms for one request at a time"
    slo = Slo(USUAL_QUANTILE, TIMES * median_s, origin, trace)
    store.add(SloFixed(slo))
    return slo
