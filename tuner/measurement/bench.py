"""The measuring bench of a study: interleaves slices of launches, keeps the pacer alive.

The parent blocks while a slice runs and works only between slices; whatever is not being measured
is stopped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable

from tuner.measurement.pacer import Pacer
from tuner.measurement.passes import passes_of
from tuner.measurement.quiet import Quiet
from tuner.measurement.replication import (
    CONFIRM,
    FIXED,
    SEARCH,
    Replication,
    Scatter,
    n_needed,
    replication,
    scatter,
    wants_more,
)
from tuner.measurement.seam import Launch, Launcher
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, Purpose, Slice
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Check
from tuner.record.store import Store
from tuner.record.workload import ModelCard
from tuner.space.catalogue import describe

SLICE_S = 0.3
"""Slices of 0.2-0.5 s beat longer ones on a busy host (measurement notes, section 1.1)."""
_PROFILED_S = 0.5


class Bench:
    """Measures configurations of one workload, on what a launcher starts, into one store."""

    def __init__(
        self,
        store: Store,
        card: ModelCard,
        objective: Objective,
        launcher: Launcher,
        quiet: Quiet,
        draw: random.Random,
    ) -> None:
        """draw: the order of what takes turns."""
        self.store = store
        self.launcher = launcher
        self._card = card
        self._objective = objective
        self._quiet = quiet
        self._random = draw
        self.pacer = Pacer(store, launcher, self._slice)
        self._profiles_tried: set[Configuration] = set()

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        self.launcher.close()
        self.pacer.forget()

    # ---------------------------------------------------------------- slices

    def _slice(self, launch: Launch) -> None:
        """Take a slice, then let the launch wait."""
        launch.take_slice(self.store.next_slice_index(), SLICE_S)
        launch.pause()

    def _measure_alone(
        self,
        launch: Launch,
        planned: Replication,
        noise: Scatter,
        *,
        hopeless_below: float = -math.inf,
        least_calls: int = 0,
        beside_neighbour: bool = False,
        checks: bool = False,
        profiles: bool = False,
    ) -> LaunchRecord:
        """Measure a launch by itself, each slice between two of the pacer while there is one."""
        launch.pause()
        self.pacer.pace(launch)
        while launch.goes_on and (
            _lacks_calls(launch, least_calls) or self._wants_slice(launch, planned, noise)
        ):
            self._await_quiet(launch.record.slices[-1:])
            self._slice(launch)
            self.pacer.pace(launch)
            clean = launch.record.clean_slice
            if clean is not None and self._objective.of_slice(clean) < hopeless_below:
                return launch.finish(self._pruned(clean, hopeless_below))
        if beside_neighbour:
            self._measure_beside([launch])
        return self._conclude(launch, checks=checks, profiles=profiles)

    def _wants_slice(self, launch: Launch, planned: Replication, noise: Scatter) -> bool:
        """Tell whether one more slice of a launch tells more than its seconds are worth."""
        slices = launch.record.slices
        clean = [s for s in slices if not s.interference.dirty]
        worths = [self._objective.of_slice(s) for s in clean or slices]
        seen = noise.with_slices(scatter(worths) if slices else 0.0, len(worths))
        slice_s = launch.slice_s + self.pacer.slice_s
        needed = n_needed(replication(planned, self._card), seen, launch.fixed_s, slice_s)
        return wants_more(len(clean), len(slices), needed)

    def _await_quiet(self, slices: Iterable[Slice]) -> None:
        """Wait for quiet if one of the slices was disturbed; every worker is stopped meanwhile."""
        disturbed = [s.interference for s in slices if s.interference.dirty]
        self._quiet.after(disturbed[0] if disturbed else Interference())

    def _measure_beside(self, launches: Iterable[Launch]) -> None:
        """Take a slice of each launch beside a synthetic busy neighbour, which one may not bear."""
        waiting = [launch for launch in launches if launch.goes_on]
        if not waiting:
            return
        with self.launcher.neighbours() as n:
            for launch in self._random.sample(waiting, len(waiting)) if n else []:
                launch.take_slice_beside(self.store.next_slice_index(), SLICE_S, n)
                launch.pause()

    def _conclude(
        self, launch: Launch, *, checks: bool = False, profiles: bool = False
    ) -> LaunchRecord:
        """End a launch whose slices are taken, after what else is wanted of it."""
        if checks:
            self._check_once(launch)
        if profiles:
            self._profile(launch)
        return launch.finish()

    def _check_once(self, launch: Launch) -> None:
        """Check the outputs of a configuration that was not checked yet."""
        configuration = launch.record.request.configuration
        if any(
            r.check is not None and r.request.configuration == configuration
            for r in self.store.launches.values()
        ):
            return
        reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
        n_inputs = self._card.n_check_inputs(changes_numerics=reduced)
        launch.check(Check(n_inputs, reduced, self._card.tolerance))

    def _profile(self, launch: Launch) -> None:
        """Profile a launch that has not ended; nothing is measured in it afterwards."""
        if launch.goes_on:
            self._profiles_tried.add(launch.record.request.configuration)
            launch.profile(_PROFILED_S)

    # ---------------------------------------------------------------- what a study asks for

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        noise: Scatter,
        hopeless_below: float = -math.inf,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        """Measure a configuration in one fresh launch, each slice between two of the pacer.

        noise: what launches and slices scattered by so far, which says how many slices help.
        hopeless_below: a worth; an undisturbed first slice below it ends the launch as pruned.
        beside_neighbour: at the end, take a slice beside a synthetic busy neighbour.
        A failure is the record's ending, never an exception.
        """
        launch = self.launcher.start(configuration, purpose, pacer_block=self.pacer.block())
        return self._measure_alone(
            launch,
            SEARCH,
            noise,
            hopeless_below=hopeless_below,
            beside_neighbour=beside_neighbour,
            checks=True,
        )

    def profile(self, configuration: Configuration) -> LaunchRecord:
        """Have a configuration tell where its time goes, in a launch of its own without slices.

        A failure is the record's ending, never an exception.
        """
        return self._conclude(self.launcher.start(configuration, Purpose.EXPLAIN), profiles=True)

    def may_profile(self, configuration: Configuration) -> bool:
        """Tell whether a configuration was neither profiled, nor tried in vain in this session."""
        tried = configuration in self._profiles_tried or any(
            r.profile is not None and r.request.configuration == configuration
            for r in self.store.launches.values()
        )
        return not tried and self.launcher.can_profile

    def measure_round(
        self,
        arms: list[Configuration],
        number: int,
        purpose: Purpose,
        *,
        noise: Scatter,
        seconds: float = math.inf,
        beside_neighbour: bool = False,
        checks: bool = False,
        profiled: Collection[Configuration] = (),
    ) -> list[LaunchRecord]:
        """Measure one fresh launch of every arm, side by side; records in the order of the arms.

        All are resident. In each pass every arm takes one slice, in random order; a pass in which
        a slice was disturbed is made again, as a whole. Where memory does not allow all of them,
        the launches take turns in random order. Where calls are what counts, no launch makes fewer
        than tell its value. seconds: after so long no more passes than the least are begun, and no
        quiet is waited for. beside_neighbour: at the end, every arm takes a slice beside a
        synthetic busy neighbour. checks: then outputs are compared that were not.
        profiled: arms that tell where their time goes after all that.
        Failures are endings, not exceptions.
        """
        began_s = self.store.used_s()
        order = self._random.sample(range(len(arms)), len(arms))
        known = [r for r in map(self._last_prepared, arms) if r is not None]
        if known and not self.launcher.fit(known):
            records = {
                i: self._measure_alone(
                    self.launcher.start(arms[i], purpose, round_number=number),
                    FIXED,
                    noise,
                    least_calls=self._objective.least_calls,
                    beside_neighbour=beside_neighbour,
                    checks=checks,
                    profiles=arms[i] in profiled,
                )
                for i in order
            }
            return [records[i] for i in range(len(arms))]
        launches = {}
        for i in order:
            launches[i] = self.launcher.start(arms[i], purpose, round_number=number)
            launches[i].pause()
        self._take_passes(launches.values(), noise, hasty_from_s=began_s + seconds)
        if beside_neighbour:
            self._measure_beside(launches.values())
        records = {
            i: self._conclude(launch, checks=checks, profiles=arms[i] in profiled)
            for i, launch in launches.items()
        }
        return [records[i] for i in range(len(arms))]

    def _take_passes(
        self, launches: Iterable[Launch], noise: Scatter, *, hasty_from_s: float
    ) -> None:
        """Have launches take slices in passes, without those that have ended.

        hasty_from_s: when less is measured and no quiet is waited for, in seconds of the budget.
        """

        def in_haste() -> bool:
            return self.store.used_s() > hasty_from_s

        going = [launch for launch in launches if launch.goes_on]
        while going and self._wants_pass(going, noise, in_haste=in_haste()):
            last = [s for each in going for s in each.record.slices[-1:]]
            if not in_haste():
                self._await_quiet(last)
            for launch in self._random.sample(going, len(going)):
                self._slice(launch)
            going = [launch for launch in going if launch.goes_on]

    def _wants_pass(self, launches: list[Launch], noise: Scatter, *, in_haste: bool) -> bool:
        """Tell whether one more slice of every arm tells more than its seconds are worth."""
        if any(_lacks_calls(launch, self._objective.least_calls) for launch in launches):
            return True
        passes = passes_of([launch.record for launch in launches], self._objective)
        planned = replication(CONFIRM, self._card)
        if in_haste and passes.n_taken >= planned.least:
            return False
        needed = n_needed(
            planned,
            noise.with_slices(passes.scatter(), len(launches) * len(passes.worths)),
            sum(launch.fixed_s for launch in launches),
            sum(launch.slice_s for launch in launches),
        )
        return wants_more(passes.n_clean, passes.n_taken, needed)

    def _last_prepared(self, arm: Configuration) -> LaunchRecord | None:
        """Return the latest launch of an arm that got as far as its memory; else of any."""
        everything = [r for r in self.store.launches.values() if r.prepared is not None]
        own = [r for r in everything if r.request.configuration == arm]
        return next(reversed(own or everything), None)

    def _pruned(self, taken: Slice, hopeless_below: float) -> Ending:
        objective = self._objective
        value, edge = objective.value(objective.of_slice(taken)), objective.value(hopeless_below)
        beyond = "below" if objective.direction == "maximize" else "above"
        return Ending(
            Outcome.PRUNED,
            f"{value:.3g} {objective.unit} after one slice, hopeless {beyond} {edge:.3g}",
        )


def _lacks_calls(launch: Launch, least: int) -> bool:
    return sum(s.calls for s in launch.record.slices) < least
