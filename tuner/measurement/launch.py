"""One launch, seen from outside: every step is stored before the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import msgspec

from tuner.errors import StorageFailed, WorkerFailed
from tuner.measurement.process import WorkerEnded
from tuner.measurement.team import Team
from tuner.record.events import LaunchStage, Listener
from tuner.record.journal import SliceTaken, Started
from tuner.record.launch import (
    Built,
    Checked,
    LaunchRecord,
    Prepared,
    Profiled,
    ReadBack,
    Slice,
)
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import (
    Begin,
    Check,
    Command,
    Failed,
    Measure,
    Measured,
    Prepare,
    Profile,
)
from tuner.record.store import LaunchFile


class Timeouts(msgspec.Struct, frozen=True):
    """After how many seconds a silent worker is given up."""

    begin_s: float
    prepare_s: float
    slice_s: float


class LaunchFailed(WorkerFailed):
    """The launch is over without having served its purpose; it is stored and closed already."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Launch:
    """A running launch. Raises LaunchFailed from any step; the process is gone by then."""

    def __init__(
        self,
        file: LaunchFile,
        start: Callable[[], Team],
        timeouts: Timeouts,
        listen: Listener,
        left_s: Callable[[], float] | None = None,
    ) -> None:
        """left_s: the seconds that a step may take at the most, asked when it begins."""
        self.file = file
        self._left_s = left_s
        self._timeouts = timeouts
        self._listen = listen
        self._spent_s = self._slicing_s = 0.0
        self._is_paused = False
        self._team: Team | None = None
        with self._spending():
            try:
                self._team = start()
            except WorkerEnded as error:
                self._fail(error.ending)
        try:
            file.add(Started(self._spent_s))
        except BaseException:  # a full disk: nobody else knows of the worker yet
            self.abandon()
            raise

    @property
    def record(self) -> LaunchRecord:
        """What is known of the launch so far."""
        return self.file.record

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
        """Count the seconds inside as spent on this launch."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent_s += time.monotonic() - began

    def _fail(self, ending: Ending) -> NoReturn:
        if ending.outcome is Outcome.CRASHED:
            try:
                self.file.check_room()  # else it is the disk's fault, and no outcome
            except StorageFailed:
                self.abandon()
                raise
        self._close(ending)
        raise LaunchFailed(ending)

    def _ask(self, command: Command, timeout_s: float) -> Built | Prepared | Measured | Checked:
        assert self._team is not None
        if self._left_s is not None:
            timeout_s = min(timeout_s, max(0.0, self._left_s()))
        with self._spending():
            try:
                reply = self._team.ask(command, timeout_s, self._tell)
            except WorkerEnded as error:
                reply = Failed(error.ending.outcome, error.ending.reason)
        if isinstance(reply, Built | Prepared | Measured | Checked):
            return reply
        if not isinstance(reply, Failed):
            reply = Failed(Outcome.CRASHED, f"the worker answered {reply!r}")
        return self._fail(Ending(reply.outcome, reply.reason))

    def _tell(self, stage: str) -> None:
        self._listen(LaunchStage(self.record.request.id, stage))

    def begin(self, order: Begin) -> None:
        """Have the model built."""
        reply = self._ask(order, self._timeouts.begin_s)
        assert isinstance(reply, Built)
        self.file.add(reply)

    def prepare(self, order: Prepare) -> None:
        """Have the model compiled and warmed up; refuse settings not in force.

        A setting that did not take effect makes the launch not_applicable: its speed belongs to
        another configuration and must not be credited to this one.
        """
        reply = self._ask(order, self._timeouts.prepare_s)
        assert isinstance(reply, Prepared)
        self.file.add(reply)
        ignored = [item for item in reply.read_back if not item.in_force]
        if ignored:
            self._fail(Ending(Outcome.NOT_APPLICABLE, _describe_ignored(ignored)))

    def check(self, order: Check) -> None:
        """Have the outputs compared with the default's; nothing is measured after that."""
        self.resume()
        reply = self._ask(order, self._timeouts.prepare_s)
        assert isinstance(reply, Checked)
        self.file.add(reply)

    def measure(self, index: int, seconds: float) -> Slice:
        """Take one slice; the first call after a pause is made and not timed."""
        spent_before_s = self._spent_s
        discard = int(self._is_paused)
        self.resume()
        reply = self._ask(Measure(index, seconds, discard), self._timeouts.slice_s)
        assert isinstance(reply, Measured)
        self._slicing_s += self._spent_s - spent_before_s
        self.file.add(SliceTaken(reply.slice))
        return reply.slice

    def measure_beside(self, index: int, seconds: float, n_neighbours: int) -> bool:
        """Take a slice beside so many busy processes; tell whether the launch goes on.

        What was measured undisturbed stands: one that does not bear the neighbour has ended well.
        """
        assert self._team is not None
        self.resume()
        with self._spending():
            try:
                order = Measure(index, seconds, 1)
                reply = self._team.ask(order, self._timeouts.slice_s, self._tell)
            except WorkerEnded as error:
                reply = Failed(error.ending.outcome, error.ending.reason)
        if isinstance(reply, Measured):
            self.file.add(SliceTaken(reply.slice, n_neighbours))
            return True
        why = reply.reason if isinstance(reply, Failed) else f"the worker answered {reply!r}"
        self.finish(Ending(Outcome.MEASURED, f"ended beside a busy neighbour: {why}"))
        return False

    def profile(self, seconds: float) -> None:
        """Have the worker tell where its time goes.

        One that does not bear a profiler ends here: that is no fault of its configuration.
        """
        assert self._team is not None
        self.resume()
        with self._spending():
            try:
                reply = self._team.ask(Profile(seconds), self._timeouts.prepare_s, self._tell)
            except WorkerEnded as error:
                reply = Failed(error.ending.outcome, error.ending.reason)
        if isinstance(reply, Profiled):
            self.file.add(reply)
            return
        why = reply.reason if isinstance(reply, Failed) else f"the worker answered {reply!r}"
        self.finish(Ending(Outcome.MEASURED, f"ended under the profiler: {why}"))

    def pause(self) -> None:
        """Stop the worker until it is needed again."""
        if self._team is not None and not self._is_paused:
            with self._spending():
                try:
                    self._team.pause()
                except WorkerEnded as error:
                    self._fail(error.ending)
            self._is_paused = True

    def resume(self) -> None:
        """Let the worker go on."""
        if self._team is not None and self._is_paused:
            self._team.resume()
            self._is_paused = False

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        """End the launch in good order (measured, unless told otherwise)."""
        if self.record.ending is None:
            self._close(ending or Ending(Outcome.MEASURED))
        return self.record

    def _close(self, ending: Ending) -> None:
        if self._team is not None:
            with self._spending():
                self._team.close()
            self._team = None
        self.file.end(ending, self._spent_s, self._slicing_s)

    def abandon(self) -> None:
        """Kill the workers without a word in the store, as a resumed study will see it."""
        if self._team is not None:
            self._team.close()
            self._team = None


def _describe_ignored(ignored: list[ReadBack]) -> str:
    parts = [
        f"{item.knob}={item.requested} is not in force: {item.observed} ({item.how})"
        for item in ignored
    ]
    return "; ".join(parts)
