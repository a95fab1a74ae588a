"""One launch of real processes: every step is stored before the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from tuner.errors import StorageFailed
from tuner.launchers.clock import Clock
from tuner.launchers.conversations import Conversation, alone
from tuner.launchers.instance_group import InstanceGroup
from tuner.launchers.loadgen import validated
from tuner.launchers.protocol import Complete
from tuner.launchers.worker_process import WorkerEnded
from tuner.record.events import LaunchStage, Listener
from tuner.record.journal import SliceTaken, Started
from tuner.record.launch import (
    Built,
    Checked,
    Compiled,
    LaunchRecord,
    Prepared,
    Profiled,
    Purpose,
    ReadBack,
)
from tuner.record.load import Offer
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import (
    Answered,
    Begin,
    Check,
    Command,
    Failed,
    Measure,
    Measured,
    Prepare,
    Profile,
    Serve,
    WarmUp,
)
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.store import LaunchFile

_ReplyT = TypeVar(
    "_ReplyT", bound=Built | Compiled | Prepared | Measured | Answered | Checked | Profiled
)
_PATIENCE = 3
"""Times the seconds in which requests are sent: after so long, a run has failed."""


class Timeouts(msgspec.Struct, frozen=True):
    """After how many seconds a silent worker is given up."""

    begin_s: float
    prepare_s: float
    slice_s: float


class ProcessLaunch:
    """A launch (protocol.py) whose steps are carried out by a group of processes.

    Once it has ended, none of its processes is left.
    """

    def __init__(
        self,
        file: LaunchFile,
        timeouts: Timeouts,
        listen: Listener,
        on_end: Callable[[LaunchRecord], None],
        complete: Complete,
        left_s: Callable[[], float] | None,
        clock: Clock,
    ) -> None:
        """on_end: called once, when it ends. left_s: the most seconds that a step may take.

        complete: adds computed fields to a slice before it is stored.
        """
        self.file = file
        self._left_s = left_s
        self._timeouts = timeouts
        self._listen = listen
        self._on_end = on_end
        self._clock = clock
        self._complete = complete
        self._spent_s = self._slicing_s = 0.0
        self._is_paused = self._is_abandoned = self._is_preparing = False
        self._team: InstanceGroup | None = None

    @property
    def record(self) -> LaunchRecord:
        """The record of the launch so far."""
        return self.file.record

    @property
    def goes_on(self) -> bool:
        """Whether its processes run, or wait to."""
        return self._team is not None

    @property
    def fixed_s(self) -> float:
        """Seconds spent on everything but the slices so far: what another launch would cost."""
        return self._spent_s - self._slicing_s

    @property
    def slice_s(self) -> float:
        """Mean seconds spent on a slice so far, its discarded call included; 0 without any."""
        return self._slicing_s / max(1, len(self.record.slices))

    @contextmanager
    def _spending(self) -> Iterator[None]:
        """Count the seconds inside as spent on this launch, unless `charge` counts them."""
        began = self._clock.now_s()
        try:
            yield
        finally:
            if not self._is_preparing:
                self._spent_s += self._clock.now_s() - began

    def charge(self, seconds: float) -> None:
        """Charge its share of seconds that were spent on it and on others in parallel."""
        self._spent_s += seconds

    def _fail(self, ending: Ending) -> None:
        """End it with an error, unless the disk caused it, which is not an outcome.

        Nor is it one while others are prepared in parallel, unless the settings are invalid: the
        others may have taken the memory, and the kernel kills any process.
        """
        if ending.outcome is Outcome.CRASHED:
            try:
                self.file.check_room()
            except StorageFailed:
                self.abandon()
                raise
        n = self.record.request.n_companions
        if n and self._is_preparing and ending.outcome is not Outcome.NOT_APPLICABLE:
            beside = f"while {n} other{'s were' if n > 1 else ' was'} prepared beside it"
            ending = Ending(Outcome.INTERRUPTED, f"{ending.outcome} {beside}: {ending.reason}")
        self.finish(ending)

    def _ask(self, command: Command, timeout_s: float, kind: type[_ReplyT]) -> _ReplyT | Ending:
        """Have the processes obey; return their answer, or how they failed."""
        with self._spending():
            return alone(self._asking(command, timeout_s, kind))

    def _asking(
        self, command: Command, timeout_s: float, kind: type[_ReplyT]
    ) -> Conversation[_ReplyT | Ending]:
        assert self._team is not None
        if self._left_s is not None:
            timeout_s = min(timeout_s, max(0.0, self._left_s()))
        self._resume()
        try:
            reply = yield from self._team.asking(command, timeout_s, self._tell)
        except WorkerEnded as error:
            return error.ending
        if isinstance(reply, kind):
            return reply
        if isinstance(reply, Failed):
            return Ending(reply.outcome, reply.reason)
        return Ending(Outcome.CRASHED, f"the worker answered {reply!r}")

    def _carry_out(self, command: Command, timeout_s: float, kind: type[_ReplyT]) -> _ReplyT | None:
        """Carry out a command; None if the launch has ended, or ends with it."""
        return self._unless_failed(self._ask(command, timeout_s, kind)) if self.goes_on else None

    def _carrying_out(
        self, command: Command, timeout_s: float, kind: type[_ReplyT]
    ) -> Conversation[_ReplyT | None]:
        """Have a command carried out, as a conversation (_carry_out)."""
        if not self.goes_on:
            return None
        return self._unless_failed((yield from self._asking(command, timeout_s, kind)))

    def _unless_failed(self, answer: _ReplyT | Ending) -> _ReplyT | None:
        if isinstance(answer, Ending):
            self._fail(answer)
            return None
        return answer

    def _try(
        self, command: Command, timeout_s: float, kind: type[_ReplyT], when: str
    ) -> _ReplyT | None:
        """Have a command carried out that a launch may fail at and still have served its purpose.

        when: in words, for the reason of the ending.
        """
        if not self.goes_on:
            return None
        answer = self._ask(command, timeout_s, kind)
        if isinstance(answer, Ending):
            self.finish(Ending(Outcome.MEASURED, f"ended {when}: {answer.reason}"))
            return None
        return answer

    def _tell(self, stage: str) -> None:
        self._listen(LaunchStage(self.record.request.id, stage))

    def preparing(self, team: Callable[[], InstanceGroup], order: Begin) -> Conversation[None]:
        """Start the processes, let them build, compile and call the model once, and wait.

        team: starts the processes, which are then greeted. What this takes is charged (charge): it
        may go on beside others of its kind.
        """
        self._is_preparing = True
        try:
            yield from self._starting(team)
            built = yield from self._carrying_out(order, self._timeouts.begin_s, Built)
            if built is not None:
                self.file.add(built)
            load = Prepare(self.record.request.load)
            compiled = yield from self._carrying_out(load, self._timeouts.prepare_s, Compiled)
            if compiled is not None:
                self.file.add(compiled)
            self.pause()
        finally:
            self._is_preparing = False

    def _starting(self, team: Callable[[], InstanceGroup]) -> Conversation[None]:
        try:
            self._team = team()
            yield from self._team.greeting()
        except WorkerEnded as error:
            self._fail(error.ending)
            return
        try:
            self.file.add(Started(self._spent_s))
        except BaseException:  # a full disk: nothing else knows of the worker yet
            self.abandon()
            raise

    def warm_up(self) -> None:
        """Have the model called until it is warm; refuse settings not in force.

        A setting that did not take effect makes the launch not_applicable: its speed belongs to
        another configuration and must not be credited to this one.
        """
        prepared = self._carry_out(WarmUp(), self._timeouts.prepare_s, Prepared)
        if prepared is None:
            return
        self.file.add(prepared)
        ignored = [item for item in prepared.read_back if not item.in_force]
        if ignored:
            self._fail(Ending(Outcome.NOT_APPLICABLE, _describe_ignored(ignored)))

    def take_slice(self, index: int, seconds: float, offer: Offer | None = None) -> None:
        """Take one slice; the first call after a pause is made and not timed, unless it is long.

        offer: requests that are sent to a server in the place of it.
        """
        if self.goes_on and self.record.request.purpose is not Purpose.PACER:
            self._tell("measuring")
        spent_before_s = self._spent_s
        order = Measure(index, seconds, self._n_discarded(seconds), offer=offer)
        arriving_s = 3 * offer.longest_s if offer else 0.0
        measured = self._carry_out(order, self._timeouts.slice_s + arriving_s, Measured)
        if measured is not None:
            self._slicing_s += self._spent_s - spent_before_s
            self.file.add(SliceTaken(self._complete(measured.slice, self.record)))

    def _n_discarded(self, seconds: float) -> int:
        """Return the number of calls before a slice: one after a pause, if calls are short.

        The caches' cold start takes a few milliseconds: the first call after a pause took 6 %
        longer than others at 59 ms, and no longer (-1 to +2 %) at 0.26 s and more
        (benchmarks/first_call.py).
        """
        prepared = self.record.prepared
        is_short = prepared is None or prepared.steady_call_s < seconds
        return int(self._is_paused and is_short)

    def take_contended_slice(self, index: int, seconds: float, n_neighbours: int) -> None:
        """Take a slice next to busy processes; a launch that fails there has ended well."""
        order, when = Measure(index, seconds, 1), "next to a busy neighbour"
        measured = self._try(order, self._timeouts.slice_s, Measured, when)
        if measured is not None:
            taken = self._complete(measured.slice, self.record)
            self.file.add(SliceTaken(taken, n_neighbours))

    def validate(self, order: LoadgenOrder) -> Validation:
        """Have LoadGen send requests at a rate; nothing is measured after that."""
        patience_s = _PATIENCE * order.duration_s + self._timeouts.slice_s
        when = "while LoadGen sent requests"

        def serve(address: str) -> str:
            if self._try(Serve(address), patience_s, Answered, when) is not None:
                return ""
            return self.record.ending.reason if self.record.ending else "the launch has ended"

        return validated(order, self.file.log_path.with_suffix(".loadgen.log"), serve)

    def check(self, order: Check) -> None:
        """Have the outputs compared with the default's; nothing is measured after that."""
        checked = self._carry_out(order, self._timeouts.prepare_s, Checked)
        if checked is not None:
            self.file.add(checked)

    def profile(self, seconds: float) -> None:
        """Let the worker profile its calls; a launch that fails there has ended well."""
        order, when = Profile(seconds), "under the profiler"
        profiled = self._try(order, self._timeouts.prepare_s, Profiled, when)
        if profiled is not None:
            self.file.add(profiled)

    def pause(self) -> None:
        """Stop the processes until they are needed again."""
        if self._team is None or self._is_paused:
            return
        with self._spending():
            try:
                self._team.pause()
                self._is_paused = True
            except WorkerEnded as error:
                self._fail(error.ending)

    def _resume(self) -> None:
        if self._team is not None and self._is_paused:
            self._team.resume()
            self._is_paused = False

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        """End the launch in good order (measured by default)."""
        if self.record.ending is None and not self._is_abandoned:
            if self._team is not None:
                with self._spending():
                    self._team.close()
                self._team = None
            self.file.end(ending or Ending(Outcome.MEASURED), self._spent_s, self._slicing_s)
            self._on_end(self.record)
        return self.record

    def abandon(self) -> None:
        """Kill the processes without a word in the store, as a resumed study will see it."""
        self._is_abandoned = True
        if self._team is not None:
            self._team.close()
            self._team = None


def _describe_ignored(ignored: list[ReadBack]) -> str:
    parts = [
        f"{item.knob}={item.requested} is not in force: {item.observed} ({item.how})"
        for item in ignored
    ]
    return "; ".join(parts)
