"""When each slice was taken, and what else happened meanwhile."""

from __future__ import annotations

import statistics
from collections import defaultdict

from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.store import Store
from tuner.record.study_stats import Moment


def timeline(store: Store) -> list[Moment]:
    """Return every slice of a study in the order of time.

    Clocks of different sessions are unrelated: each starts where the last one ended.
    """
    sessions: dict[int, list[tuple[Slice, float | None]]] = defaultdict(list)
    for record in store.launches.values():
        mean = _pacer_mean(record)
        for s in record.slices:
            sessions[record.request.session].append((s, s.rate / mean if mean else None))
    moments, ended_s = [], 0.0
    for _, slices in sorted(sessions.items()):
        slices.sort(key=lambda pair: pair[0].at)
        first = slices[0][0]
        began = first.at - first.seconds / 2
        moments += [_moment(s, ended_s + s.at - began, pacer) for s, pacer in slices]
        last = slices[-1][0]
        ended_s += last.at + last.seconds / 2 - began
    return moments


def _pacer_mean(record: LaunchRecord) -> float | None:
    if record.request.purpose is not Purpose.PACER or not record.slices:
        return None
    return statistics.fmean(s.rate for s in record.slices)


def _moment(s: Slice, at_s: float, pacer: float | None) -> Moment:
    return Moment(
        at_s=round(at_s, 1),
        foreign=round(s.interference.foreign + s.interference.steal, 3),
        dirty=list(s.interference.dirty),
        pacer=None if pacer is None else round(pacer, 4),
    )
