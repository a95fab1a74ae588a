"""The launches of a recorded table, dealt at random, as a bootstrap draws them: with replacement.

A dealt launch keeps its slices, its seconds and its failure as they were recorded. Beside it goes
what the pacer showed at its recorded moments, so that a search with a pacer has of it what it would
have had on that day. Foreign tables hold one launch of each configuration and neither noise nor
pacer; `noise` adds a normal deviate of that SD to each dealt launch's log rate.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
import statistics
from collections.abc import Callable

from benchmarks.table import Cut, Table, Taken
from benchmarks.tails import NO_TAILS, Tails
from tuner.launchers.clock import VirtualClock
from tuner.launchers.recorded import Played, PlayedSlice
from tuner.measurement.estimates import Estimates
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, LaunchRequest, Purpose, Slice
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Ending, Outcome

_DISTURBED = ("others",)


class Drift:
    """How the pacer of a recording moved (log rate against its session's mean), sessions differ.

    Sessions are tied by the configurations that were launched in several
    (measurement/estimates.py).
    """

    def __init__(self, table: Table) -> None:
        pacer = table.recording.pacer if table.recording is not None else []
        self._series = [_series(cuts) for cuts in pacer]
        self._means = [statistics.fmean(logs) if logs else 0.0 for _, logs in self._series]
        self.slice_s = _pacer_slice_s(table)
        self.estimates = Estimates(_records(table), THROUGHPUT)

    def pacer(self, session: int, at_s: float) -> float:
        """Return the pacer's deviation at a moment of a session."""
        if session >= len(self._series) or not self._series[session][0]:
            return 0.0
        times, logs = self._series[session]
        i = min(bisect.bisect_left(times, at_s), len(times) - 1)
        return logs[i] - self._means[session]

    def offset(self, session: int) -> float:
        """Return by how much (log rate) a session was faster than the others."""
        return self.estimates.offset(-1 - session)


def _pacer_slice_s(table: Table) -> float:
    """Return what a slice of the pacer takes: it lies between two slices of a launch."""
    gaps = [
        later.at_s - sooner.at_s - taken.slice_s
        for launches in table.launches.values()
        for taken in launches
        for sooner, later in itertools.pairwise(taken.slices)
    ]
    return max(0.0, statistics.median(gaps)) if gaps and table.recording is not None else 0.0


def _series(cuts: list[Cut]) -> tuple[list[float], list[float]]:
    clean = sorted((c.at_s, math.log(c.rate)) for c in cuts if not c.is_dirty)
    return [at for at, _ in clean], [level for _, level in clean]


def _records(table: Table) -> dict[int, LaunchRecord]:
    """Return a table as a study's launches; the pacer of session k is launch -1 - k."""
    found: dict[int, LaunchRecord] = {}
    pacer = table.recording.pacer if table.recording is not None else []
    for session, cuts in enumerate(pacer):
        request = LaunchRequest(-1 - session, Configuration(), 1, Purpose.PACER)
        found[request.id] = LaunchRecord(request, slices=[_slice(c) for c in cuts])
    for configuration, launches in table.launches.items():
        for taken in launches:
            request = LaunchRequest(
                len(found) + 1, configuration, 1, Purpose.SEARCH, pacer_block=-1 - taken.session
            )
            found[request.id] = LaunchRecord(
                request,
                slices=[_slice(c) for c in taken.slices],
                ending=Ending(Outcome(taken.outcome), taken.reason),
            )
    return found


def _slice(cut: Cut) -> Slice:
    disturbed = Interference(dirty=_DISTURBED if cut.is_dirty else ())
    return Slice(0, 1, 1, 1 / cut.rate, cut.at_s, disturbed)


@functools.lru_cache(maxsize=4)
def drift_of(table: Table) -> Drift:
    """Return a table's drift, estimated once."""
    return Drift(table)


def truth_of(table: Table) -> dict[Configuration, float | None]:
    """Return each configuration's log rate with the machine's drift taken out; None if it fails.

    The mean over its launches, slow ones included, whatever the search makes of them.
    """
    if table.recording is None:
        return table.truth()
    estimates = drift_of(table).estimates
    return {
        c: None if t is None else statistics.fmean(estimates.launch_scores(c))
        for c, t in table.truth().items()
    }


class Dealt:
    """A recorded launch, being played."""

    def __init__(self, taken: Taken, drift: Drift, shift: float, draw: random.Random) -> None:
        self.taken = taken
        self.fixed_s = taken.fixed_s
        self.check_s = taken.check_s
        good = taken.outcome == Outcome.MEASURED
        self.failure = None if good else Ending(Outcome(taken.outcome), taken.reason)
        self.has_slices = bool(taken.slices)
        self.memory_bytes = 0
        self._drift = drift
        self._shift = shift - drift.offset(taken.session)
        self._draw = draw
        self._n_played = 0

    @property
    def log_rate(self) -> float:
        """The launch's one number, as who has no pacer sees it."""
        return self.taken.level + self._shift

    @property
    def steady(self) -> float:
        """The launch's one number without what swung at its recorded moment."""
        beside = [self._drift.pacer(self.taken.session, cut.at_s) for cut in self.taken.slices]
        return self.log_rate - statistics.fmean(beside)

    def pacer(self) -> float:
        """Return the pacer's deviation beside the slice that was played last."""
        cuts = self.taken.slices
        if not cuts:
            return self._drift.pacer(self.taken.session, self.taken.at_s)
        k = min(max(self._n_played - 1, 0), len(cuts) - 1)
        return self._drift.pacer(self.taken.session, cuts[k].at_s)

    def slice(self) -> PlayedSlice:
        """Return the next recorded slice; after the last, any of them again."""
        cuts = self.taken.slices
        is_recorded = self._n_played < len(cuts)
        cut = cuts[self._n_played] if is_recorded else self._draw.choice(cuts)
        self._n_played += 1
        return PlayedSlice(
            cut.rate * math.exp(self._shift),
            _DISTURBED if cut.is_dirty else (),
            self.taken.slice_s,
        )


class Deck:
    """Deals the launches of a table in random order; with heavy tails, some of them slowed."""

    def __init__(self, table: Table, noise: float, seed: int, tails: Tails = NO_TAILS) -> None:
        self.table = table
        self.drift = drift_of(table)
        self._noise = noise
        self._random = random.Random(seed)
        self._slowed = tails.draw(seed)

    def deal(self, configuration: Configuration) -> Dealt:
        """Deal a launch of a configuration."""
        taken = self._random.choice(self.table.launches[configuration])
        shift = self._random.gauss(0, self._noise) if self._noise else 0.0
        return Dealt(taken, self.drift, shift - next(self._slowed), self._random)


class _Pacer:
    """The resident default: what the recorded pacer showed beside the launch that is measured."""

    check_s, memory_bytes, has_slices = 0.0, 0, True
    failure: Ending | None = None

    def __init__(self, source: DeckSource) -> None:
        self._source = source
        self._default = source.default() if source.has_pacer else None
        self.fixed_s = self._default.fixed_s if self._default is not None else 0.0

    def slice(self) -> PlayedSlice:
        level = self._default.steady if self._default is not None else 0.0
        return PlayedSlice(math.exp(level + self._source.pacer()), (), self._source.pacer_slice_s)


class DeckSource:
    """Launches of a study from a deck.

    Side by side, where one machine's swings are all launches' swings, what the pacer showed is
    taken out of each. row: a study's configuration as the table has it.
    """

    def __init__(self, deck: Deck, row: Callable[[Configuration], Configuration]) -> None:
        self.clock = VirtualClock()
        self._deck = deck
        self._row = row
        self._now: Dealt | None = None

    @property
    def has_pacer(self) -> bool:
        """Whether a pacer ran beside the recording; where none did, it costs nothing either."""
        return self._deck.table.recording is not None

    @property
    def pacer_slice_s(self) -> float:
        """What a slice of the pacer takes."""
        return self._deck.drift.slice_s

    def default(self) -> Dealt:
        """Deal a launch of the default."""
        return self._deck.deal(self._row(Configuration()))

    def pacer(self) -> float:
        """Return the pacer's deviation at the recorded moment of what is measured."""
        return self._now.pacer() if self._now is not None else 0.0

    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        if purpose is Purpose.PACER:
            return _Pacer(self)
        self._now = self._deck.deal(self._row(configuration))
        return _SideBySide(self._now) if purpose is Purpose.CONFIRM else self._now

    def idle(self) -> tuple[str, ...]:
        return ()


class _SideBySide:
    """A dealt launch without what swung at its own recorded moment alone."""

    def __init__(self, dealt: Dealt) -> None:
        self._dealt = dealt
        self.fixed_s, self.check_s = dealt.fixed_s, dealt.check_s
        self.failure, self.has_slices = dealt.failure, dealt.has_slices
        self.memory_bytes = dealt.memory_bytes

    def slice(self) -> PlayedSlice:
        found = self._dealt.slice()
        rate = found.rate * math.exp(-self._dealt.pacer())
        return PlayedSlice(rate, found.dirty, found.took_s)
