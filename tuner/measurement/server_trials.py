"""A server's launches: the trials in them, their simulation, and the rate that these show.

A server's confirming launch first times its batches, from which a simulation predicts the rate in
the long run. Then requests arrive. server_rate.py estimates the rate from both.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

from tuner.measurement.queueing import IDLE, waited
from tuner.measurement.server_rate import (
    SCALE_STEP,
    Fit,
    Launched,
    Speed,
    Trial,
    fit,
    log_rates,
    misses,
)
from tuner.record.arrivals import at_random
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.load import Slo
from tuner.record.objective import Objective, capacity_of, offered_of, timed_of
from tuner.record.service_times import service_times

LONGEST_S = 120.0
"""Seconds of a trial: a server is not useful if fewer requests than say anything of the quantile
take longer."""
_LEAST_SHARE = 0.1
"""Of the capacity: rates below are not tried, unless the edge is expected there."""


def uses_arrivals(record: LaunchRecord, objective: Objective) -> bool:
    """Tell whether requests are sent to a launch: they are in rounds, which claims rest on."""
    return objective.slo is not None and is_in_round(record)


def is_in_round(record: LaunchRecord) -> bool:
    """Tell whether claims, or the worth of a setting, rest on a launch."""
    return record.request.purpose in (Purpose.CONFIRM, Purpose.EXPLAIN) and record.request.round > 0


class SimulatedServer:
    """A server with the service times that a slice showed (server_rate.Model)."""

    def __init__(self, taken: Slice, slo: Slo) -> None:
        """taken: of a launch in a round, in which batches were timed."""
        assert taken.served is not None
        self.rate, self.slope = taken.served.long_run, taken.served.slope
        self._batching = taken.served.batching
        self._service_s = service_times(taken)
        self.speed = _speed(list(self._service_s.values()))
        self._bound_s = slo.seconds
        self._known: dict[tuple[Trial, int], int] = {}

    def n_late(self, trial: Trial, steps: int) -> int:
        """Return how many of a trial's requests are late at its rate times exp(0.02 * steps)."""
        if (trial, steps) not in self._known:
            assert trial.seed is not None
            rate = trial.rate * math.exp(SCALE_STEP * steps)
            due = at_random(trial.seed, trial.n_requests) / rate
            waited_s = waited(self._batching, self._service_s, due, trial.seed)
            self._known[trial, steps] = sum(each > self._bound_s for each in waited_s)
        return self._known[trial, steps]


def _speed(service_s: Sequence[Sequence[float]]) -> Speed:
    """Return the speed over all sizes of batches. service_s: of each, its timed seconds."""
    means = [statistics.fmean(each) for each in service_s]
    errors = [
        statistics.stdev(each) / mean / math.sqrt(len(each)) if len(each) > 1 else 0.0
        for each, mean in zip(service_s, means, strict=True)
    ]
    n = len(means)
    return Speed(-sum(map(math.log, means)) / n, math.hypot(*errors) / n)


_simulated = functools.lru_cache(maxsize=256)(SimulatedServer)


def launched(record: LaunchRecord, slo: Slo) -> Launched:
    """Return the trials of a launch, and the simulation of its server if there is one.

    All trials count: users meet disturbances as well.
    """
    trials = tuple(
        Trial(
            s.served.offered,
            s.served.n_requests,
            sum(call_s > slo.seconds for call_s in s.call_s),
            s.served.seed,
        )
        for s in offered_of(record.slices)
        if s.served is not None
    )
    timed = [s for s in timed_of(record.slices) if s.served is not None and s.served.long_run]
    return Launched(trials, _simulated(timed[0], slo) if timed else None)


def launch_log_rate(record: LaunchRecord, slo: Slo) -> float | None:
    """Return the log rate of one launch by its own trials: a hint, its interval is wide.

    None if the launch misses the bound, or has no trials.
    """
    (found,) = log_rates_of_launches([record], slo)
    return found


def log_rates_of_launches(
    records: Sequence[LaunchRecord], slo: Slo, others: Sequence[Trial] = ()
) -> list[float | None]:
    """Return log rates, one for each launch of a configuration, from all trials together.

    Their mean is the log rate by all trials, and the SD of their mean its error. None of a launch
    that misses the bound at any rate, or has no trials; of all if the rate is lower than what was
    tried. others: trials of further launches, one each, whose log rates follow.
    """
    launches = [launched(record, slo) for record in records]
    useful = [
        bool(each.trials) and not _misses(record, each, slo)
        for record, each in zip(records, launches, strict=True)
    ]
    counted = [each for each, is_useful in zip(launches, useful, strict=True) if is_useful]
    counted += [Launched((other,)) for other in others]
    found = log_rates(counted, slo.allowed, _most(records)) if counted else None
    if found is None:
        return [None] * (len(records) + len(others))
    fitted = iter(found)
    return [*(next(fitted) if is_useful else None for is_useful in useful), *fitted]


def fit_of_launches(records: Sequence[LaunchRecord], slo: Slo) -> Fit:
    """Return the fit to all trials of a configuration's launches, at least one trial.

    Launches that miss the bound at any rate count if all do.
    """
    launches = [launched(record, slo) for record in records]
    useful = [
        each
        for record, each in zip(records, launches, strict=True)
        if each.trials and not _misses(record, each, slo)
    ]
    return fit(useful or launches, slo.allowed)


def _most(records: Sequence[LaunchRecord]) -> float:
    """Return what a configuration's launches answer when they are never idle."""
    most = [most_of(timed) for record in records if (timed := timed_of(record.slices))]
    return statistics.fmean(most) if most else math.inf


def most_of(timed: Sequence[Slice]) -> float:
    """Return the requests per second that a server answers when it is never idle.

    timed: slices in which batches were timed, at least one. Callers in a closed loop may not fill
    the batches of a server of the user's own: they tell of no most.
    """
    is_own = any(s.served is not None and s.served.levels for s in timed)
    return math.inf if is_own else capacity_of(timed)


def _misses(record: LaunchRecord, own: Launched, slo: Slo) -> bool:
    _, least = search_range(timed_of(record.slices), slo)
    return misses(own.trials, slo.allowed, least, fit([own], slo.allowed).slope)


def search_range(timed: Sequence[Slice], slo: Slo) -> tuple[float, float]:
    """Return the rate to begin with, and the one below which the edge is not looked for."""
    most = capacity_of(timed)
    served = [s.served for s in timed if s.served is not None]
    expected = statistics.fmean(each.long_run or each.sustained for each in served)
    if expected <= 2 * IDLE * most:  # expected to miss even when idle: does it?
        expected = 3 * _LEAST_SHARE * most
    slowest = slo.least_requests / LONGEST_S
    start = max(expected, slowest)
    return start, max(slowest, min(_LEAST_SHARE * most, start / 4))


def is_conclusive(record: LaunchRecord, objective: Objective) -> bool:
    """Tell whether a launch says whether it keeps within the bound.

    One that was cut short before it came to the lowest rates has not missed it.
    """
    slo = objective.slo
    if slo is None or not timed_of(record.slices):
        return True
    own = launched(record, slo)
    if not own.trials:
        return True
    return launch_log_rate(record, slo) is not None or _misses(record, own, slo)
