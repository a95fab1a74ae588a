"""One launch, seen from outside: every step is stored before the next one begins."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tuner.errors import WorkerFailed
from tuner.measurement.process import WorkerEnded, WorkerProcess
from tuner.record.events import LaunchStage, Listener
from tuner.record.journal import SliceTaken, Started
from tuner.record.launch import Built, LaunchRecord, Prepared, ReadBack, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Begin, Command, Failed, Measure, Measured, Prepare, Stage
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
        start: Callable[[], WorkerProcess],
        timeouts: Timeouts,
        listen: Listener,
    ) -> None:
        self.file = file
        self._timeouts = timeouts
        self._listen = listen
        self._began = time.monotonic()
        self._is_paused = False
        self._worker: WorkerProcess | None = None
        try:
            self._worker = start()
        except WorkerEnded as error:
            self._fail(error.ending)
        file.add(Started(time.monotonic() - self._began))

    @property
    def record(self) -> LaunchRecord:
        """What is known of the launch so far."""
        return self.file.record

    def _fail(self, ending: Ending) -> None:
        self._close(ending)
        raise LaunchFailed(ending)

    def _ask(self, command: Command, timeout_s: float) -> Built | Prepared | Measured:
        assert self._worker is not None
        try:
            self._worker.send(command)
            while True:
                reply = self._worker.receive(timeout_s)
                if isinstance(reply, Stage):
                    self._listen(LaunchStage(self.record.request.id, reply.name))
                elif isinstance(reply, Built | Prepared | Measured):
                    return reply
                elif isinstance(reply, Failed):
                    self._fail(Ending(reply.outcome, reply.reason))
                else:
                    self._fail(Ending(Outcome.CRASHED, f"the worker answered {reply!r}"))
        except WorkerEnded as error:
            self._fail(error.ending)
            raise  # not reached: _fail raises

    def begin(self, order: Begin) -> None:
        """Have the model built."""
        reply = self._ask(order, self._timeouts.begin_s)
        assert isinstance(reply, Built)
        self.file.add(reply)

    def prepare(self, order: Prepare) -> None:
        """Have one batch size compiled, checked and warmed up; refuse settings not in force.

        A setting that did not take effect makes the launch not_applicable: its speed belongs to
        another configuration and must not be credited to this one.
        """
        reply = self._ask(order, self._timeouts.prepare_s)
        assert isinstance(reply, Prepared)
        self.file.add(reply)
        ignored = [item for item in reply.read_back if not item.in_force]
        if ignored:
            self._fail(Ending(Outcome.NOT_APPLICABLE, _describe_ignored(ignored)))

    def measure(self, index: int, batch: int, seconds: float) -> Slice:
        """Take one slice; the first call after a pause is made and not timed."""
        discard = int(self._is_paused)
        self.resume()
        reply = self._ask(Measure(index, batch, seconds, discard), self._timeouts.slice_s)
        assert isinstance(reply, Measured)
        self.file.add(SliceTaken(reply.slice))
        return reply.slice

    def pause(self) -> None:
        """Stop the worker until it is needed again."""
        if self._worker is not None and not self._is_paused:
            try:
                self._worker.pause()
            except WorkerEnded as error:
                self._fail(error.ending)
            self._is_paused = True

    def resume(self) -> None:
        """Let the worker go on."""
        if self._worker is not None and self._is_paused:
            self._worker.resume()
            self._is_paused = False

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        """End the launch in good order (measured, unless told otherwise)."""
        if self.record.ending is None:
            self._close(ending or Ending(Outcome.MEASURED))
        return self.record

    def _close(self, ending: Ending) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self.file.end(ending, time.monotonic() - self._began)

    def abandon(self) -> None:
        """Kill the worker without a word in the store, as a resumed study will see it."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _describe_ignored(ignored: list[ReadBack]) -> str:
    parts = [
        f"{item.knob}={item.requested} is not in force: {item.observed} ({item.how})"
        for item in ignored
    ]
    return "; ".join(parts)
