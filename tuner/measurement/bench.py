"""The measuring bench of a study: interleaves slices of launches, keeps the pacer alive.

The parent blocks while a slice runs and works only between slices; whatever is not being measured
is stopped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable

from tuner.errors import NothingMeasured
from tuner.host.identity import Host
from tuner.measurement.launch import Launch, LaunchFailed
from tuner.measurement.launcher import Launcher
from tuner.measurement.neighbour import n_neighbours, neighbour
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
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.launch import Interference, LaunchRecord, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Check
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.knobs import describe

SLICE_S = 0.3
"""Slices of 0.2-0.5 s beat longer ones on a busy host (measurement notes, section 1.1)."""
_PROFILED_S = 0.5


class Bench:
    """Measures configurations of one workload on this host into one store."""

    def __init__(
        self,
        store: Store,
        host: Host,
        workload: Workload,
        facts: ModelFacts,
        listen: Listener,
        *,
        session: int,
        seed: int,
        seconds_left: Callable[[], float],
        waiting_s: float,
        is_cut: bool = False,
    ) -> None:
        """is_cut: no step of a launch outlasts seconds_left; else the one that runs then may."""
        self.store = store
        self.host = host
        self.workload = workload
        self._random = random.Random(seed * 1000 + session)
        self.launcher = Launcher(
            store,
            host,
            workload,
            facts,
            listen,
            session=session,
            draw=self._random,
            seconds_left=seconds_left,
            is_cut=is_cut,
        )
        self._quiet = Quiet(store, listen, waiting_s, seconds_left)
        self._pacer: Launch | None = None
        self._profiles_tried: set[Configuration] = set()
        self.why_no_pacer = ""

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        self.launcher.close()
        self._pacer = None

    # ---------------------------------------------------------------- slices

    def _slice(self, launch: Launch) -> None:
        launch.measure(self.store.next_slice_index(), SLICE_S)

    def _measure_beside(self, launches: Iterable[Launch]) -> None:
        """Take a slice of each launch beside a synthetic busy neighbour, which one may not bear."""
        n = n_neighbours(self.host)
        waiting = list(launches)
        with neighbour(n, self.store.neighbour_log) as is_busy:
            for launch in self._random.sample(waiting, len(waiting)) if is_busy else []:
                if launch.measure_beside(self.store.next_slice_index(), SLICE_S, n):
                    launch.pause()

    def _await_quiet(self, slices: Iterable[Slice]) -> None:
        """Wait for quiet if one of the slices was disturbed; every worker is stopped meanwhile."""
        disturbed = [s.interference for s in slices if s.interference.dirty]
        self._quiet.after(disturbed[0] if disturbed else Interference())

    def _check_once(self, launch: Launch) -> None:
        """Check the outputs of a configuration that was not checked yet."""
        configuration = launch.record.request.configuration
        if any(
            r.check is not None and r.request.configuration == configuration
            for r in self.store.launches.values()
        ):
            return
        reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
        card = self.workload.card
        n_inputs = card.n_check_inputs(changes_numerics=reduced)
        launch.check(Check(n_inputs, reduced, card.tolerance))

    # ---------------------------------------------------------------- the pacer

    def pacer_block(self) -> int:
        """Return the launch id of the running pacer, starting one if need be; 0 if none may be.

        Raises NothingMeasured if the default itself cannot be launched.
        """
        if self.why_no_pacer:
            return 0
        if self._pacer is None:
            try:
                self._pacer = self.launcher.start(Configuration(), Purpose.PACER)
            except LaunchFailed as error:
                if self._was_default_measured():
                    self.why_no_pacer = f"it could not be started again: {error.ending.reason}"
                    return 0
                raise NothingMeasured(
                    f"the default configuration cannot be measured: {error.ending.outcome}: "
                    f"{error.ending.reason}; see {self.store.log_of(max(self.store.launches))}"
                ) from error
            if not self.launcher.memory.fit([self._pacer.record, self._pacer.record]):
                self.why_no_pacer = "the default needs more than a third of the memory"
                self.retire_pacer()
                return 0
            self._pacer.pause()
        return self._pacer.record.request.id

    def _was_default_measured(self) -> bool:
        return any(
            record.slices and record.request.configuration == Configuration()
            for record in self.store.launches.values()
        )

    def has_pacer(self) -> bool:
        """Tell whether a pacer runs now."""
        return self._pacer is not None

    def retire_pacer(self) -> None:
        """End the pacer; claims are made without it."""
        if self._pacer is not None:
            self.launcher.finish(self._pacer)
        self._pacer = None

    def _pace(self) -> None:
        """Take a slice of the pacer; one that died is replaced with the next launch."""
        if self._pacer is None:
            return
        try:
            self._slice(self._pacer)
            self._pacer.pause()
        except LaunchFailed:
            self.launcher.ended(self._pacer.record)
            self._pacer = None

    # ---------------------------------------------------------------- what a study asks for

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        noise: Scatter,
        hopeless_below: float = 0.0,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        """Measure a configuration in one fresh launch, each slice between two of the pacer.

        noise: what launches and slices scattered by so far, which says how many slices help.
        hopeless_below: items per second; an undisturbed first slice below it ends the launch as
        pruned. beside_neighbour: at the end, take a slice beside a synthetic busy neighbour.
        A failure is the record's ending, never an exception.
        """
        block = self.pacer_block()
        try:
            launch = self.launcher.start(configuration, purpose, pacer_block=block)
        except LaunchFailed:
            return self._latest()
        try:
            launch.pause()
            self._pace()
            while self._wants_slice(launch, SEARCH, noise):
                self._await_quiet(launch.record.slices[-1:])
                self._slice(launch)
                launch.pause()
                self._pace()
                rate = launch.record.clean_rate
                if rate is not None and rate < hopeless_below:
                    return self.launcher.finish(launch, _pruned(rate, hopeless_below))
            if beside_neighbour:
                self._measure_beside([launch])
            if launch.record.ending is None:
                self._check_once(launch)
        except LaunchFailed:
            return self.launcher.ended(launch.record)
        return self.launcher.finish(launch)

    def _wants_slice(self, launch: Launch, planned: Replication, noise: Scatter) -> bool:
        """Tell whether one more slice of a launch tells more than its seconds are worth."""
        slices = launch.record.slices
        clean = [s for s in slices if not s.interference.dirty]
        logs = [math.log(s.rate) for s in clean or slices]
        seen = noise.with_slices(scatter(logs) if slices else 0.0, len(logs))
        slice_s = launch.slice_s + (self._pacer.slice_s if self._pacer is not None else 0.0)
        limits = replication(planned, self.workload.card)
        needed = n_needed(limits, seen, launch.fixed_s, slice_s)
        return wants_more(len(clean), len(slices), needed)

    def profile(self, configuration: Configuration) -> LaunchRecord:
        """Have a configuration tell where its time goes, in a launch of its own without slices.

        A failure is the record's ending, never an exception.
        """
        try:
            launch = self.launcher.start(configuration, Purpose.EXPLAIN)
        except LaunchFailed:
            return self._latest()
        self._profile(launch)
        return self.launcher.finish(launch)

    def may_profile(self, configuration: Configuration) -> bool:
        """Tell whether a configuration was neither profiled, nor tried in vain in this session.

        What a program does inside is its own.
        """
        tried = configuration in self._profiles_tried or any(
            r.profile is not None and r.request.configuration == configuration
            for r in self.store.launches.values()
        )
        return not tried and not self.workload.model.command

    def _profile(self, launch: Launch) -> None:
        """Profile a launch that has not ended; nothing is measured in it afterwards."""
        if launch.record.ending is None:
            self._profiles_tried.add(launch.record.request.configuration)
            launch.profile(_PROFILED_S)

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
        the launches take turns in random order. seconds: after so long no more passes than the
        least are begun, and no quiet is waited for. beside_neighbour: at the end, every arm takes a
        slice beside a synthetic busy neighbour. checks: then outputs are compared that were not.
        profiled: arms that tell where their time goes after all that.
        Failures are endings, not exceptions.
        """
        began_s = self.store.used_s()
        order = self._random.sample(range(len(arms)), len(arms))
        known = [r for r in map(self._last_prepared, arms) if r is not None]
        if known and not self.launcher.memory.fit(known):
            records = {
                i: self._measure_alone(
                    arms[i],
                    number,
                    purpose,
                    noise,
                    beside_neighbour=beside_neighbour,
                    checks=checks,
                    profiles=arms[i] in profiled,
                )
                for i in order
            }
            return [records[i] for i in range(len(arms))]
        launches, records = self._start_all({i: arms[i] for i in order}, number, purpose)

        def in_haste() -> bool:
            return self.store.used_s() - began_s > seconds

        while launches and self._wants_pass(list(launches.values()), noise, in_haste=in_haste()):
            last = [s for each in launches.values() for s in each.record.slices[-1:]]
            if not in_haste():
                self._await_quiet(last)
            for i in self._random.sample(list(launches), len(launches)):
                try:
                    self._slice(launches[i])
                    launches[i].pause()
                except LaunchFailed:
                    records[i] = self.launcher.ended(launches.pop(i).record)
        if beside_neighbour:
            self._measure_beside(launches.values())
        for i, launch in launches.items():
            records[i] = self._conclude(launch, checks=checks, profiles=arms[i] in profiled)
        return [records[i] for i in range(len(arms))]

    def _start_all(
        self, arms: dict[int, Configuration], number: int, purpose: Purpose
    ) -> tuple[dict[int, Launch], dict[int, LaunchRecord]]:
        """Start every arm and let it wait; return the launches, and the records of what failed."""
        launches: dict[int, Launch] = {}
        failed: dict[int, LaunchRecord] = {}
        for i, arm in arms.items():
            try:
                launches[i] = self.launcher.start(arm, purpose, round_number=number)
            except LaunchFailed:
                failed[i] = self._latest()
                continue
            try:
                launches[i].pause()
            except LaunchFailed:
                failed[i] = self.launcher.ended(launches.pop(i).record)
        return launches, failed

    def _wants_pass(self, launches: list[Launch], noise: Scatter, *, in_haste: bool) -> bool:
        """Tell whether one more slice of every arm tells more than its seconds are worth."""
        passes = passes_of([launch.record for launch in launches])
        planned = replication(CONFIRM, self.workload.card)
        if in_haste and passes.n_taken >= planned.least:
            return False
        needed = n_needed(
            planned,
            noise.with_slices(passes.scatter(), len(launches) * len(passes.log_rates)),
            sum(launch.fixed_s for launch in launches),
            sum(launch.slice_s for launch in launches),
        )
        return wants_more(passes.n_clean, passes.n_taken, needed)

    def _measure_alone(
        self,
        arm: Configuration,
        number: int,
        purpose: Purpose,
        noise: Scatter,
        *,
        beside_neighbour: bool,
        checks: bool,
        profiles: bool,
    ) -> LaunchRecord:
        try:
            launch = self.launcher.start(arm, purpose, round_number=number)
        except LaunchFailed:
            return self._latest()
        try:
            while self._wants_slice(launch, FIXED, noise):
                launch.pause()
                self._await_quiet(launch.record.slices[-1:])
                self._slice(launch)
            if beside_neighbour:
                launch.pause()
                self._measure_beside([launch])
        except LaunchFailed:
            return self.launcher.ended(launch.record)
        return self._conclude(launch, checks=checks, profiles=profiles)

    def _conclude(self, launch: Launch, *, checks: bool, profiles: bool) -> LaunchRecord:
        """End a launch whose slices are taken, after what else is wanted of it."""
        try:
            if checks:
                self._check_once(launch)
            if profiles:
                self._profile(launch)
        except LaunchFailed:
            return self.launcher.ended(launch.record)
        return self.launcher.finish(launch)

    def _latest(self) -> LaunchRecord:
        return self.store.launches[max(self.store.launches)]

    def _last_prepared(self, arm: Configuration) -> LaunchRecord | None:
        """Return the latest launch of an arm that got as far as its memory; else of any."""
        everything = [r for r in self.store.launches.values() if r.prepared is not None]
        own = [r for r in everything if r.request.configuration == arm]
        return next(reversed(own or everything), None)


def _pruned(rate: float, hopeless_below: float) -> Ending:
    return Ending(
        Outcome.PRUNED, f"{rate:.3g} items/s after one slice, hopeless below {hopeless_below:.3g}"
    )
