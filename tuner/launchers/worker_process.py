"""One supervised worker process: started, spoken to, stopped when idle, killed with all it left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tuner import supervisor
from tuner.errors import WorkerFailed
from tuner.host.environment import for_workers, untuned
from tuner.host.secrets import redact_file, redacted
from tuner.launchers.conversations import Awaited, Conversation, alone
from tuner.launchers.supervised import Supervised
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import STACK_SIGNAL, Command, Failed, Hello, Reply
from tuner.space.launching import LaunchPlan

_HELLO_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
"""A process that waits for a disk stops when that answers."""
_STACK_TIMEOUT_S = 2.0
_STACK_PAUSE_S = 0.05
_KIN = supervisor.Kin()


class WorkerEnded(WorkerFailed):
    """The worker died, broke the protocol or took too long; `ending` says which."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def _oom_kills() -> int:
    """Return how many processes the kernel has killed for want of memory, on this machine."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


class WorkerProcess:
    """A worker under its supervisor. Always `close` it: nothing of it survives that.

    Raises WorkerEnded whenever the worker cannot go on. is_awaited: return once it runs; else
    it is to be greeted before anything else.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        log: Path,
        extra_environment: Mapping[str, str],
        *,
        is_awaited: bool = True,
    ) -> None:
        self._log = log
        self._buffer = b""
        self._is_closed = False
        self._oom_kills = _oom_kills()
        self._decoder = msgspec.json.Decoder(Reply)
        command_read, self._commands = os.pipe()
        self._replies, reply_write = os.pipe()
        theirs = (command_read, reply_write)
        try:
            self._process = Supervised(
                ("-m", "tuner.worker.main", *map(str, theirs)),
                {
                    **untuned(os.environ),
                    **for_workers(plan.gpu),
                    **extra_environment,
                    **plan.variables(),
                },
                log,
                cpus=plan.cpus,
                pass_fds=theirs,
            )
        finally:
            for fd in theirs:
                os.close(fd)
        if is_awaited:
            alone(self.greeting())

    def greeting(self) -> Conversation[None]:
        """Wait until the worker runs and listens; it is closed if that fails."""
        try:
            hello = yield from self.arriving(_HELLO_TIMEOUT_S)
            if not isinstance(hello, Hello):
                raise WorkerEnded(Ending(Outcome.CRASHED, f"the worker began with {hello!r}"))
            self.pid = hello.pid
        except BaseException:
            self.close()
            raise

    def send(self, command: Command) -> None:
        """Send a command; a worker that has gone is noticed by `receive`."""
        try:
            os.write(self._commands, msgspec.json.encode(command) + b"\n")
        except BrokenPipeError:
            pass

    def receive(self, timeout_s: float) -> Reply:
        """Wait for the next reply; blocks without using the CPU."""
        return alone(self.arriving(timeout_s))

    def arriving(self, timeout_s: float) -> Conversation[Reply]:
        """Wait for the next reply, as a conversation; the worker ends if none comes in time."""
        awaited = Awaited(self._replies, time.monotonic() + timeout_s)
        while b"\n" not in self._buffer:
            has_come = yield awaited
            if not has_come:
                raise WorkerEnded(Ending(Outcome.TIMED_OUT, f"no answer within {timeout_s:.0f} s"))
            piece = os.read(self._replies, 1 << 16)
            if not piece:
                raise WorkerEnded(self._death())
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            reply: Reply = self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise WorkerEnded(
                Ending(Outcome.CRASHED, f"the worker answered what cannot be read: {error}")
            ) from error
        if isinstance(reply, Failed):  # in the words of a user's code
            reply = msgspec.structs.replace(reply, reason=redacted(reply.reason))
        return reply

    def _death(self) -> Ending:
        """Say how the worker died, from the supervisor's account and the log's last words."""
        status = self._process.account()
        last = self._last_words()
        if status.get("signal") == signal.SIGKILL and _oom_kills() > self._oom_kills:
            return Ending(Outcome.OUT_OF_MEMORY, "killed by the kernel for want of memory")
        if "signal" in status:
            return Ending(
                Outcome.CRASHED, f"killed by {signal.Signals(status['signal']).name}{last}"
            )
        if "error" in status:
            return Ending(Outcome.CRASHED, str(status["error"]))
        return Ending(Outcome.CRASHED, f"ended with exit code {status.get('exit')}{last}")

    def _last_words(self) -> str:
        try:
            lines = self._log.read_bytes()[-4096:].decode(errors="replace").split("\n")
        except OSError:
            return ""
        words = [line.strip() for line in lines if line.strip()]
        return f" ({redacted(words[-1])[:200]})" if words else ""

    def _signal(self, number: signal.Signals) -> list[int]:
        pids = [self.pid, *_KIN.below(self.pid)]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        return pids

    def stop(self) -> list[int]:
        """Have the worker and its children stopped; return the processes that are to stop."""
        return self._signal(signal.SIGSTOP)

    def pause(self) -> None:
        """Stop the worker and its children, and wait until no thread of theirs runs.

        Spinning threads of an idle framework would share cores with the one being measured.
        """
        pids = self.stop()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while any(_is_running(pid) for pid in pids):
            if time.monotonic() > deadline:
                raise WorkerEnded(Ending(Outcome.TIMED_OUT, "the worker could not be stopped"))
            time.sleep(0.0005)

    def resume(self) -> None:
        """Let the worker go on."""
        self._signal(signal.SIGCONT)

    def write_stack(self) -> None:
        """Have the worker write the Python stacks of its threads to its log, if it still can."""
        try:
            size = self._log.stat().st_size
            os.kill(self.pid, STACK_SIGNAL)
        except OSError:  # gone meanwhile
            return
        deadline = time.monotonic() + _STACK_TIMEOUT_S
        seen = size
        while (
            time.monotonic() < deadline
        ):  # it writes line by line and does not say when it is done
            time.sleep(_STACK_PAUSE_S)
            now = self._log.stat().st_size
            if now == seen > size:
                return
            seen = now

    def close(self) -> None:
        """Kill the worker and everything it left behind, and wait until that has happened."""
        if self._is_closed:
            return
        self._is_closed = True
        self._process.close()
        redact_file(self._log)
        for fd in (self._commands, self._replies):
            os.close(fd)


def _is_running(pid: int) -> bool:
    """Tell whether any thread of a process may still run."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state not in (b"T", b"t", b"Z", b"X"):
            return True
    return False
