"""The launch protocol: what a bench, which decides what is measured when, needs of a launcher.

Launches are real processes (processes.py, process_launch.py), or were recorded or made up
(recorded.py). tests/launchers/test_protocol.py holds both to this contract:

A launch is started, takes slices, is paused between them, and is finished. Its errors are values:
the record then has an ending with its reason, `goes_on` is False, and every further step does
nothing. Exceptions are not the launch's fault: a full disk, Ctrl-C, or settings that are invalid on
this host.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tuner.host.identity import Host
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.load import Offer
from tuner.record.objective import Objective
from tuner.record.outcome import Ending
from tuner.record.protocol import Check
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload

Complete = Callable[[Slice, LaunchRecord], Slice]
"""Adds computed fields to a slice of a launch before it is stored."""


@dataclasses.dataclass(frozen=True, slots=True)
class LauncherSpec:
    """What is launched, where it is stored, and who is notified."""

    store: Store
    host: Host
    workload: Workload
    facts: ModelFacts
    objective: Objective
    listen: Listener
    session: int
    """The number of this run of the tool over the study."""
    draw: random.Random
    seconds_left: Callable[[], float]
    is_cut: bool
    """Whether no step of a launch outlasts seconds_left."""
    on_end: Callable[[LaunchRecord], None]
    """Called once for each launch, when it has ended."""
    complete: Complete


class Launch(Protocol):
    """One launch of a configuration."""

    @property
    def record(self) -> LaunchRecord:
        """The record of the launch so far; it grows with every step."""

    @property
    def goes_on(self) -> bool:
        """Whether it can take a further step: it has neither failed nor been finished."""

    @property
    def fixed_s(self) -> float:
        """Seconds spent on everything but the slices so far: what another launch would cost."""

    @property
    def slice_s(self) -> float:
        """Mean seconds spent on a slice so far, its discarded call included; 0 without any."""

    def pause(self) -> None:
        """Stop it until its next step, which lets it go on."""

    def take_slice(self, index: int, seconds: float, offer: Offer | None = None) -> None:
        """Time calls for so long, at least one.

        The first after a pause is made and not timed, unless a call takes as long as a slice.
        offer: requests that are sent to a server, all of which are answered, in the place of it.
        """

    def take_contended_slice(self, index: int, seconds: float, n_neighbours: int) -> None:
        """Take a slice next to `n_neighbours` busy processes.

        A launch that fails there has ended well: its undisturbed measurements stand.
        """

    def validate(self, order: LoadgenOrder) -> Validation:
        """Let LoadGen send requests at a rate; no slice may follow.

        A launch that fails there has ended well; LoadGen's missing result has its reason.
        """

    def check(self, order: Check) -> None:
        """Compare the outputs with the default's; no slice may follow."""

    def profile(self, seconds: float) -> None:
        """Profile its calls; no slice may follow.

        A launch that fails under a profiler has ended well: that is not a fault of its
        configuration.
        """

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        """End it, as measured by default; one that has ended keeps its ending."""


class Launcher(Protocol):
    """Launches configurations of one workload into one store."""

    @property
    def can_profile(self) -> bool:
        """Whether its launches can tell where their time goes."""

    def start(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> Launch:
        """Start a launch and make it ready for its first slice; it runs on return, or has ended.

        pacer_block: the launch id of its pacer. round_number: of its round. Both are 0 for none.
        """

    @property
    def most_together(self) -> int:
        """The number of launches that may be prepared in parallel; 1 for none."""

    def n_together(self, configurations: Sequence[Configuration]) -> int:
        """Return how many of the first of these may be prepared side by side; at least 1."""

    def start_together(
        self,
        configurations: Sequence[Configuration],
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> Sequence[Launch]:
        """Start launches as `start` does, no two of one configuration; they wait on return.

        They are prepared in parallel, with nothing measured meanwhile, and warmed up one after
        another, each alone. One that dies next to the others ends as interrupted: it says nothing
        about its configuration, which has to be launched again alone.
        """

    def fit(self, records: Sequence[LaunchRecord]) -> bool:
        """Tell whether launches like these, all prepared, fit into the memory side by side."""

    def neighbours(self) -> AbstractContextManager[int]:
        """Keep a synthetic neighbour busy meanwhile; yields of how many processes, 0 for none."""

    def close(self) -> None:
        """Kill whatever runs; those launches stay without an ending, as interrupted."""
