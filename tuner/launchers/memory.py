"""The memory that launches will need, estimated from earlier ones: so that none is started to die.

A process's memory grows about linearly with the batch. The peak counts, because compiling or
freezing a graph may take many times more than running it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from tuner.host.limits import Limits
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    DeviceMemory,
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Purpose,
)
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.space.knobs_of.launch import BATCH, INSTANCES, MEMORY_POLICY
from tuner.space.knobs_of.torch import RANKS
from tuner.space.placement import PLACING

RESIDENT_SHARE = 0.6
"""Of the allowed memory: with more residents than that, the arms take turns."""
_TEAM_SHARE = 0.9
"""Share of the allowed memory that running and starting processes may take together: beyond it the
kernel would kill them, or evict other memory."""
_CONTEXT_BYTES = 1 << 30
"""The memory of a process on a card besides its tensors, at most: 0.5 GiB with PyTorch 2.11 on an
H100, more with the workspaces of cuDNN and cuBLAS."""
_PEAK_NOISE_BYTES = 32 << 20
"""Peaks of the same work differ by as much; a line through two of them by more, further away."""


class MemoryModel:
    """Estimates from the launches in a store."""

    def __init__(self, store: Store, limits: Limits, card_bytes: int = 0) -> None:
        """card_bytes: the memory of the card that computes; 0 if there is none."""
        self._store = store
        self._limits = limits
        self._card_bytes = card_bytes

    def fault(
        self, request: LaunchRequest, n_instances: int, running: Iterable[LaunchRecord]
    ) -> str:
        """Say why a request would not fit next to what runs; empty if it would.

        Also empty if that is unknown.
        """
        waiting = _held(running)
        if n_instances == 1:
            return self._fault_alone(request, self._limits.memory_bytes - waiting)
        return self._fault_together(
            request, n_instances, _TEAM_SHARE * self._limits.memory_bytes - waiting
        )

    def bears(self, starting: Mapping[Configuration, int], running: Iterable[LaunchRecord]) -> bool:
        """Tell whether launches can be prepared in parallel, next to what runs.

        starting: their configurations, with their batches. Their peaks may coincide. A
        configuration that was never launched is assumed to need as much as the largest launch so
        far.
        """
        peaks = [self._peak(configuration, batch) for configuration, batch in starting.items()]
        allowed = _TEAM_SHARE * self._limits.memory_bytes - _held(running)
        fits = None not in peaks and sum(peak for peak in peaks if peak is not None) <= allowed
        return fits and self._bears_on_card(starting, running)

    def _bears_on_card(
        self, starting: Mapping[Configuration, int], running: Iterable[LaunchRecord]
    ) -> bool:
        """Tell whether a card has room for launches next to those that wait there.

        More than for their tensors: without room for workspaces, slower kernels run without a
        message. A configuration that was never launched is assumed to need as much as the largest,
        by its batch.
        """
        if not self._card_bytes:
            return True
        seen = [
            (record.prepared.device_memory, record.request.batch)
            for record in self._store.launches.values()
            if record.prepared is not None and record.prepared.device_memory is not None
        ]
        if not seen:
            return False
        needed = sum(
            max(
                memory.reserved_peak_bytes * max(1.0, batch / its_batch) + _CONTEXT_BYTES
                for memory, its_batch in seen
                if memory is not None
            )
            for batch in starting.values()
        )
        held = [r.prepared.device_memory for r in running if r.prepared is not None]
        waiting = sum(m.reserved_bytes + _CONTEXT_BYTES for m in held if m is not None)
        return needed + waiting <= RESIDENT_SHARE * self._card_bytes

    def _peak(self, configuration: Configuration, batch: int) -> float | None:
        """Return the most bytes that a launch may take; None before anything is known."""
        if own := self._same(configuration):
            return at_batch(batch, {b: float(p.memory_peak_bytes) for b, p in own.items()})
        seen = [
            r.prepared.memory_peak_bytes / n_processes(r.request.configuration)
            for r in self._store.launches.values()
            if r.prepared is not None
        ]
        return n_processes(configuration) * max(seen) if seen else None

    def _fault_alone(self, request: LaunchRequest, allowed: float) -> str:
        """Say why one process would not fit, by its memory at smaller batches."""
        own = self._same(request.configuration)
        if any(batch >= request.batch for batch in own):
            return ""  # it ran with as much
        if less := self._ran_out(request.configuration, request.batch):
            return (
                f"not started: the same settings ran out of memory at batch {less} already, "
                f"and this is batch {request.batch}"
            )
        if len(own) < 2:
            return ""
        bytes_of = {batch: float(p.memory_peak_bytes) for batch, p in own.items()}
        least = at_batch(request.batch, bytes_of) - _line_noise(request.batch, sorted(own))
        if least <= allowed:
            return ""
        what = f"a process of at least {_gib(least)} does not fit"
        return f"not started: {what} into the {_gib(allowed)} of memory that are left"

    def _fault_together(self, request: LaunchRequest, n_instances: int, allowed: float) -> str:
        seen = self.alike(request.configuration)
        if not seen:
            return ""
        each = at_batch(
            request.batch,
            {
                batch: (p.memory_peak_bytes - p.memory_shared_bytes) / n
                for batch, (n, p) in seen.items()
            },
        )
        shared = max(p.memory_shared_bytes for _, p in seen.values())
        if n_instances * each + shared <= allowed:
            return ""
        what = f"{n_instances} instances of about {_gib(each)} each do not fit"
        return f"not started: {what} into the {_gib(allowed)} of memory that are left"

    def _same(self, configuration: Configuration) -> dict[int, Prepared]:
        """Return what earlier launches of the same settings held, alone, by their batch."""
        wanted = configuration.without(BATCH)
        return {
            record.request.batch: record.prepared
            for record in self._store.launches.values()
            if record.prepared is not None
            if record.request.configuration.without(BATCH) == wanted
        }

    def _ran_out(self, configuration: Configuration, batch: int) -> int | None:
        """Return the smallest smaller batch at which the same settings ran out of memory.

        Only in the search: in later rounds other launches are in memory too.
        """
        found = [
            record.request.batch
            for record in self._store.launches.values()
            if record.ending is not None
            and record.ending.outcome is Outcome.OUT_OF_MEMORY
            and record.request.purpose in (Purpose.BASELINE, Purpose.SEARCH)
            and record.request.batch < batch
            and record.request.configuration.without(BATCH) == configuration.without(BATCH)
        ]
        return min(found, default=None)

    def alike(self, configuration: Configuration) -> dict[int, tuple[int, Prepared]]:
        """Return the number of instances of earlier launches and their memory, by batch.

        For each batch those of the same settings with any placement, else those of the default.
        """
        unplaced = (*PLACING, MEMORY_POLICY, BATCH)
        found: dict[int, tuple[int, Prepared]] = {}
        for wanted in (Configuration(), configuration.without(*unplaced)):
            for record in self._store.launches.values():
                settings = record.request.configuration
                if record.prepared is not None and settings.without(*unplaced) == wanted:
                    n = int(settings.get(INSTANCES) or 1)
                    found[record.request.batch] = (n, record.prepared)
        return found

    def fit(self, records: Sequence[LaunchRecord]) -> bool:
        """Tell whether launches like these can be resident together, one of them starting."""
        prepared = [r.prepared for r in records if r.prepared is not None]
        waiting = sum(p.memory_private_bytes for p in prepared)
        starting = max(p.memory_peak_bytes - p.memory_private_bytes for p in prepared)
        fits = waiting + starting <= RESIDENT_SHARE * self._limits.memory_bytes
        return fits and self._fit_on_card([p.device_memory for p in prepared])

    def _fit_on_card(self, each: Sequence[DeviceMemory | None]) -> bool:
        """Tell whether all fit on the card: what allocators took they keep, and a context more."""
        known = [m.reserved_peak_bytes + _CONTEXT_BYTES for m in each if m is not None]
        return not known or sum(known) <= RESIDENT_SHARE * self._card_bytes


def _held(running: Iterable[LaunchRecord]) -> int:
    """Return the bytes that launches hold while they wait."""
    return sum(r.prepared.memory_private_bytes for r in running if r.prepared is not None)


def at_batch(batch: int, bytes_of: Mapping[int, float]) -> float:
    """Return the memory of a batch, on a line between the nearest known ones.

    Beyond them on the line of the last two; no less than the smallest, and for a single batch its
    own.
    """
    known = sorted(bytes_of)
    if len(known) == 1:
        return bytes_of[known[0]]
    low, high = _around(batch, known)
    slope = (bytes_of[high] - bytes_of[low]) / (high - low)
    return max(min(bytes_of.values()), bytes_of[low] + slope * (batch - low))


def _line_noise(batch: int, known: Sequence[int]) -> float:
    """Return the bytes by which a line through peaks may be off at a batch beyond them."""
    low, high = _around(batch, known)
    return _PEAK_NOISE_BYTES * (1 + (batch - high) / (high - low))


def _around(batch: int, known: Sequence[int]) -> tuple[int, int]:
    right = min(max(1, bisect.bisect_left(known, batch)), len(known) - 1)
    return known[right - 1], known[right]


def _gib(size: float) -> str:
    return f"{max(0.0, size) / 2**30:.2f} GiB"


def n_processes(configuration: Configuration) -> int:
    """Return how many processes of a configuration hold the model."""
    return int(configuration.get(INSTANCES) or 1) * int(configuration.get(RANKS) or 1)
