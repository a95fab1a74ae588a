"""One question to a new worker: its deadline, its listener, and where it hung."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from tuner.errors import NothingMeasured, UsageError
from tuner.launchers.worker_process import WorkerEnded, WorkerProcess
from tuner.record.events import Listener, WaitingForModel, unheard
from tuner.record.outcome import Outcome
from tuner.record.protocol import Command, Failed, ListModels, Reply, Stage
from tuner.record.workload import ModelRef
from tuner.space.launching import LaunchPlan

LEAST_S = 30.0
"""All questions of a run may take this long together, whatever the budget: importing a framework
takes 20 s on a slow host."""
MOST_S = 600.0
"""No worker may take longer than this, so that a hang does not use up a budget of hours."""
SAID_AFTER_S = 5.0
"""A wait is reported after this."""
_MORE = 3
"""What follows an answer may take this many times as long as the answer."""

NOTHING_SET: Mapping[str, str] = MappingProxyType({})
_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_CURRENT = re.compile(r"Current thread 0x")
_THREAD = re.compile(r"(Current thread|Thread) 0x")


class Deadline(msgspec.Struct, frozen=True):
    """How long a worker may take to answer, and who is notified of a wait."""

    seconds: float = MOST_S
    """Returns what is left of the budget; LEAST_S and most_s bound it."""
    listen: Listener = unheard
    is_strict: bool = False
    """Whether no more than what is left may be taken, even if it is less than LEAST_S."""
    passed_s: float = 0.0
    """Seconds since the run began: earlier questions may have taken all of LEAST_S."""
    most_s: float = MOST_S
    """No worker may take longer, whatever is left."""
    keeps_log: bool = True
    """Whether the log of a worker that was given up is kept for the user."""

    def limit_s(self) -> float:
        """Return after how many seconds the worker is given up."""
        least_s = 0.0 if self.is_strict else LEAST_S - self.passed_s
        return min(self.most_s, max(0.0, least_s, self.seconds))


def ask(
    command: Command,
    models: Sequence[ModelRef],
    waiting: Deadline,
    gpu: str = "",
    then: Command | None = None,
    plan: LaunchPlan | None = None,
    environment: Mapping[str, str] = NOTHING_SET,
) -> Reply:
    """Ask a new worker one question about models.

    gpu: the UUID of the card that it may see. plan: how it is started, in the place of a start
    without settings, which gpu belongs to. environment: set in addition. then: an optional second
    question, in a few times the seconds that the answer took; nothing depends on it.

    Raises UsageError with the worker's reason, and NothingMeasured if the worker died or took too
    long; the message then says where it hung.
    """
    with tempfile.TemporaryDirectory(prefix="tune-framework-") as folder:
        log = Path(folder) / "describe.log"
        try:
            plan = plan or LaunchPlan({}, None, "none", gpu=gpu)
            worker = WorkerProcess(plan, log, environment)
        except WorkerEnded as error:
            raise UsageError(f"cannot start a worker: {error}") from error
        question = _Question(command, models, waiting)
        try:
            worker.send(command)
            reply = question.answer(worker)
            if then is not None and not isinstance(reply, Failed):
                question.ask_on(then, worker)
        except WorkerEnded as error:
            if error.ending.outcome is Outcome.TIMED_OUT:
                worker.write_stack()
                worker.close()  # what it printed is written and redacted then
                raise NothingMeasured(question.hung(log)) from error
            if isinstance(command, ListModels):  # the file itself, before any framework
                raise UsageError(f"the model cannot be loaded: {error}") from error
            raise NothingMeasured(
                f"nothing can be measured: 1 x {error.ending.outcome}: {error}"
            ) from error
        finally:
            worker.close()
    if isinstance(reply, Failed):
        if reply.outcome is Outcome.TIMED_OUT:  # of a server: it is there, and silent
            raise NothingMeasured(f"nothing can be measured: {reply.reason}")
        is_said = reply.outcome is Outcome.NOT_APPLICABLE  # in words of our own
        raise UsageError(reply.reason if is_said else f"the model fails: {reply.reason}")
    return reply


class _Question:
    """A question that was put, and what its worker was last heard to do."""

    def __init__(self, command: Command, models: Sequence[ModelRef], waiting: Deadline) -> None:
        self._models = models
        self._waiting = waiting
        self._began = time.monotonic()
        self._stage = _first_stage(command, models)

    def answer(self, worker: WorkerProcess) -> Reply:
        """Wait for the answer; raises WorkerEnded if there is none in time."""
        limit_s = self._waiting.limit_s()
        is_reported = False
        while True:
            passed_s = time.monotonic() - self._began
            until_s = limit_s if is_reported else min(limit_s, SAID_AFTER_S)
            try:
                reply = worker.receive(max(0.0, until_s - passed_s))
            except WorkerEnded as error:
                if error.ending.outcome is not Outcome.TIMED_OUT or until_s == limit_s:
                    raise
                is_reported = True
                event = WaitingForModel(self._name(), self._stage, until_s, limit_s)
                self._waiting.listen(event)
                continue
            if not isinstance(reply, Stage):
                return reply
            self._stage = reply.name

    def ask_on(self, command: Command, worker: WorkerProcess) -> None:
        """Give the worker some more time for something that nothing depends on."""
        limit_s = SAID_AFTER_S + _MORE * (time.monotonic() - self._began)
        with contextlib.suppress(WorkerEnded):
            worker.send(command)
            more = _Question(command, self._models, Deadline(limit_s, is_strict=True))
            more.answer(worker)

    def _name(self) -> str:
        return self._models[0].name if len(self._models) == 1 else f"{len(self._models)} models"

    def hung(self, log: Path) -> str:
        """Say where the worker hangs, by the stacks in its log; keep the log for the rest."""
        text = log.read_text(errors="replace")
        is_code = not any(model.command for model in self._models)  # else it waits in ours
        frame = innermost_frame(text, [model.path for model in self._models]) if is_code else ""
        kept = _kept(log) if self._waiting.keeps_log else "its log is not kept"
        limit_s = self._waiting.limit_s()
        longer = (
            ""
            if limit_s >= self._waiting.most_s
            else "; if it only takes long, give a larger --budget"
        )
        where = f"; it was at {frame}" if frame else ""
        return (
            f"nothing can be measured: {self._name()} was given up after {limit_s:.0f} s of "
            f"{self._stage}{where} ({kept}){longer}"
        )


def _kept(log: Path) -> str:
    """Keep a log for the user; say where, or that there is no room for it."""
    try:
        with tempfile.NamedTemporaryFile(
            "wb", prefix="tune-framework-", suffix=".log", delete=False
        ) as copy, open(log, "rb") as original:  # fmt: skip
            shutil.copyfileobj(original, copy)
            return f"what it printed, and the stacks of its threads: {copy.name}"
    except OSError:
        return "its log could not be kept"


def _first_stage(command: Command, models: Sequence[ModelRef]) -> str:
    if url := next((model.url for model in models if model.url), ""):
        return f"waiting for an answer at {url}"
    if any(model.command for model in models):
        return "running the program"
    if isinstance(command, ListModels):
        if named := next((model.function for model in models if model.function), ""):
            return f"importing its file and calling {named}()"
        is_python = any(model.path.endswith(".py") for model in models)
        return "importing its file" if is_python else "reading its file"
    return "starting"


def innermost_frame(text: str, paths: Sequence[str]) -> str:
    """Return FILE:LINE in FUNCTION of the innermost frame in one of the files.

    text: faulthandler's output for all threads, below other output. If no frame is in the files,
    the innermost of the thread that was interrupted; empty if there is no stack.
    """
    written = {path.encode("ascii", "backslashreplace").decode() for path in paths}
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _THREAD.match(line)]
    current = next((i for i in reversed(starts) if _CURRENT.match(lines[i])), None)
    frames: list[tuple[bool, re.Match[str]]] = []
    is_current = False
    for i, line in enumerate(lines):
        if i in starts:
            is_current = i == current
        elif found := _FRAME.match(line) if starts and i > starts[0] else None:
            frames.append((is_current, found))
    frames.sort(key=lambda pair: not pair[0])  # the interrupted thread first; stable
    chosen = next((f for _, f in frames if f["file"] in written), None)
    chosen = chosen or next((f for is_it, f in frames if is_it), None)
    return "" if chosen is None else f"{chosen['file']}:{chosen['line']} in {chosen['function']}"
