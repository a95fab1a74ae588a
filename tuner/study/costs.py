"""Seconds that a budget grants, and estimates of what launches, slices and rounds take.

All are seconds of the wall clock. Estimates come from earlier launches.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable

from tuner.launchers.clock import WALL_CLOCK, Clock
from tuner.measurement.arrival_plan import trials_s
from tuner.measurement.replication import CONFIRM, Replication, n_needed
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import compiles, narrowest_class
from tuner.study.evaluation import Evaluation

_UNKNOWN_S = 30.0
"""Seconds of a launch, before any was measured."""
_RECKONED = 8
"""Slices of a confirming launch for which time is kept, at most. Rounds take more if time is left,
and fewer if a first look would not fit otherwise. The search needs time as well."""
SAFETY = 1.25
"""Estimated seconds are raised by this: a shared machine may slow down before the first look."""


class Budget:
    """Seconds granted and used by all sessions of a study."""

    def __init__(
        self,
        total_s: float,
        used_before_s: float = 0.0,
        *,
        began_at_s: float = 0.0,
        kept_s: float = 0.0,
        is_over: bool = False,
        clock: Clock = WALL_CLOCK,
    ) -> None:
        """Begin to count.

        began_at_s: seconds used before the current extent. kept_s: time kept for the report.
        is_over: the study is finished, and rendering it again uses nothing.
        """
        self.total_s = total_s
        self.granted_s = total_s - began_at_s
        """Seconds granted to the current extent, which its phases share."""
        self.kept_s = kept_s
        """For the report."""
        self._is_over = is_over
        self._used_before_s = used_before_s
        self._clock = clock
        self._began_s = clock.now_s()

    def used_s(self) -> float:
        """Return the seconds used so far, earlier sessions included."""
        passed_s = 0.0 if self._is_over else self._clock.now_s() - self._began_s
        return self._used_before_s + passed_s

    def left_s(self) -> float:
        """Return the seconds left to measure in; negative once it is overdrawn."""
        return self.total_s - self.kept_s - self.used_s()


class Costs:
    """Estimates of the seconds of launches."""

    def __init__(
        self,
        store: Store,
        evaluation: Evaluation,
        confirming: Replication = CONFIRM,
        least_launch_s: float = 0.0,
    ) -> None:
        """confirming: how often a confirming launch is sliced. least_launch_s: of the default."""
        self.least_launch_s = least_launch_s
        self._launches = store.launches
        self._evaluation = evaluation
        self._confirming = confirming
        self._version = -1
        self._overheads_s: list[float] = []

    def note_overhead(self, seconds: float) -> None:
        """Note the time of a launch beyond its own seconds: the pacer's slices, waiting."""
        self._overheads_s.append(seconds)

    def launch_s(self, configuration: Configuration) -> float:
        """Estimate the seconds of measuring a configuration, the pacer's slices included."""
        overhead_s = statistics.median(self._overheads_s) if self._overheads_s else 0.0
        return self.own_s(configuration) + overhead_s

    def round_s(self, arms: Iterable[Configuration]) -> float:
        """Estimate the seconds of one confirmation round, rather too many than too few."""
        return SAFETY * self._rounds_s(list(arms))

    def minimal_round_s(self, arms: Iterable[Configuration]) -> float:
        """Estimate the seconds of one confirmation round with the fewest slices that count.

        What compiled from nothing in its only launch finds its cache there.
        """
        launched = list(arms)
        return self._rounds_s(launched, minimal=True) - sum(map(self.compiling_s, launched))

    def _rounds_s(self, arms: list[Configuration], *, minimal: bool = False) -> float:
        """Sum up a round: all arms take as many passes as the one that needs most for its calls."""
        least = max(map(self._passes_for_calls, arms), default=0)
        return sum(self.repeat_s(arm, minimal=minimal, least=least) for arm in arms)

    def _passes_for_calls(self, configuration: Configuration) -> int:
        """Return in how many slices an arm makes as many calls as it has to; 0 if any will do."""
        self._refresh()
        slices = [s for r in self._ended.get(configuration, []) for s in r.slices]
        n_calls = sum(s.calls for s in slices) / max(1, len(slices))
        return math.ceil(self._evaluation.objective.least_calls / n_calls) if n_calls else 0

    def slice_s(self, configuration: Configuration) -> float:
        """Return the seconds of a slice with its discarded call, in an earlier launch; 1 if none.

        The first call after a pause takes as long as the timed ones.
        """
        self._refresh()
        own = [r for r in self._ended.get(configuration, []) if r.slices]
        return own[-1].slicing_s / len(own[-1].slices) if own else 1.0

    def _refresh(self) -> None:
        """Collect the launches whose seconds are known, without those of a pacer."""
        if self._evaluation.version == self._version:
            return
        self._version = self._evaluation.version
        self._ended: dict[Configuration, list[LaunchRecord]] = defaultdict(list)
        of_kind: dict[tuple[WinnerClass, bool], list[float]] = defaultdict(list)
        compiling: dict[bool, list[float]] = defaultdict(list)
        for record in self._launches.values():
            if (
                record.prepared is None
                or record.ending is None
                or record.ending.outcome is Outcome.INTERRUPTED  # its seconds are not known
                or record.request.purpose is Purpose.PACER
            ):
                continue
            configuration = record.request.configuration
            self._ended[configuration].append(record)
            of_kind[narrowest_class(configuration), compiles(configuration)].append(record.total_s)
            compiling[compiles(configuration)].append(record.total_s)
        self._kind_cost_s = {kind: statistics.fmean(seconds) for kind, seconds in of_kind.items()}
        self._compiling_cost_s = {is_so: statistics.fmean(s) for is_so, s in compiling.items()}
        everything = list(itertools.chain(*of_kind.values()))
        self._mean_cost_s = statistics.fmean(everything) if everything else _UNKNOWN_S

    def own_s(self, configuration: Configuration) -> float:
        """Estimate the seconds of a configuration's launch, without the pacer's slices around it.

        From its own launches; otherwise from those of its class that compile as it does; otherwise
        from any that compile as it does; otherwise from all.
        """
        self._refresh()
        if configuration in self._ended:
            return statistics.fmean(r.total_s for r in self._ended[configuration])
        has_compiler = compiles(configuration)
        of_any_class_s = self._compiling_cost_s.get(has_compiler, self._mean_cost_s)
        return self._kind_cost_s.get((narrowest_class(configuration), has_compiler), of_any_class_s)

    def repeat_s(
        self, configuration: Configuration, *, minimal: bool = False, least: int = 0
    ) -> float:
        """Estimate the seconds of a configuration's launch in the confirmation.

        It was launched before, so that the compiler's cache is warm and its outputs are checked; a
        confirming launch takes more slices, each after a discarded call. minimal: the fewest.
        least: passes that other arms of its round need.
        """
        self._refresh()
        own = self._ended.get(configuration, [])
        if not own:
            return self.own_s(configuration)
        shortest = min(own, key=lambda r: r.total_s - r.check_s)
        slice_s = shortest.slicing_s / max(1, len(shortest.slices))
        fixed_s = _unsliced_s(shortest)
        needed = self._confirming.least
        if not minimal:
            wanted = n_needed(
                self._confirming, self._evaluation.estimates.scatter, fixed_s, slice_s
            )
            needed = min(_RECKONED, wanted)
        needed = max(needed, least, self._passes_for_calls(configuration))
        arriving_s = trials_s(shortest, self._evaluation.objective)
        return fixed_s + (arriving_s or needed * slice_s)

    def unsliced_s(self, configuration: Configuration) -> float:
        """Estimate the seconds of a configuration's next launch before its first slice."""
        self._refresh()
        own = self._ended.get(configuration, [])
        return statistics.median(map(_unsliced_s, own)) if own else self.own_s(configuration)

    def compiling_s(self, configuration: Configuration) -> float:
        """Return the seconds of compiling in a configuration's only launch; 0 if it had several.

        Another launch may find the compiled code in the cache. For a launch that was prepared in
        parallel, its share.
        """
        self._refresh()
        own = self._ended.get(configuration, [])
        return own[0].compile_s / (1 + own[0].request.n_companions) if len(own) == 1 else 0.0


def _unsliced_s(record: LaunchRecord) -> float:
    # of a launch that was little but slices, rounding may leave less than nothing
    return max(0.0, record.total_s - record.check_s - record.slicing_s)
