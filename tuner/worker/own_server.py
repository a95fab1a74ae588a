"""A user's own server as a process: started, waited for, killed with all that it has started."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tuner import supervisor
from tuner.errors import UsageError, WorkerFailed
from tuner.host.secrets import redacted
from tuner.record.protocol import Placed
from tuner.record.workload import SERVICE, ModelCard, ModelRef
from tuner.worker.asking import Body, Client, Overrun, Refused, Unreachable, clock, read_bodies
from tuner.worker.evidence.program import Sighting
from tuner.worker.program import card_of_started, environment_of_program

PORT = "{port}"
_LOOK_EVERY_S = 0.05
_LOADING_S = 120.0
"""In which a server that is there may answer that what is asked for is not there yet."""
_SILENT_S = 300.0
"""In which it is to listen."""
_NOT_YET = (404, 502, 503)
_LAST_WORDS = 1 << 20
_OF_A_REQUEST = re.compile(r'HTTP/[\d.]+"')
"""In lines of most access logs: they say that a request failed, not why."""
_MOST_PORTS = 100
LOG = Path("/proc/self/fd/1")
"""The worker's own, which is the launch's: what the server prints stands there."""


class Server:
    """The user's program while it runs, all that it starts included."""

    def __init__(
        self, ref: ModelRef, settings: Sequence[str], placed: Placed | None, log: Path
    ) -> None:
        """Raises WorkerFailed if it cannot be started. log: of what it prints.

        settings: of the launch. placed: how it is started; as this process is, if None.
        """
        self._claim, number = _own_port()
        port = str(number)
        self.url = ref.url.replace(PORT, port)
        self.shown = shlex.join(ref.command)
        self._log = log
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
        """Wait until the first request is answered, and look at it meanwhile; return the seconds.

        tell: takes what it waits for, as soon as that is another. Raises WorkerFailed where it
        ends, or goes on refusing.
        """
        began, there_since, told = clock(), 0.0, ""
        while True:
            seen.look(self.pid)
            self.check_alive()
            try:
                client.answer(0)
            except Unreachable as unreachable:
                if clock() - began > _SILENT_S:
                    raise WorkerFailed(
                        f"{self.shown} runs, and after {_SILENT_S:.0f} s nobody answers at "
                        f"{self.url}: it is to listen on the port {PORT} in its command (or $PORT)"
                    ) from unreachable
                state = f"where nobody listens (has the command {PORT}, or reads it $PORT?)"
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
            if state != told:
                tell(f"waiting for {self.url}, {state}")
                told = state
            time.sleep(_LOOK_EVERY_S)

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
        """Kill it, and what it has started."""
        for pid in (*reversed(supervisor.descendants(self.pid)), self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._claim.close()


def card_of_service(ref: ModelRef, tell: Callable[[str], None]) -> ModelCard:
    """Start a server once to see which framework it uses; the card carries what is wrong.

    tell: takes what is waited for.
    """
    seen = Sighting()
    try:
        bodies = read_bodies(Path(ref.inputs))
        server = Server(ref, (), None, LOG.resolve())
        client = Client(server.url, bodies)
        try:
            server.until_ready(client, seen, tell)
        finally:
            client.close()
            server.kill()
    except (UsageError, WorkerFailed) as error:
        return card_of_started(ref, SERVICE, seen, "", str(error))
    return card_of_started(ref, SERVICE, seen, _digest(ref, bodies), "")


def _digest(ref: ModelRef, bodies: Sequence[Body]) -> str:
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
    return digest.hexdigest()


def _own_port() -> tuple[socket.socket, int]:
    """Return a port of the loopback address that nobody listens on, and a claim to it.

    A server takes seconds to listen, and others choose meanwhile: the claim is a name that the
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
