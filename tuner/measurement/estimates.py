"""Scores of the search: log values without the machine's slow drift, which the pacer shows.

score of a launch = median over its clean slices of
    log value - beta * (pacer(t) - mean of its pacer block)  -  offset of the block

The pacer is a launch of the default that stays in memory. It is measured before, between and after
the launch's slices; pacer(t) is interpolated. beta in [0, 1] is estimated from configurations that
were launched more than once, and from the default by its pacer (0: the pacer's drift says nothing
about others; 1: all drift alike). With few repeated launches beta is hardly known. A launch next to
an unusual pacer then counts for less than others of its configuration. A new pacer is a block of
its own, connected to earlier ones by anchors: configurations launched in both.

Scores steer the search. Claims never use them: they rest on new launches of the default.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.measurement.passes import passes_of
from tuner.measurement.replication import Scatter, scatter, variance_of_median
from tuner.measurement.server_trials import launch_log_rate, log_rates_of_launches
from tuner.record.configuration import Configuration
from tuner.record.launch import UNPACED, LaunchRecord, Purpose, Slice
from tuner.record.objective import Objective, offered_of, timed_of

_PRIOR_BETA = 1.0
"""Prior mean of beta: all drift is shared."""
_PRIOR_BETA_SD = 0.4
"""Prior SD of beta."""
PRIOR_LAUNCH_SD = 0.02
"""SD (log): a second launch of a configuration differs by 2 % on a quiet shared host (measured)."""
_PRIOR_LAUNCH_DF = 1
"""Degrees of freedom of that prior: one repeated launch outweighs it."""


def clean_slices(record: LaunchRecord) -> list[Slice]:
    """Return the launch's clean slices, or all of them if none is clean."""
    return [s for s in record.slices if not s.interference.dirty] or record.slices


def round_log_scores(
    records: Sequence[LaunchRecord], objective: Objective, *, only_clean: bool = False
) -> list[float | None]:
    """Return the log value of each launch of a round; None if it was not measured to its end.

    Passes are blocks, and the undisturbed ones count. If the value rests on single calls, all of
    them count: the slowest are often the disturbed ones, and without them there would be no tail.
    only_clean: leave them out all the same, to show the difference.
    """
    there = [r for r in records if r.was_measured and r.slices]
    if not there:
        return [None] * len(records)
    if objective.is_of_trials and objective.slo is not None:
        slo = objective.slo
        values: list[float | None] = [
            launch_log_rate(r, slo) if offered_of(r.slices) else _expected(r, objective)
            for r in there
        ]
    elif objective.is_of_launch:
        values = [_log_score_of_all(r, objective, only_clean=only_clean) for r in there]
    else:
        values = [*passes_of(there, objective).values()]
    by_launch = {r.request.id: value for r, value in zip(there, values, strict=True)}
    return [by_launch.get(r.request.id) for r in records]


def log_scores_of_rounds(
    rounds: Sequence[Sequence[LaunchRecord]], objective: Objective, *, only_clean: bool = False
) -> list[dict[Configuration, float | None]]:
    """Return the log values of the launches of each round, by configuration.

    A server's are estimated from all of its launches together; their mean is the estimate.
    """
    found: list[dict[Configuration, float | None]] = []
    for records in rounds:
        arms = [record.request.configuration for record in records]
        log_scores = round_log_scores(records, objective, only_clean=only_clean)
        found.append(dict(zip(arms, log_scores, strict=True)))
    if not objective.is_of_trials or objective.slo is None:
        return found
    launches: dict[Configuration, dict[int, LaunchRecord]] = defaultdict(dict)
    for number, records in enumerate(rounds):
        for record in records:
            if record.was_measured and offered_of(record.slices):
                launches[record.request.configuration][number] = record
    for configuration, by_round in launches.items():
        together = log_rates_of_launches(list(by_round.values()), objective.slo)
        for number, log_rate in zip(by_round, together, strict=True):
            found[number][configuration] = log_rate
    return found


def _expected(record: LaunchRecord, objective: Objective) -> float:
    """Return the rate that is expected of a server before requests arrive."""
    return statistics.fmean(objective.of_slice(taken) for taken in timed_of(record.slices))


def _log_score_of_all(
    record: LaunchRecord, objective: Objective, *, only_clean: bool
) -> float | None:
    """Return the log value of all slices of a launch together.

    only_clean: without disturbed ones; None if all were disturbed.
    """
    slices = [s for s in record.slices if not (only_clean and s.interference.dirty)]
    return objective.of_launch(slices) if slices else None


def score_under_contention(record: LaunchRecord, objective: Objective) -> float:
    """Return a launch's log value next to a synthetic busy neighbour, which it must have had."""
    return objective.under_contention(record.contended)


def kept(record: LaunchRecord, objective: Objective) -> float:
    """Return the log share of its value that a launch keeps next to the neighbour."""
    # a rate at which requests arrive is nothing that a server does
    own = record.slices if objective.slo is None else timed_of(record.slices)
    clean = [s for s in own if not s.interference.dirty] or own
    return score_under_contention(record, objective) - objective.under_contention(clean)


def lead_under_contention(
    own: LaunchRecord, other: LaunchRecord, objective: Objective
) -> float | None:
    """Return by how much (log) a launch leads another of its round next to the neighbour.

    For servers: by its higher rate, and by what both keep; None if one had no rate.
    """
    if objective.slo is None:
        return score_under_contention(own, objective) - score_under_contention(other, objective)
    mine, others = round_log_scores([own, other], objective)
    if mine is None or others is None:
        return None
    return mine - others + kept(own, objective) - kept(other, objective)


class Estimates:
    """Scores over everything that a study has measured outside its confirmation."""

    def __init__(self, launches: Mapping[int, LaunchRecord], objective: Objective) -> None:
        self._log_score = objective.of_slice
        self._blocks: dict[int, tuple[list[float], list[float]]] = {}
        self._levels: dict[int, float] = {}
        self._records: dict[Configuration, list[LaunchRecord]] = defaultdict(list)
        self._scores: dict[Configuration, float | None] = {}
        self._paced_by: set[Configuration] = set()
        for record in launches.values():
            slices = clean_slices(record)
            if not slices or record.request.purpose in UNPACED:
                continue
            if record.request.purpose is Purpose.PACER:
                series = [s.at for s in slices], [self._log_score(s) for s in slices]
                self._blocks[record.request.id] = series
                self._paced_by.add(record.request.configuration)
                self._levels[record.request.id] = statistics.fmean(series[1])
            elif record.was_measured:
                self._records[record.request.configuration].append(record)
        self._points = {r.request.id: self._seen(r) for rs in self._records.values() for r in rs}
        """Of every launch that was measured to its end: its slices, as `_seen` returns them."""
        self._several = [
            [log_score for log_score, _ in points]
            for points in self._points.values()
            if len(points) > 2
        ]
        """The log values of every launch that has enough slices to show their scatter."""
        self._within = statistics.fmean(map(scatter, self._several)) if self._several else 0.0
        """SD of slices within a launch; 0 before it is known."""
        # by what launches scatter depends on beta, and how much they say of it on that
        scatters = [self._launch_sd_at(beta) for beta in (0.0, _PRIOR_BETA)]
        beta, information = self._estimate_beta(min(scatters))
        self.launch_sd = self._launch_sd_at(beta)
        self.scatter = self._estimate_scatter()
        """The scatter between launches without the slices' own noise, and that noise."""
        self._beta_sd = self.launch_sd / math.sqrt(information)

    def _launch_sd_at(self, beta: float) -> float:
        """Set beta, and return the scatter of launches with it."""
        self.beta = beta
        self._medians = {number: self._median(points) for number, points in self._points.items()}
        self._offsets = self._estimate_offsets()
        return self._estimate_launch_sd()

    def _deviation(self, record: LaunchRecord, at: float) -> float:
        """Return how far the pacer was from its block's mean at a time."""
        block = self._blocks.get(record.request.pacer_block)
        if block is None:
            return 0.0
        return _at(at, *block) - self._levels[record.request.pacer_block]

    def _seen(self, record: LaunchRecord) -> list[tuple[float, float]]:
        """Return each counting slice's log value, and how far the pacer was from its mean then."""
        return [(self._log_score(s), self._deviation(record, s.at)) for s in clean_slices(record)]

    def _mean_deviation(self, record: LaunchRecord) -> float:
        return statistics.fmean(deviation for _, deviation in self._points[record.request.id])

    def _estimate_beta(self, launch_sd: float) -> tuple[float, float]:
        """Regress repeated launches of a configuration on the pacer's level, within a block.

        The pacer is a launch of the default too, at its own mean. If the default runs at its usual
        speed next to a slowed pacer, nothing is shared. Returns beta, and its sum of squares:
        beta's variance is that of a launch divided by it.
        """
        # the noisier the launches, the less one of them says against what is usual
        prior = (launch_sd / _PRIOR_BETA_SD) ** 2
        xy, xx = _PRIOR_BETA * prior, prior
        for configuration, records in self._records.items():
            by_block: dict[int, list[tuple[float, float]]] = defaultdict(list)
            if configuration in self._paced_by:
                for block, level in self._levels.items():
                    by_block[block].append((level, 0.0))
            for record in records:
                by_block[record.request.pacer_block].append(
                    (
                        statistics.median(y for y, _ in self._points[record.request.id]),
                        self._mean_deviation(record),
                    )
                )
            for pairs in by_block.values():
                if len(pairs) > 1:
                    y, x = np.array(pairs).T
                    xy += float(((x - x.mean()) * (y - y.mean())).sum())
                    xx += float(((x - x.mean()) ** 2).sum())
        return min(1.0, max(0.0, xy / xx)), xx

    def _corrected(self, record: LaunchRecord) -> float:
        known = self._medians.get(record.request.id)
        return self._median(self._seen(record)) if known is None else known

    def _median(self, points: Sequence[tuple[float, float]]) -> float:
        return statistics.median(y - self.beta * deviation for y, deviation in points)

    def _estimate_offsets(self) -> dict[int, float]:
        """Tie each pacer block to the earlier ones by the configurations measured in both."""
        offsets: dict[int, float] = {}
        for block in sorted({r.request.pacer_block for rs in self._records.values() for r in rs}):
            differences = []
            for records in self._records.values():
                here = [self._corrected(r) for r in records if r.request.pacer_block == block]
                before = [
                    self._corrected(r) - offsets[r.request.pacer_block]
                    for r in records
                    if r.request.pacer_block in offsets
                ]
                if here and before:
                    differences.append(statistics.fmean(here) - statistics.fmean(before))
            offsets[block] = statistics.fmean(differences) if differences else 0.0
        return offsets

    def offset(self, block: int) -> float:
        """Return by how much (log) everything ran faster next to a pacer than next to others."""
        return self._offsets.get(block, 0.0)

    def swing(self, block: int) -> float:
        """Return by how much (log) a measurement next to a pacer now differs from its score."""
        if block not in self._blocks:
            return 0.0
        now = self._blocks[block][1][-1] - self._levels[block]
        return self.beta * now + self.offset(block)

    def corrected(self, record: LaunchRecord) -> float:
        """Return the score of one launch, which must have slices; it may have stopped early."""
        return self._corrected(record) - self.offset(record.request.pacer_block)

    def launch_scores(self, configuration: Configuration) -> list[float]:
        """Return one score per launch of a configuration."""
        return [
            self._corrected(record) - self._offsets[record.request.pacer_block]
            for record in self._records.get(configuration, [])
        ]

    def _weights(self, configuration: Configuration) -> tuple[list[float], list[float]]:
        """Return each launch's weight (their sum is 1), and the pacer's deviation at the time.

        A launch next to an unusual pacer counts for less: its correction is only as good as beta.
        """
        deviations = [self._mean_deviation(r) for r in self._records.get(configuration, [])]
        weights = [
            1 / (self.launch_sd**2 + (self._beta_sd * deviation) ** 2) for deviation in deviations
        ]
        return [weight / sum(weights) for weight in weights], deviations

    def score(self, configuration: Configuration) -> float | None:
        """Return the weighted mean score over launches; None if it was never measured."""
        if configuration not in self._scores:
            scores = self.launch_scores(configuration)
            mean = float(np.dot(self._weights(configuration)[0], scores)) if scores else None
            self._scores[configuration] = mean
        return self._scores[configuration]

    def standard_error(self, a: Configuration, b: Configuration) -> float:
        """Return the standard error of the difference of two scores.

        The scatter of launches is independent. The error of beta is common to all, so that it
        matters by how differently the pacer stood next to the two. A configuration that was never
        measured is treated as launched once, next to the usual pacer.
        """
        variance, apart = 0.0, 0.0
        for configuration, sign in ((a, 1), (b, -1)):
            weights, deviations = self._weights(configuration)
            variance += self.launch_sd**2 * (float(np.dot(weights, weights)) if weights else 1.0)
            apart += sign * float(np.dot(weights, deviations))
        return math.sqrt(variance + (self._beta_sd * apart) ** 2)

    def n_launches(self, configuration: Configuration) -> int:
        """Return how many launches the score rests on."""
        return len(self._records.get(configuration, []))

    def _estimate_launch_sd(self) -> float:
        """Return the pooled SD of one launch's score, from repeated configurations and a prior."""
        # where slices within a launch scatter by more, launches do so, too: by 1.2 and 1.3 times as
        # much in benchmarks/tables (fc-torch, ncf-torch-instances), by half in benchmarks/noise
        prior = max(PRIOR_LAUNCH_SD, self._within)
        squares, freedom = prior**2 * _PRIOR_LAUNCH_DF, float(_PRIOR_LAUNCH_DF)
        for configuration in self._records:
            scores = self.launch_scores(configuration)
            if len(scores) > 1:
                squares += float(np.var(scores, ddof=1)) * (len(scores) - 1)
                freedom += len(scores) - 1
        return math.sqrt(squares / freedom)

    def _estimate_scatter(self) -> Scatter:
        """Return the SD between launches that more slices could not reduce, and that of slices."""
        if not self._several:
            return Scatter(self.launch_sd, self.launch_sd / 2, is_guess=True)
        of_medians = statistics.median(map(variance_of_median, self._several))
        total = self.launch_sd**2
        return Scatter(math.sqrt(max(total - of_medians, total / 16)), self._within)


def _at(moment: float, times: Sequence[float], values: Sequence[float]) -> float:
    """Interpolate linearly; before the first and after the last, theirs."""
    i = bisect.bisect_left(times, moment)
    if i == 0 or i == len(times):
        return values[min(i, len(times) - 1)]
    share = (moment - times[i - 1]) / (times[i] - times[i - 1])
    return values[i - 1] + share * (values[i] - values[i - 1])
