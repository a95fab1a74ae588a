"""The testbed of a study: the clock, the launches and the workers that it measures with.

THIS_HOST measures in real processes. launchers/recorded.py has one that replays launches instead,
in this process and on a virtual clock. Everything above asks a testbed and does not know which.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from tuner.host.identity import Host
from tuner.host.interference import watch_idle
from tuner.launchers.asking import Waiting, ask
from tuner.launchers.clock import WALL_CLOCK, Clock
from tuner.launchers.instance_group import Team
from tuner.launchers.processes import ProcessLauncher
from tuner.launchers.protocol import Complete, Launcher
from tuner.record.events import Listener
from tuner.record.launch import Interference, LaunchRecord
from tuner.record.objective import Objective
from tuner.record.protocol import Command, Reply
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, ModelRef, Workload


class Testbed(Protocol):
    """What a study needs of the place where it measures."""

    @property
    def clock(self) -> Clock:
        """The clock of the budget."""

    def ask(
        self,
        command: Command,
        models: Sequence[ModelRef],
        waiting: Waiting,
        gpu: str = "",
        then: Command | None = None,
    ) -> Reply:
        """Ask about models; asking.ask() has the arguments and the errors."""

    def watch_idle(self, seconds: float) -> Interference:
        """Watch the idle host for some seconds of the clock; return what disturbs it."""

    def launcher(
        self,
        store: Store,
        host: Host,
        workload: Workload,
        facts: ModelFacts,
        objective: Objective,
        listen: Listener,
        *,
        session: int,
        draw: random.Random,
        seconds_left: Callable[[], float],
        is_cut: bool,
        on_end: Callable[[LaunchRecord], None],
        complete: Complete,
    ) -> Launcher:
        """Return a launcher of a workload that writes into a store.

        is_cut: no step of a launch outlasts seconds_left. on_end: called once for each launch.
        complete: adds to a slice what is computed from it, before it is stored.
        """


class ThisHost:
    """Real processes on this host."""

    def __init__(
        self,
        clock: Clock = WALL_CLOCK,
        group: type[Team] = Team,
        most_together: int | None = None,
    ) -> None:
        """group: starts the processes of a launch. most_together: see ProcessLauncher."""
        self.clock = clock
        self._group = group
        self._most_together = most_together

    def ask(
        self,
        command: Command,
        models: Sequence[ModelRef],
        waiting: Waiting,
        gpu: str = "",
        then: Command | None = None,
    ) -> Reply:
        return ask(command, models, waiting, gpu, then)

    def watch_idle(self, seconds: float) -> Interference:
        return watch_idle(seconds)

    def launcher(
        self,
        store: Store,
        host: Host,
        workload: Workload,
        facts: ModelFacts,
        objective: Objective,
        listen: Listener,
        *,
        session: int,
        draw: random.Random,
        seconds_left: Callable[[], float],
        is_cut: bool,
        on_end: Callable[[LaunchRecord], None],
        complete: Complete,
    ) -> Launcher:
        return ProcessLauncher(
            store,
            host,
            workload,
            facts,
            objective,
            listen,
            session=session,
            draw=draw,
            seconds_left=seconds_left,
            is_cut=is_cut,
            on_end=on_end,
            complete=complete,
            clock=self.clock,
            group=self._group,
            most_together=self._most_together,
        )


THIS_HOST = ThisHost()
