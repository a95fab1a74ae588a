"""What a search on a recorded table is worth: the figures, each with its definition.

Every figure looks at what would be recommended at a time, not at the best that was seen, and at
what that is worth in truth (a table's mean over all of its launches), not at how it was measured.
Rates are logarithms; seconds are recorded machine-seconds.

replay score    Between the times at which random search has closed 50 % and 95 % of the way from
                the median configuration to the best: the mean over time of
                    (rate recommended - rate random recommends) / (best rate - rate random
                    recommends).
                1: the best at once; 0: as random; below: worse. Where single launches are so noisy
                that random search never closes 50 %: from half of what it does close. After
                Willemsen et al. 2024, doi 10.1016/j.future.2024.05.021.
seconds to 5 %  Machine-seconds until the recommendation stays within 5 % of the best rate until the
                end. A run that never gets there counts with all of its seconds, divided in the end
                by the share of runs that did: the expected running time (ERT) of restarts.
regret          1 - rate recommended at the end / best rate.
duplicates      Share of the evaluations whose configuration had been evaluated before by the same
                search, other than on purpose (racing).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from benchmarks.deck import truth_of
from benchmarks.table import Table
from tuner.record.configuration import Configuration

_N_TIMES = 1000
"""Equidistant points in time over which a score is averaged."""
FROM, TO = 0.5, 0.95


class Step(msgspec.Struct, frozen=True):
    """From this time on this configuration is recommended."""

    at_s: float
    row: Configuration


class Run(msgspec.Struct, frozen=True):
    """What one search recommended when, and what it spent."""

    steps: tuple[Step, ...]
    seconds: float
    """Of the search, without what confirms its result."""
    n_launches: int
    n_duplicates: int = 0
    total_s: float = 0.0
    pulls: dict[Configuration, int] = {}
    launch_sd: float = 0.0
    why: str = ""
    """Why it ended."""
    n_confirming: int = 0

    @property
    def n_pulls(self) -> int:
        """Launches of the configurations that were measured."""
        return sum(self.pulls.values())

    @property
    def n_all(self) -> int:
        """The same with those of the confirmation."""
        return self.n_pulls + self.n_confirming


class Truth:
    """What every configuration of a table is worth."""

    def __init__(self, table: Table, noise: float = 0.0) -> None:
        self.of = truth_of(table)
        working = [level for level in self.of.values() if level is not None]
        self.best = max(working)
        self.median = statistics.median(working)
        self._worst = min(working)
        self.launch_sd = math.hypot(launch_sd(table), noise)

    def level(self, row: Configuration) -> float:
        """Return the log rate; what fails is worth as much as the slowest."""
        found = self.of[row]
        return self._worst if found is None else found

    def levels(self, run: Run, times: np.ndarray) -> np.ndarray:
        """Return the log rate of what a run recommends at each time; before, the median's."""
        starts = np.array([step.at_s for step in run.steps])
        values = np.array([self.median, *(self.level(step.row) for step in run.steps)])
        found: np.ndarray = values[np.searchsorted(starts, times, side="right")]
        return found

    def regret(self, run: Run) -> float:
        """Return the share of the best rate that the last recommendation lacks."""
        return 1 - math.exp(self.level(run.steps[-1].row) - self.best) if run.steps else 1.0

    def settles_s(self, run: Run, within: float) -> float | None:
        """Return when a run's recommendation is within a share of the best for good, or None."""
        least = self.best + math.log(1 - within)
        since = None
        for step in run.steps:
            if self.level(step.row) < least:
                since = None
            elif since is None:
                since = step.at_s
        return since


def launch_sd(table: Table) -> float:
    """Return the pooled SD of a recording's launches; 0 of a foreign table, which has one each."""
    if table.recording is None:
        return 0.0
    levels = [[t.level for t in launches if t.slices] for launches in table.launches.values()]
    several = [each for each in levels if len(each) > 1]
    freedom = sum(len(each) - 1 for each in several)
    squares = sum(statistics.variance(each) * (len(each) - 1) for each in several)
    return math.sqrt(squares / freedom) if freedom else 0.0


class Window(msgspec.Struct, frozen=True):
    """The times over which a score is averaged, and what random search is worth at each."""

    times: tuple[float, ...]
    random: tuple[float, ...]
    share: float
    """Of the way from the median to the best, what random search has closed when it begins."""
    n_evaluations: float
    """Evaluations that random search needs on average for that."""

    @property
    def end_s(self) -> float:
        """When random search has all but arrived."""
        return self.times[-1]


def window(truth: Truth, randoms: Sequence[Run]) -> Window:
    """Find the window from many random searches."""
    horizon = max(run.seconds for run in randoms)
    times = np.linspace(0, horizon, 20 * _N_TIMES)
    mean = np.mean([truth.levels(run, times) for run in randoms], axis=0)
    way = truth.best - truth.median
    closed = (mean - truth.median) / way if way > 0 else np.ones_like(mean)
    # where luck chooses, random search may never close half: then it is half of what it does close
    reached = float(closed.max())
    share = FROM if reached >= FROM else min(FROM * reached, reached)
    begins = _first(times, closed, share)
    ends = _first(times, closed, TO)
    ends = max(ends, begins + horizon / (20 * _N_TIMES))
    inside = np.linspace(begins, ends, _N_TIMES)
    per_launch = statistics.fmean(run.seconds / max(1, run.n_launches) for run in randoms)
    return Window(
        tuple(inside.tolist()),
        tuple(np.interp(inside, times, mean).tolist()),
        share,
        begins / per_launch,
    )


def _first(times: np.ndarray, closed: np.ndarray, share: float) -> float:
    """Return from when on the mean has closed a share; the last time if it never does."""
    there = np.flatnonzero(closed >= share)
    return float(times[there[0]] if len(there) else times[-1])


def replay_scores(truth: Truth, runs: Sequence[Run], window: Window) -> np.ndarray:
    """Return the score of each run, whose mean is the search's."""
    times, random = np.array(window.times), np.array(window.random)
    lacking = np.maximum(truth.best - random, 1e-9)
    levels = np.array([truth.levels(run, times) for run in runs])
    scores: np.ndarray = ((levels - random) / lacking).mean(axis=1)
    return scores


def expected_seconds(truth: Truth, runs: Sequence[Run], within: float) -> float:
    """Return the expected seconds to stay within a share of the best; infinite if no run did."""
    settled = [truth.settles_s(run, within) for run in runs]
    n_there = sum(s is not None for s in settled)
    if not n_there:
        return math.inf
    spent = sum(run.total_s if s is None else s for s, run in zip(settled, runs, strict=True))
    return spent / n_there


def bootstrap(
    n: int, figure: Callable[[np.ndarray], float], n_samples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of a figure of `n` runs, which is given the indices it may see."""
    random = np.random.default_rng(seed)
    found = [figure(random.integers(0, n, n)) for _ in range(n_samples)]
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def oracle_pulls(
    levels: Sequence[float], sds: Sequence[float], slack: float = 0.02, clear: float = 1.64
) -> float:
    """Return the least launches that certify a best arm within `slack`, by one who knows the truth.

    Of Gaussian log rates, at least one launch of each arm: minimise sum n_i where every arm i is
    behind by so many standard errors that it is clear, that is, by
    (m_b - m_i + slack) >= clear sqrt(s_b^2 / n_b + s_i^2 / n_i). For fixed n_b the others follow;
    n_b is searched. After Garivier and Kaufmann 2016, hal-01273838, with the rule that the race
    ends by in the place of kl(delta, 1 - delta), so that both give the same guarantee; measurement
    notes, section 4. Arms are taken one by one: a search that learns of one from others may need
    less.
    """
    needed = clear**2 / 2
    m, s2 = np.array(levels), np.array(sds) ** 2
    best = int(np.argmax(m))
    gaps = (m[best] - np.delete(m, best) + slack) ** 2 / (2 * needed)
    others = np.delete(s2, best)
    if not len(gaps):
        return 1.0
    least = max(1.0, float(s2[best] / gaps.min()) * (1 + 1e-9))
    totals = []
    for n_best in least * np.geomspace(1, 1000, 400):
        room = gaps - s2[best] / n_best
        totals.append(n_best + np.maximum(1.0, others / np.maximum(room, 1e-12)).sum())
    return float(min(totals))
