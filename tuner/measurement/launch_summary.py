"""The summary of a launch that has ended, as listeners get it."""

from __future__ import annotations

import statistics

from tuner.host.interference import n_disturbed
from tuner.measurement.arrival_plan import uses_arrivals
from tuner.measurement.estimates import clean_slices
from tuner.measurement.queueing import misses_when_idle
from tuner.record.events import LaunchDone
from tuner.record.launch import LaunchRecord
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome


def launch_summary(
    record: LaunchRecord, objective: Objective, search_ratio: float | None
) -> LaunchDone:
    """Summarize a launch. search_ratio: the search's estimate of its ratio to the default."""
    request, ending = record.request, record.ending or Ending(Outcome.MEASURED)
    slices = clean_slices(record)
    value, unit = None, objective.search_unit
    if slices:  # by what the search goes by; a claim's value may be another
        value = objective.value(statistics.median(map(objective.of_slice, slices)))
    if slices and uses_arrivals(record, objective):
        worth, unit = objective.of_launch(record.slices), objective.unit
        value = None if worth is None else objective.value(worth)
    return LaunchDone(
        launch=request.id,
        label=request.configuration.label(),
        purpose=request.purpose,
        outcome=ending.outcome,
        reason=ending.reason,
        rate=statistics.median(s.rate for s in slices) if slices else None,
        value=value,
        unit=unit,
        seconds=record.total_s,
        n_slices=len(record.slices),
        n_disturbed=n_disturbed(record.slices),
        search_ratio=search_ratio,
        is_late=bool(slices) and all(map(misses_when_idle, slices)),
    )
