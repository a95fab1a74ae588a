"""A user's own server as a process: started, waited for, killed with all that it has started."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tuner import supervisor
from tuner.errors import Silent, WorkerFailed
from tuner.frameworks import FRAMEWORKS
from tuner.host.secrets import redacted
from tuner.record.headers import without_names
from tuner.record.protocol import Placed
from tuner.record.workload import ModelRef
from tuner.worker.evidence.program import Sighting
from tuner.worker.http_client import (
    WATCHED_EVERY_S,
    Body,
    Client,
    Overrun,
    Refused,
    Unreachable,
    clock,
)
from tuner.worker.program import environment_of_program

PORT = "{port}"
_LOOK_EVERY_S = 0.05
_LOADING_S = 120.0
"""Seconds in which a running server may answer that the resource is not there yet, or work on its
first answer."""
_STUCK_S = 10.0
"""A server that owes its first answer, and whose processes have done nothing for this long, waits
for something that will not come. One that loads or computes uses a processor or a disk."""
_WORKING = 0.05
"""Share of one CPU from which on processes work: a server that waits wakes up now and then."""
_SILENT_S = 300.0
"""In which it is to listen."""
_NOT_YET = (404, 502, 503)
_LAST_WORDS = 1 << 20
_OF_A_REQUEST = re.compile(r'HTTP/[\d.]+"')
"""In lines of most access logs: they say that a request failed, not why."""
_MOST_PORTS = 100
LOG = Path("/proc/self/fd/1")
"""The worker's own, which is the launch's: it holds the server's output."""


class Server:
    """The user's program while it runs, all that it starts included."""

    def __init__(
        self, ref: ModelRef, settings: Sequence[str], placed: Placed | None, log: Path
    ) -> None:
        """Raises WorkerFailed if it cannot be started. log: of its output.

        settings: of the launch. placed: how it is started; as this process is, if None.
        """
        self._claim, number = _own_port()
        port = str(number)
        self.url = ref.url.replace(PORT, port)
        self.shown = shlex.join(ref.command)
        self._log = log
        self._is_killed = False
        given = {} if placed is None else placed.environment
        self._environment = {**environment_of_program(settings), **given, "PORT": port}
        with log.open("ab") as output:
            try:
                self._process = subprocess.Popen(
                    [word.replace(PORT, port) for word in ref.command],
                    cwd=ref.path,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkerFailed(f"cannot run {self.shown}: {error.strerror}") from error

    def until_ready(self, client: Client, seen: Sighting, tell: Callable[[str], None]) -> float:
        """Wait until the first request is answered, and watch the server; return the seconds.

        tell: receives what it waits for, whenever that changes. Raises WorkerFailed if the server
        ends, or continues to refuse.
        """
        began, there_since, reported = clock(), 0.0, ""
        while True:
            seen.look(self.pid)
            self.check_alive()
            try:
                client.first_answer(self._watching(seen, tell))
            except Unreachable as unreachable:
                if clock() - began > _SILENT_S:
                    raise WorkerFailed(
                        f"{self.shown} runs, and after {_SILENT_S:.0f} s nothing answers at "
                        f"{self.url}: it is to listen on the port {PORT} in its command (or $PORT)"
                    ) from unreachable
                state = f"where nothing listens (has the command {PORT}, or reads it $PORT?)"
            except (Overrun, Refused) as refused:
                there_since = there_since or clock()
                status = refused.status if isinstance(refused, Refused) else 0
                is_final = status and status not in _NOT_YET
                if is_final or clock() - there_since > _LOADING_S:
                    text = f"{refused}{self._last_line()}"
                    raise (Refused(text, status) if status else Overrun(text)) from refused
                state = f"which answers {status or 'that it is busy'}"
            else:
                seen.look(self.pid)
                self.check_alive()
                return clock() - began
            if state != reported:
                tell(f"waiting for {self.url}, {state}")
                reported = state
            time.sleep(_LOOK_EVERY_S)

    def _watching(self, seen: Sighting, tell: Callable[[str], None]) -> Callable[[], None]:
        """Return a function that watches the server while it owes its first answer.

        It raises Silent if there is nothing to wait for.
        """
        began, idle_since, used_s, is_reported = clock(), clock(), math.inf, False

        def look() -> None:
            nonlocal idle_since, used_s, is_reported
            seen.look(self.pid)
            self.check_alive()
            now, before_s = clock(), used_s
            used_s, is_running = _activity((self.pid, *supervisor.descendants(self.pid)))
            if is_running or used_s - before_s > _WORKING * WATCHED_EVERY_S:
                idle_since = now
            if now - idle_since > _STUCK_S:
                did = f"its processes have done nothing for {_STUCK_S:.0f} s{self._forked(seen)}"
            elif now - began > _LOADING_S:
                did = f"its processes have worked for {_LOADING_S:.0f} s"
            else:
                if not is_reported:
                    tell(f"waiting for {self.url}, which takes the request and has not answered")
                    is_reported = True
                return
            raise Silent(f"{self.shown} takes requests at {self.url} and does not answer: {did}")

        return look

    def _forked(self, seen: Sighting) -> str:
        """Say that a process was forked that had loaded a framework, if one was; else nothing."""
        if not any(map(_is_forked, supervisor.descendants(self.pid))) or not seen.frameworks():
            return ""
        title = FRAMEWORKS[seen.frameworks()[0]].title
        return (
            f"; they were forked from a process in which {title} may have started threads (as "
            "gunicorn --preload does), and threads do not survive a fork"
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that it was started under."""
        return self._environment

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def check_alive(self) -> None:
        """Raise WorkerFailed if it has ended."""
        code = self._process.poll()
        if code is None:
            return
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        stays = "" if code else ", and a server is to stay in the foreground"
        raise WorkerFailed(f"{self.shown} ended {how}{self._last_line()}{stays}")

    def _last_line(self) -> str:
        text = self._log.read_bytes()[-_LAST_WORDS:].decode(errors="replace")
        lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
        words = [line for line in lines if not _OF_A_REQUEST.search(line)] or lines
        return f" (its last line: {redacted(words[-1])[:200]})" if words else ""

    def kill(self) -> None:
        """Kill it and its children, once: the process number may be reused afterwards."""
        if self._is_killed:
            return
        self._is_killed = True
        for pid in (*reversed(supervisor.descendants(self.pid)), self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._claim.close()


def _activity(pids: Iterable[int]) -> tuple[float, bool]:
    """Return the processor seconds that processes have used, and whether a thread of theirs runs.

    One that waits for a disk runs as well.
    """
    ticks, is_running = 0, False
    for pid in pids:
        try:
            fields = _stat(Path(f"/proc/{pid}/stat"))
            ticks += int(fields[11]) + int(fields[12])  # utime, stime
            threads = list(Path(f"/proc/{pid}/task").iterdir())
            is_running = is_running or any(_stat(each / "stat")[0] in "RD" for each in threads)
        except OSError:  # gone meanwhile
            continue
    return ticks / os.sysconf("SC_CLK_TCK"), is_running


def _stat(path: Path) -> list[str]:
    """Return what proc(5) has of a process or a thread behind its name: its state first."""
    return path.read_text(errors="replace").rpartition(")")[2].split()


def _is_forked(pid: int) -> bool:
    """Tell whether a process runs what its parent runs, without having been started anew."""
    try:
        own = Path(f"/proc/{pid}")
        parent = Path(f"/proc/{_stat(own / 'stat')[1]}")
        return (own / "cmdline").read_bytes() == (parent / "cmdline").read_bytes()
    except OSError:
        return False


def digest_of(ref: ModelRef, bodies: Sequence[Body]) -> str:
    """Return the SHA-256 over the files that the command names, and over the requests."""
    digest = hashlib.sha256(ref.url.encode())
    for word in ref.command:
        module = word.partition(":")[0].replace(".", "/")
        for name in (word, f"{module}.py", f"{module}/__init__.py"):
            path = os.path.join(ref.path, name)  # noqa: PTH118  # pathlib raises for what is too long
            if os.path.isfile(path):  # noqa: PTH113
                digest.update(Path(path).read_bytes())
    for body in bodies:
        digest.update(body.content)
    if ref.headers:
        digest.update(repr(without_names(ref.headers)).encode())
    return digest.hexdigest()


def _own_port() -> tuple[socket.socket, int]:
    """Return a free port of the loopback address, and a claim to it.

    A server takes seconds to listen, and others choose meanwhile. The claim is a name that the
    kernel gives once (unix(7), abstract sockets) and takes back when this process ends.
    """
    for _ in range(_MOST_PORTS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0tune-framework-port-{port}")
        except OSError:
            claim.close()
            continue
        return claim, port
    raise WorkerFailed("no port of the loopback address is free")
