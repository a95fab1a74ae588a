"""What the launches of a configuration show: read-back, memory, output check."""

from __future__ import annotations

import math
import statistics

import numpy as np

from tuner.measurement.confirmation import plain_interval
from tuner.measurement.estimates import clean_slices
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.launch import DeviceMemory, Latency, LaunchRecord, Purpose, latency
from tuner.record.objective import Objective
from tuner.record.output_check import OutputCheck
from tuner.record.result import OperatorProfile
from tuner.record.store import Store


def launches_of(store: Store, configuration: Configuration) -> list[LaunchRecord]:
    """Return the launches of a configuration that got as far as their read-back, oldest first."""
    return [
        record
        for record in store.launches.values()
        if record.request.configuration == configuration and record.prepared is not None
    ]


def memory_peak(records: list[LaunchRecord]) -> int | None:
    """Return the most bytes that were resident in any of the launches; None without one."""
    return max((r.prepared.memory_peak_bytes for r in records if r.prepared), default=None)


def device_memory(records: list[LaunchRecord]) -> DeviceMemory | None:
    """Return the memory on the card that held the most; None without a card."""
    cards = [r.prepared.device_memory for r in records if r.prepared is not None]
    known = [memory for memory in cards if memory is not None]
    return max(known, key=lambda memory: memory.reserved_peak_bytes, default=None)


def memory_held(records: list[LaunchRecord]) -> int | None:
    """Return the peak memory in bytes: the card's where one computes, else the host's."""
    on_card = device_memory(records)
    return memory_peak(records) if on_card is None else on_card.reserved_peak_bytes


def joules_per_item(records: list[LaunchRecord]) -> float | None:
    """Return the card's energy per item, the median over confirming slices.

    Undisturbed slices only, because the card counts everything that computed on it.
    """
    energies = [
        s.energy_j / (s.rate * s.seconds)
        for record in records
        if record.request.purpose is Purpose.CONFIRM
        for s in clean_slices(record)
        if s.energy_j
    ]
    return statistics.median(energies) if energies else None


def cpu_share(records: list[LaunchRecord]) -> float | None:
    """Return the share of the allowed CPUs' time that was used, the median of confirming slices."""
    own = [
        s.interference.own
        for record in records
        if record.request.purpose is Purpose.CONFIRM
        for s in clean_slices(record)
        if s.interference.own is not None
    ]
    return statistics.median(own) if own else None


def loading(records: list[LaunchRecord]) -> Interval | None:
    """Return the seconds of a step over those of one whose batch is there, over launches.

    None if they were given their batches without a loader, or there are fewer than two.
    """
    log_ratios = [
        math.log(statistics.fmean(s.call_mean_s for s in slices) / record.prepared.call_there_s)
        for record in records
        if record.prepared is not None
        and record.prepared.call_there_s
        and (slices := clean_slices(record))
    ]
    return plain_interval(log_ratios) if len(log_ratios) > 1 else None


def call_times(records: list[LaunchRecord], objective: Objective) -> Latency | None:
    """Return the time of a call; None if no launch shows it.

    If the value rests on single calls, from the same calls: all those of confirming launches, as
    means over launches. Otherwise from undisturbed slices.
    """
    if objective.slo is not None:
        return None  # of requests that waited in line, the rates that were tried tell
    if not objective.is_of_calls:
        return _of_slices(records)
    confirming = [r for r in records if r.request.purpose is Purpose.CONFIRM and r.slices]
    latencies = [latency([seconds for s in r.slices for seconds in s.call_s]) for r in confirming]
    if not latencies:
        return None
    return Latency(
        p50_s=statistics.geometric_mean(each.p50_s for each in latencies),
        p99_s=statistics.geometric_mean(each.p99_s for each in latencies),
        n_calls=sum(each.n_calls for each in latencies),
    )


def _of_slices(records: list[LaunchRecord]) -> Latency | None:
    """Return the time of a call from the percentiles of slices; None if no slice has them.

    From the undisturbed slices, or all if there is none. The median is that of the slices' medians.
    The 99th percentile is the median of theirs if a slice holds enough calls. In a slice of few
    calls the longest call is below the 99th percentile of all calls with the probability 0.99 to
    the power of the number of calls: at that quantile of the slices lies the percentile of all
    calls. This assumes independent calls; if slow ones come together, the percentile is
    underestimated.
    """
    timed = [s for r in records for s in r.slices if s.latency is not None]
    timed = [s for s in timed if not s.interference.dirty] or timed
    seen = [s.latency for s in timed if s.latency is not None]
    if not seen:
        return None
    n_usual = statistics.median(each.n_calls for each in seen)
    level = max(0.5, 0.99**n_usual)
    return Latency(
        p50_s=statistics.median(each.p50_s for each in seen),
        p99_s=float(np.quantile([each.p99_s for each in seen], level)),
        n_calls=sum(each.n_calls for each in seen),
    )


def profile_of(records: list[LaunchRecord]) -> OperatorProfile | None:
    """Return the profile of the launch that was profiled; None without one."""
    for record in records:
        seen = record.profile
        if seen is not None and any(o.seconds > 0 for o in seen.operators):
            operators = list(seen.operators)
            return OperatorProfile(operators, record.request.batch, seen.call_s, seen.how)
    return None


def check_of(records: list[LaunchRecord]) -> OutputCheck | None:
    """Return the first output check among the launches; None without one."""
    return next((r.check for r in records if r.check is not None), None)
