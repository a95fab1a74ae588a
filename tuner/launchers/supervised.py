"""A child process under the supervisor: it and all that it starts end with the tool."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import supervisor


class Supervised:
    """A process with everything that it starts. Always `close` it: nothing of it survives that."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        cpus: Sequence[int] | None = None,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> None:
        """cwd: its working directory; this process's if None."""
        control_read, self._control = os.pipe()
        self._status, status_write = os.pipe()
        self._account = b""
        self._is_closed = False
        theirs = (control_read, status_write)
        argv = [sys.executable, "-I", "-S", supervisor.__file__, *map(str, theirs)]
        try:
            self._supervisor = subprocess.Popen(
                argv,
                pass_fds=(*theirs, *pass_fds),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tool, which then closes this
            )
        finally:
            for fd in theirs:
                os.close(fd)
        order = {
            "argv": [sys.executable, "-P", *arguments],
            "env": dict(environment),
            "cwd": str(cwd or Path.cwd()),
            "log": str(log.absolute()),
            "cpus": cpus,
            "pass_fds": list(pass_fds),
        }
        os.write(self._control, json.dumps(order).encode() + b"\n")

    def ended(self) -> dict[str, Any]:
        """Return the account of the process if it has ended; nothing while it runs."""
        is_at_end = self._is_closed
        while not is_at_end and select.select([self._status], [], [], 0)[0]:
            piece = os.read(self._status, 1 << 12)
            self._account += piece
            is_at_end = not piece
        found = self._read_account()
        if found.keys() & {"exit", "signal", "error"}:
            return found
        return {"signal": int(signal.SIGKILL)} if is_at_end else {}

    def account(self) -> dict[str, Any]:
        """Wait for the process's end and return the supervisor's account of it."""
        if not self._is_closed:
            while piece := os.read(self._status, 1 << 12):
                self._account += piece
        return self._read_account()

    def _read_account(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for line in self._account.splitlines():
            found |= json.loads(line)
        return found

    def close(self) -> None:
        """Kill the process and everything it left behind, and wait until that has happened."""
        if self._is_closed:
            return
        os.close(self._control)  # the supervisor's order to kill
        self.account()
        self._is_closed = True
        self._supervisor.wait()
        os.close(self._status)
