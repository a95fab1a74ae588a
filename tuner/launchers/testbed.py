"""The testbed of a study: the clock, the launches and the workers that it measures with.

THIS_HOST measures in real processes. launchers/recorded.py has one that replays launches instead,
in this process and on a virtual clock. Everything above asks a testbed and does not know which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuner.host.interference import watch_idle
from tuner.launchers.asking import NOTHING_SET, Deadline, ask
from tuner.launchers.clock import WALL_CLOCK, Clock
from tuner.launchers.instance_group import InstanceGroup
from tuner.launchers.processes import ProcessLauncher
from tuner.launchers.protocol import Launcher, LauncherSpec
from tuner.record.launch import Interference
from tuner.record.protocol import Command, Reply
from tuner.record.workload import ModelRef
from tuner.space.launching import LaunchPlan


class Testbed(Protocol):
    """The place where a study measures."""

    @property
    def clock(self) -> Clock:
        """The clock of the budget."""

    def ask(
        self,
        command: Command,
        models: Sequence[ModelRef],
        waiting: Deadline,
        gpu: str = "",
        then: Command | None = None,
        plan: LaunchPlan | None = None,
        environment: Mapping[str, str] = NOTHING_SET,
    ) -> Reply:
        """Ask about models; asking.ask() has the arguments and the errors."""

    def watch_idle(self, seconds: float) -> Interference:
        """Watch the idle host for some seconds of the clock; return what disturbs it."""

    def launcher(self, spec: LauncherSpec) -> Launcher:
        """Return a launcher of a workload that writes into a store."""


class ThisHost:
    """Real processes on this host."""

    def __init__(
        self,
        clock: Clock = WALL_CLOCK,
        group: type[InstanceGroup] = InstanceGroup,
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
        waiting: Deadline,
        gpu: str = "",
        then: Command | None = None,
        plan: LaunchPlan | None = None,
        environment: Mapping[str, str] = NOTHING_SET,
    ) -> Reply:
        return ask(command, models, waiting, gpu, then, plan, environment)

    def watch_idle(self, seconds: float) -> Interference:
        return watch_idle(seconds)

    def launcher(self, spec: LauncherSpec) -> Launcher:
        return ProcessLauncher(spec, self.clock, self._group, self._most_together)


THIS_HOST = ThisHost()
