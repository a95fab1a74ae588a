"""The worker's loop: commands in, replies out, as JSON lines over two pipes of its own.

    python -P -m tuner.worker.main COMMAND_FD REPLY_FD

Standard output and error go to the launch's log: frameworks print there.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from tuner.errors import Silent, TuneError, UsageError
from tuner.host.numa import NumaError
from tuner.record.load import TRAINING
from tuner.record.outcome import Outcome
from tuner.record.protocol import (
    STACK_SIGNAL,
    Begin,
    Cards,
    Check,
    Command,
    CountWork,
    Describe,
    Failed,
    Hello,
    KeepWeights,
    LearnToTarget,
    ListModels,
    LookAt,
    MakeReference,
    Measure,
    MeasureBest,
    Prepare,
    Profile,
    Quit,
    ReferenceMade,
    Reply,
    Seen,
    Serve,
    Stage,
    WarmUp,
)
from tuner.record.workload import ModelCard, ModelRef
from tuner.worker.gallery.sources import card_of, cards_of
from tuner.worker.instance_barrier import Orders
from tuner.worker.session import Session, WrongOutput

if TYPE_CHECKING:
    from tuner.worker.program import ProgramSession
    from tuner.worker.service import ServiceSession

    AnySession = Session | ProgramSession | ServiceSession


def serve(commands: BinaryIO, replies: BinaryIO) -> None:
    """Answer commands until Quit, a failure, or the end of the pipe."""

    def tell(reply: Reply) -> None:
        replies.write(msgspec.json.encode(reply) + b"\n")
        replies.flush()

    def say(stage: str) -> None:
        tell(Stage(stage))

    session: AnySession | None = None
    orders = Orders(commands)
    tell(Hello(os.getpid()))
    for command in orders:
        if isinstance(command, Quit):
            return
        try:
            if isinstance(command, ListModels):
                cards = [_cards(ref, command.each_variant) for ref in command.models]
                tell(Cards(tuple(itertools.chain.from_iterable(cards))))
                continue
            if isinstance(command, LookAt):
                tell(_seen(command.model, say, orders))
                continue
            if isinstance(command, LearnToTarget):
                from tuner.worker.time_to_target import TimeToTargetSession

                learner = session = TimeToTargetSession(say, orders)
                tell(learner.learn_to_target(command))
                continue
            if isinstance(command, MeasureBest):
                from tuner.worker.host_best import measure_best

                tell(measure_best(command, say))
                continue
            session = session or _session_for(command, say, orders)
            tell(_answer(session, command))
        except BrokenPipeError:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this launch's outcome
            traceback.print_exc()
            tell(_failure(session, error))
            return


def _cards(ref: ModelRef, each_variant: bool) -> list[ModelCard]:
    return cards_of(ref) if each_variant else [card_of(ref)]


# what serves a user's own command is imported where there is one: every launch waits for imports


def _seen(ref: ModelRef, say: Callable[[str], None], orders: Orders) -> Seen:
    if ref.url:
        from tuner.worker.service import look_at_server

        return look_at_server(ref, say, orders)
    from tuner.worker.program import look_at_program

    return look_at_program(ref)


def _session_of_command(ref: ModelRef, tell: Callable[[str], None], orders: Orders) -> AnySession:
    if ref.url:
        from tuner.worker.service import ServiceSession

        return ServiceSession(tell, orders)
    from tuner.worker.program import ProgramSession

    return ProgramSession(tell)


def _session_for(command: Command, tell: Callable[[str], None], orders: Orders) -> AnySession:
    """Return what serves a launch: its first command names the model, or the program."""
    match command:
        case Begin(model=ref) | MakeReference(model=ref) if ref.command:
            return _session_of_command(ref, tell, orders)
        case Begin(mode=mode) | MakeReference(mode=mode) | Describe(mode=mode) if mode == TRAINING:
            from tuner.worker.training import TrainingSession

            return TrainingSession(tell, orders)
    return Session(tell, orders)


def _answer(session: AnySession, command: Command) -> Reply:
    match command:
        case Describe() if isinstance(session, Session):
            return session.describe(command)
        case CountWork() if isinstance(session, Session):
            return session.count_work(command)
        case MakeReference():
            session.make_reference(command)
            return ReferenceMade()
        case KeepWeights():
            session.keep_weights()
            return ReferenceMade()
        case Begin():
            return session.begin(command)
        case Prepare():
            return session.prepare(command)
        case WarmUp():
            return session.warm_up()
        case Measure():
            return session.measure(command)
        case Serve():
            return session.serve(command)
        case Profile():
            return session.profile(command)
        case Check():
            return session.check(command)
    raise TypeError(f"no answer to {command}")


def _failure(session: AnySession | None, error: Exception) -> Failed:
    """Translate an exception into an outcome; the traceback is in the log."""
    reason = f"{type(error).__name__}: {_gist(str(error))}"[:300]
    if isinstance(error, WrongOutput):
        return Failed(Outcome.WRONG_OUTPUT, str(error))
    exhausted = session.out_of_memory_errors() if session else (MemoryError,)
    if isinstance(error, exhausted):
        return Failed(Outcome.OUT_OF_MEMORY, reason)
    if isinstance(error, NumaError | UsageError):
        return Failed(Outcome.NOT_APPLICABLE, str(error))
    if isinstance(error, Silent):
        return Failed(Outcome.TIMED_OUT, str(error))
    if isinstance(error, TuneError):
        return Failed(Outcome.CRASHED, str(error))
    return Failed(Outcome.CRASHED, reason)


def _gist(text: str) -> str:
    """Return the first line of an error, and that of its cause if it only announces one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    lines_left = [line for line in lines[1:] if not line.startswith(("[[", "File ", "Detected at"))]
    return (
        f"{first} {lines_left[-1]}"
        if first.endswith((":", "interpreter.", "call().")) and lines_left
        else first
    )


def main() -> None:
    """Open the pipes and serve."""
    faulthandler.register(STACK_SIGNAL)  # even where a library holds Python's lock for ever
    command_fd, reply_fd = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(command_fd, False)
    os.set_inheritable(reply_fd, False)
    with open(command_fd, "rb", buffering=0) as commands, open(reply_fd, "wb") as replies:
        serve(commands, replies)
        sys.stdout.flush()
        sys.stderr.flush()
        # frameworks' exit handlers can hang or crash; everything is stored already
        os._exit(0)


if __name__ == "__main__":
    main()
