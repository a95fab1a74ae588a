"""Launches without processes: recorded or made up, on a virtual clock.

A source states what each launch does and costs; the clock advances by that. All callers are the
same as with processes, so that a whole study runs in this process, in seconds. The speeds do not
come from the host; the settings that exist do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from tuner.errors import UsageError
from tuner.launchers.asking import NOTHING_SET, Deadline
from tuner.launchers.clock import VirtualClock
from tuner.launchers.protocol import LauncherSpec
from tuner.record.configuration import Configuration
from tuner.record.events import LaunchBegins
from tuner.record.journal import SliceTaken, Started
from tuner.record.launch import (
    Checked,
    Interference,
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Purpose,
    ReadBack,
    Slice,
    latency,
    packed,
)
from tuner.record.load import Offer
from tuner.record.outcome import Ending, Outcome
from tuner.record.output_check import OutputCheck
from tuner.record.protocol import (
    REFERENCE_VERSION,
    Cards,
    Check,
    Command,
    Describe,
    ListModels,
    MakeReference,
    ReferenceMade,
    Reply,
)
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.workload import ModelCard, ModelFacts, ModelRef
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import LaunchPlan


class PlayedSlice(msgspec.Struct, frozen=True):
    """One slice of a launch, as a source deals it."""

    rate: float
    """Items per second."""
    dirty: tuple[str, ...]
    """What disturbed it; empty if nothing did."""
    took_s: float
    """Its seconds, with those of the discarded call before it."""
    spread: tuple[float, ...] = ()
    """The seconds of each call over their mean; empty where calls were not timed one by one."""


class Played(Protocol):
    """A launch from a source: its costs, its ending, and its slices one by one."""

    @property
    def fixed_s(self) -> float: ...
    @property
    def check_s(self) -> float: ...
    @property
    def memory_bytes(self) -> int:
        """The most that is resident; 0 if that is not known."""

    @property
    def failure(self) -> Ending | None:
        """Its ending if it fails: at its start, or, if it has slices, when it is checked."""

    @property
    def has_slices(self) -> bool: ...
    def slice(self) -> PlayedSlice | Ending:
        """Return the next slice, or how the launch ends in it."""


class Source(Protocol):
    """Where launches come from. Its clock is advanced by every launch and slice."""

    @property
    def clock(self) -> VirtualClock: ...
    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        """Deal a launch of a configuration."""

    def idle(self) -> tuple[str, ...]:
        """Return what disturbs while nothing of the study runs; empty if nothing does."""


class ReplayedLaunch:
    """A launch (launchers/protocol.py) that a source deals."""

    def __init__(
        self,
        spec: LauncherSpec,
        request: LaunchRequest,
        played: Played,
        clock: VirtualClock,
        share: float,
        read_back: tuple[ReadBack, ...],
    ) -> None:
        """share: of its preparation's seconds, the part that is charged to it."""
        self._file = spec.store.open_launch(request)
        self._spec = spec
        self._played = played
        self._clock = clock
        self._share = share
        self._read_back = read_back
        self._slicing_s = self._other_s = 0.0
        self._is_gone = False
        self.fixed_s = 0.0

    def begin(self) -> None:
        """Prepare it."""
        prepared_s = self._share * self._played.fixed_s
        if not self._spend(prepared_s):
            return
        self.fixed_s = prepared_s
        self._file.add(Started(self.fixed_s / 2))
        if self._played.failure is not None and not self._played.has_slices:
            n_companions = self.record.request.n_companions
            self.finish(_among_companions(self._played.failure, n_companions))
        else:
            memory_bytes = self._played.memory_bytes
            self._file.add(Prepared(0.1, 0.1, 0.5, True, memory_bytes, 0, self._read_back))

    def _spend(self, seconds: float) -> bool:
        """Let a step take its seconds; end the launch if they are more than it may take."""
        left_s = max(0.0, self._spec.seconds_left()) if self._spec.is_cut else math.inf
        self._clock.advance(min(seconds, left_s))
        if seconds <= left_s:
            return True
        self._other_s += left_s
        self.finish(Ending(Outcome.TIMED_OUT, f"it took more than {left_s:.0f} s"))
        return False

    @property
    def record(self) -> LaunchRecord:
        return self._file.record

    @property
    def goes_on(self) -> bool:
        return self.record.ending is None and not self._is_gone

    @property
    def slice_s(self) -> float:
        return self._slicing_s / max(1, len(self.record.slices))

    def take_slice(self, index: int, seconds: float, offer: Offer | None = None) -> None:
        if not self.goes_on:
            return
        found = self._played.slice()
        if isinstance(found, Ending):
            self.finish(found)
            return
        if not self._spend(found.took_s):
            return
        self._slicing_s += found.took_s
        request = self.record.request
        call_s = [request.batch / found.rate * each for each in found.spread]
        n_calls = len(call_s) or 1
        taken = Slice(
            index,
            request.batch,
            n_calls,
            n_calls * request.batch / found.rate,
            self._clock.now_s(),
            Interference(dirty=found.dirty),
            latency=latency(call_s) if call_s else None,
            packed_calls=packed(call_s),
        )
        self._file.add(SliceTaken(self._spec.complete(taken, self.record)))

    def take_contended_slice(self, index: int, seconds: float, n_neighbours: int) -> None:
        """Do nothing: no source deals slices next to a synthetic neighbour."""

    def check(self, order: Check) -> None:
        if not self.goes_on:
            return
        took_s = self._played.check_s
        if not self._spend(took_s):
            return
        self._other_s += took_s
        if self._played.failure is None:
            self._file.add(Checked(OutputCheck(0.0, order.n_inputs), took_s))
        else:
            self.finish(self._played.failure)

    def validate(self, order: LoadgenOrder) -> Validation:
        """Return that nothing was validated: recorded launches answer no requests."""
        return Validation(order.rate, None, "recorded launches answer no requests")

    def profile(self, seconds: float) -> None:
        """Do nothing: no source deals profiles."""

    def pause(self) -> None:
        """Do nothing: nothing runs."""

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        if self.goes_on:
            total_s = self.fixed_s + self._slicing_s + self._other_s
            self._file.end(ending or Ending(Outcome.MEASURED), total_s, self._slicing_s)
            self._spec.on_end(self.record)
        return self.record

    def abandon(self) -> None:
        """Leave it without an ending."""
        self._is_gone = True
        self._file.close()


def _among_companions(failure: Ending, n_companions: int) -> Ending:
    """Return the ending of a launch that fails while others are prepared: that is no outcome."""
    if not n_companions or failure.outcome is Outcome.NOT_APPLICABLE:
        return failure
    return Ending(Outcome.INTERRUPTED, failure.reason)


ReadsBack = Callable[[Configuration], tuple[ReadBack, ...]]


def in_force(configuration: Configuration) -> tuple[ReadBack, ...]:
    """Return that every setting of a configuration is in force."""
    return tuple(ReadBack(k, v, v, "effective", "the source") for k, v in configuration.settings)


class SideBySide(msgspec.Struct, frozen=True):
    """How many launches are prepared side by side, and what that saves."""

    most: int = 1
    share: float = 1.0
    """Seconds of preparing n launches in parallel, over those of one after another."""


class RecordedLauncher:
    """Launches from a source. No profiler looks into them."""

    can_profile = False

    def __init__(
        self, spec: LauncherSpec, source: Source, side_by_side: SideBySide, read_back: ReadsBack
    ) -> None:
        self._spec = spec
        self._source = source
        self._side_by_side = side_by_side
        self._read_back = read_back
        self._started: list[ReplayedLaunch] = []

    @property
    def most_together(self) -> int:
        return self._side_by_side.most

    def n_together(self, configurations: Sequence[Configuration]) -> int:
        several = configurations[: self._side_by_side.most]
        return next((i for i in range(1, len(several)) if several[i] in several[:i]), len(several))

    def start_together(
        self,
        configurations: Sequence[Configuration],
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> list[ReplayedLaunch]:
        n, most = len(configurations), self._side_by_side.most
        share = 1 - (1 - self._side_by_side.share) * (n - 1) / max(1, most - 1)
        return [
            self.start(
                c,
                purpose,
                pacer_block=pacer_block,
                round_number=round_number,
                share=share,
                n_companions=n - 1,
            )
            for c in configurations
        ]

    def start(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
        share: float = 1.0,
        n_companions: int = 0,
    ) -> ReplayedLaunch:
        request = LaunchRequest(
            id=self._spec.store.next_launch_id(),
            configuration=configuration,
            batch=int(configuration.get(BATCH) or self._spec.workload.card.reference_batch),
            purpose=purpose,
            pacer_block=pacer_block,
            round=round_number,
            session=self._spec.session,
            started_s=self._spec.store.used_s(),
            scenario=self._spec.workload.scenario,
            n_companions=n_companions,
            callers=self._spec.workload.callers,
            slo=self._spec.objective.slo,
        )
        played = self._source.launch(configuration, purpose, round_number)
        read_back = self._read_back(configuration)
        launch = ReplayedLaunch(self._spec, request, played, self._source.clock, share, read_back)
        self._started.append(launch)
        self._spec.listen(LaunchBegins(request.id, configuration.label(), purpose))
        launch.begin()
        return launch

    def fit(self, records: Sequence[LaunchRecord]) -> bool:
        return True

    def neighbours(self) -> AbstractContextManager[int]:
        return nullcontext(0)

    def close(self) -> None:
        for launch in self._started:
            if launch.goes_on:
                launch.abandon()


class RecordedTestbed:
    """A testbed (launchers/testbed.py) on a source, of one model that is described beforehand."""

    def __init__(
        self,
        source: Source,
        card: ModelCard,
        facts: ModelFacts,
        side_by_side: SideBySide | None = None,
        read_back: ReadsBack = in_force,
    ) -> None:
        """read_back: returns the read-back of a configuration's launch."""
        self._source = source
        self._read_back = read_back
        self._card = card
        self._facts = facts
        self._side_by_side = side_by_side or SideBySide()

    @property
    def clock(self) -> VirtualClock:
        return self._source.clock

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
        """Answer as a worker would about the model.

        Raises UsageError for another model, TypeError for other commands.
        """
        if other := next((ref.name for ref in models if ref.name != self._card.name), None):
            raise UsageError(f"launches of {self._card.name} are played here, and none of {other}")
        match command:
            case ListModels():
                return Cards(tuple(self._card for _ in models))
            case Describe():
                return self._facts
            case MakeReference():
                with Path(command.path).open("wb") as file:  # no launch reads it
                    np.savez(file, version=REFERENCE_VERSION)
                return ReferenceMade()
        raise TypeError(f"a recorded testbed has no answer to {command!r}")

    def watch_idle(self, seconds: float) -> Interference:
        self._source.clock.advance(seconds)
        return Interference(dirty=self._source.idle())

    def launcher(self, spec: LauncherSpec) -> RecordedLauncher:
        if spec.workload.means().is_served:
            raise UsageError("no source plays the requests of a server: measure it on this host")
        return RecordedLauncher(spec, self._source, self._side_by_side, self._read_back)
