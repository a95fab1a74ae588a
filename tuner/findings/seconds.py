"""Where a study's seconds went: by what was done in them, and by what for."""

from __future__ import annotations

from collections import defaultdict

from tuner.measurement.estimates import clean_slices
from tuner.record.course import Seconds
from tuner.record.journal import Waited
from tuner.record.launch import Purpose
from tuner.record.store import Store


def seconds(store: Store, wall_s: float) -> Seconds:
    """Split the used time by what it was used for."""
    sums: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        is_pacer = record.request.purpose is Purpose.PACER
        sums["start_up"] += record.start_up_s
        if record.built is not None:
            sums["start_up"] += record.built.import_s + record.built.build_s
        sums["compile"] += record.compile_s
        sums["warm_up"] += (record.prepared.warm_up_s if record.prepared else 0) + record.check_s
        sums["warm_up"] += sum(s.seconds for s in record.beside)
        sums["warm_up"] += record.profile.seconds if record.profile else 0.0
        counted = clean_slices(record)
        for s in record.slices:
            if is_pacer:
                sums["pacer"] += s.seconds
            else:
                sums["scored" if s in counted else "waiting"] += s.seconds
        discarded_s = record.slicing_s - sum(s.seconds for s in record.slices)
        sums["pacer" if is_pacer else "warm_up"] += max(0.0, discarded_s)
    sums["waiting"] += sum(note.seconds for note in store.all(Waited))
    return Seconds(
        wall=wall_s,
        scored=sums["scored"],
        warm_up=sums["warm_up"],
        pacer=sums["pacer"],
        compile=sums["compile"],
        start_up=sums["start_up"],
        waiting=sums["waiting"],
    )


def shares(store: Store) -> dict[str, float]:
    """Return the share of the launches' busy time per purpose."""
    totals: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        totals[str(record.request.purpose)] += record.total_s
    whole = sum(totals.values()) or 1.0
    return {purpose: total / whole for purpose, total in totals.items()}
