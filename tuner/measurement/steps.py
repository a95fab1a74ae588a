"""The steps of a launch on the bench: a slice, one next to a neighbour, the check, the profile."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tuner.engines import FRAMEWORK
from tuner.launchers.protocol import Launch, Launcher
from tuner.measurement.arrival_plan import ArrivalPlan
from tuner.measurement.interference_gate import InterferenceGate
from tuner.measurement.server_trials import uses_arrivals
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, Slice
from tuner.record.numerics import Level
from tuner.record.objective import Objective
from tuner.record.protocol import Check
from tuner.record.store import Store
from tuner.record.workload import ModelCard
from tuner.space.catalogue import level_of
from tuner.space.knobs_of.engines import ENGINE

SLICE_S = 0.3
"""Slices of 0.2-0.5 s beat longer ones on a busy host (measurement notes, section 1.1)."""
_MODELLED_S = 2.0
"""Seconds in which a launch's batches are timed before requests arrive: a simulation of the server
draws its service times from these."""
_PROFILED_S = 0.5
"""Seconds of calls under a profiler."""


class Steps:
    """The steps of launches, one at a time, while all others are stopped."""

    def __init__(
        self,
        store: Store,
        card: ModelCard,
        objective: Objective,
        launcher: Launcher,
        quiet: InterferenceGate,
        arrivals: ArrivalPlan,
        draw: random.Random,
    ) -> None:
        """draw: the order in which launches take turns."""
        self._store = store
        self._card = card
        self._objective = objective
        self._launcher = launcher
        self._quiet = quiet
        self._arrivals = arrivals
        self._random = draw
        self._profiles_tried: set[Configuration] = set()

    def slice(self, launch: Launch) -> None:
        """Take a slice, or send a server's requests, then let the launch wait."""
        offer = self._arrivals.next_offer(launch.record)
        is_model = uses_arrivals(launch.record, self._objective) and not launch.record.slices
        seconds = _MODELLED_S if is_model else SLICE_S
        launch.take_slice(self._store.next_slice_index(), seconds, offer)
        launch.pause()

    def await_quiet(self, slices: Iterable[Slice]) -> None:
        """Wait for quiet if one of the slices was disturbed; every worker is stopped meanwhile."""
        disturbed = [s.interference for s in slices if s.interference.dirty]
        self._quiet.after(disturbed[0] if disturbed else Interference())

    def take_contended_slices(self, launches: Iterable[Launch]) -> None:
        """Take a slice of each launch next to a synthetic busy neighbour, where it may fail."""
        waiting = [launch for launch in launches if launch.goes_on]
        if not waiting:
            return
        with self._launcher.neighbours() as n:
            for launch in self._random.sample(waiting, len(waiting)) if n else []:
                launch.take_contended_slice(self._store.next_slice_index(), SLICE_S, n)
                launch.pause()

    def conclude(
        self, launch: Launch, *, checks: bool = False, profiles: bool = False
    ) -> LaunchRecord:
        """End a launch whose slices are taken, after its check and its profile."""
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
            for r in self._store.launches.values()
        ):
            return
        level = level_of(configuration)
        n_inputs = self._card.n_check_inputs(changes_numerics=level > Level.SAME)
        launch.check(Check(n_inputs, level, self._card.tolerance))

    def _profile(self, launch: Launch) -> None:
        """Profile a launch that has not ended; nothing is measured in it afterwards."""
        if launch.goes_on:
            self._profiles_tried.add(launch.record.request.configuration)
            launch.profile(_PROFILED_S)

    def may_profile(self, configuration: Configuration) -> bool:
        """Tell whether a configuration was neither profiled, nor tried in vain in this session."""
        tried = configuration in self._profiles_tried or any(
            r.profile is not None and r.request.configuration == configuration
            for r in self._store.launches.values()
        )
        is_within = configuration.get(ENGINE) in (None, FRAMEWORK)  # no profiler looks into others
        return not tried and is_within and self._launcher.can_profile
