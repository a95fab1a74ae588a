"""What the launches of a configuration tell: read-back, memory, output check."""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, OutputCheck
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


def check_of(records: list[LaunchRecord]) -> OutputCheck | None:
    """Return the first output check among the launches; None without one."""
    return next((r.check for r in records if r.check is not None), None)
