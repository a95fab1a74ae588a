"""Scores of the search: log rates with the machine's slow drift taken out, by the pacer.

score of a launch at a batch = median over its clean slices of
    log(rate) - beta * (pacer(t) - mean of its pacer block)  -  offset of the block

The pacer is a resident launch of the default, measured before, between and after the launch's
slices; pacer(t) is interpolated. beta in [0, 1] is estimated from configurations that were launched
more than once (0: the pacer's swings say nothing about others; 1: everything swings alike). A
respawned pacer is a block of its own, tied to the earlier ones by anchors: configurations that were
launched again in it.

Scores steer the search. Claims never use them: they rest on fresh launches of the default.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.outcome import Outcome

# The prior for beta: one pair of launches between which the pacer moved 5 %, fully shared.
_PRIOR_BETA = 1.0
_PRIOR_WEIGHT = 0.05**2
# A second launch of one configuration differs by 2 % on a quiet shared host (SD; measured).
PRIOR_LAUNCH_SD = 0.02
_PRIOR_LAUNCH_DF = 4

Key = tuple[Configuration, int]


def clean_slices(record: LaunchRecord, batch: int) -> list[Slice]:
    """Return the launch's clean slices at a batch; all of them where none is clean."""
    slices = [s for s in record.slices if s.batch == batch]
    return [s for s in slices if not s.interference.dirty] or slices


def launch_value(record: LaunchRecord, batch: int) -> float | None:
    """Return the median log rate over the clean slices of a launch at a batch."""
    slices = clean_slices(record, batch)
    return statistics.median(float(np.log(s.rate)) for s in slices) if slices else None


class Estimates:
    """Scores over everything that a study has measured outside its confirmation."""

    def __init__(self, launches: Mapping[int, LaunchRecord]) -> None:
        self._blocks: dict[int, tuple[list[float], list[float]]] = {}
        self._records: dict[Key, list[LaunchRecord]] = defaultdict(list)
        for record in launches.values():
            if record.request.purpose is Purpose.PACER:
                self._add_block(record)
            elif record.request.purpose is not Purpose.CONFIRM and _counts(record):
                for batch in record.request.batches:
                    if clean_slices(record, batch):
                        self._records[record.request.configuration, batch].append(record)
        self.beta = self._estimate_beta()
        self._offsets = self._estimate_offsets()

    def _add_block(self, record: LaunchRecord) -> None:
        slices = [s for s in record.slices if not s.interference.dirty] or record.slices
        if slices:
            at = [s.at for s in slices]
            self._blocks[record.request.id] = (at, [float(np.log(s.rate)) for s in slices])

    def _deviation(self, record: LaunchRecord, at: float) -> float:
        """Return how far the pacer was from its block's mean at a time."""
        block = self._blocks.get(record.request.pacer_block)
        if block is None:
            return 0.0
        return float(np.interp(at, *block)) - statistics.fmean(block[1])

    def _raw(self, record: LaunchRecord, batch: int) -> tuple[float, float]:
        """Return a launch's log rate and the pacer's deviation, both over its clean slices."""
        slices = clean_slices(record, batch)
        return (
            statistics.median(float(np.log(s.rate)) for s in slices),
            statistics.fmean(self._deviation(record, s.at) for s in slices),
        )

    def _estimate_beta(self) -> float:
        xy, xx = _PRIOR_BETA * _PRIOR_WEIGHT, _PRIOR_WEIGHT
        for (_, batch), records in self._records.items():
            by_block: dict[int, list[tuple[float, float]]] = defaultdict(list)
            for record in records:
                by_block[record.request.pacer_block].append(self._raw(record, batch))
            for pairs in by_block.values():
                if len(pairs) > 1:
                    y, x = np.array(pairs).T
                    xy += float(((x - x.mean()) * (y - y.mean())).sum())
                    xx += float(((x - x.mean()) ** 2).sum())
        return min(1.0, max(0.0, xy / xx))

    def _corrected(self, record: LaunchRecord, batch: int) -> float:
        slices = clean_slices(record, batch)
        return statistics.median(
            float(np.log(s.rate)) - self.beta * self._deviation(record, s.at) for s in slices
        )

    def _estimate_offsets(self) -> dict[int, float]:
        """Tie each pacer block to the earlier ones by the configurations measured in both."""
        offsets: dict[int, float] = {}
        for block in sorted({r.request.pacer_block for rs in self._records.values() for r in rs}):
            differences = []
            for (_, batch), records in self._records.items():
                here = [self._corrected(r, batch) for r in records
                        if r.request.pacer_block == block]
                before = [self._corrected(r, batch) - offsets[r.request.pacer_block]
                          for r in records if r.request.pacer_block in offsets]
                if here and before:
                    differences.append(statistics.fmean(here) - statistics.fmean(before))
            offsets[block] = statistics.fmean(differences) if differences else 0.0
        return offsets

    def launch_scores(self, configuration: Configuration, batch: int) -> list[float]:
        """Return one score per launch of a configuration (without its batch) at a batch."""
        return [
            self._corrected(record, batch) - self._offsets[record.request.pacer_block]
            for record in self._records.get((configuration, batch), [])
        ]

    def score(self, configuration: Configuration, batch: int) -> float | None:
        """Return the mean score over launches; None if it was never measured."""
        scores = self.launch_scores(configuration, batch)
        return statistics.fmean(scores) if scores else None

    def n_launches(self, configuration: Configuration, batch: int) -> int:
        """Return how many launches the score rests on."""
        return len(self._records.get((configuration, batch), []))

    def launch_sd(self) -> float:
        """Return the pooled SD of one launch's score, from repeated configurations and a prior."""
        squares, freedom = PRIOR_LAUNCH_SD**2 * _PRIOR_LAUNCH_DF, float(_PRIOR_LAUNCH_DF)
        for configuration, batch in self._records:
            scores = self.launch_scores(configuration, batch)
            if len(scores) > 1:
                squares += float(np.var(scores, ddof=1)) * (len(scores) - 1)
                freedom += len(scores) - 1
        return float(np.sqrt(squares / freedom))


def _counts(record: LaunchRecord) -> bool:
    """A launch counts if it was measured; one that the tool's end cut short is made again."""
    return record.ending is not None and record.ending.outcome is Outcome.MEASURED
