"""Run the real command in a real process, and count from outside what it leaves behind."""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

Here = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `here`: runs a command line in the tests' own process, in the test's folder."""
NOTHING: Mapping[str, str] = MappingProxyType({})
HANGS_S = 1800.0
"""What takes longer hangs; no host is so slow or so busy that what a test starts does."""
VIRTUAL = Path(__file__).with_name("virtual.py")
NEST = Path(__file__).with_name("nest.py")
_AT_RUN_TIME = {"TUNE_FRAMEWORK_TEST_DRAWS"}
"""What the command reads when it runs, and nothing earlier."""
_BEFORE_MAIN = ("LD_", "GLIBC_", "MALLOC", "PYTHON")
"""How variables begin that are read before a program's first line."""
MARKER = "TUNE_FRAMEWORK_TEST_MARKER"
FINISHED = "fake@seed=2,noise=0.003,faults=fake.compile=fast:crash"
"""The model of the fixture `finished_study`."""
DESIGNED = "fake@seed=3,noise=0.003"
"""The model of the fixture `designed_study`."""


def command(*arguments: str, is_virtual: bool = False) -> list[str]:
    """Return the command line of the tool; is_virtual: its budget holds the same on every host."""
    program = [str(VIRTUAL)] if is_virtual else ["-m", "tuner.cli.main"]
    return [sys.executable, "-P", *program, *arguments]


def run(
    *arguments: str,
    cwd: Path,
    timeout: float = HANGS_S,
    environment: Mapping[str, str] = NOTHING,
    is_virtual: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; on a virtual clock, forked from what has imported it (nest.py).

    Started, where the test's environment may be read before a program's first line.
    """
    whole = {**os.environ, "COLUMNS": "200", **environment}
    if is_virtual and not environment.keys() - _AT_RUN_TIME and _is_as_the_nest(whole):
        return _forked(arguments, cwd, timeout, whole)
    return subprocess.run(
        command(*arguments, is_virtual=is_virtual),
        cwd=cwd,
        env=whole,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Nest:
    """Forks commands (nest.py); one for each process of pytest, which ends with it."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self.log = tempfile.TemporaryFile()
        with theirs:
            self.line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(NEST), str(theirs.fileno())],
                env=self.environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
            )
        atexit.register(self.close)

    def close(self) -> None:
        self.line.close()
        self.process.wait()

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()


@functools.cache
def _nest() -> Nest:
    return Nest()


def _is_as_the_nest(environment: Mapping[str, str]) -> bool:
    """Tell whether what is read before a program's first line is what the nest began with."""
    theirs, ours = (
        {k: v for k, v in each.items() if k == MARKER or k.startswith(_BEFORE_MAIN)}
        for each in (_nest().environment, environment)
    )
    return theirs == ours


def _forked(
    arguments: Sequence[str], cwd: Path, timeout: float, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    asked = {"arguments": arguments, "cwd": str(cwd), "environment": environment}
    ours, theirs = os.pipe()
    with (
        open(ours, "rb", buffering=0) as told,
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        with open(theirs, "wb") as tells:
            streams = [each.fileno() for each in (nothing, output, errors, tells)]
            socket.send_fds(_nest().line, [json.dumps(asked).encode()], streams)
        said, deadline = b"", time.monotonic() + timeout
        try:
            while said.count(b"\n") < 2:
                left_s = max(0.0, deadline - time.monotonic())
                if not select.select([told], [], [], left_s)[0]:
                    raise subprocess.TimeoutExpired(command(*arguments), timeout)
                piece = told.read(1 << 10)
                assert piece, _nest().said()
                said += piece
        except BaseException:
            for pid in said.split()[:1]:
                os.kill(int(pid), signal.SIGKILL)
            raise
        for file in (output, errors):
            file.seek(0)
        code = int(said.split()[1])
        return subprocess.CompletedProcess(
            command(*arguments, is_virtual=True), code, output.read(), errors.read()
        )


def result_of(stdout: str) -> dict[str, Any]:
    """Return the result in the last of the JSON lines that a run printed."""
    last = json.loads(stdout.splitlines()[-1])
    assert last["type"] == "result", last
    result: dict[str, Any] = last["result"]
    return result


def start(*arguments: str, cwd: Path, marker: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command(*arguments, is_virtual=True),
            cwd=cwd,
            env={**os.environ, MARKER: marker},
            stdout=output,
            stderr=output,
        )


def new_marker() -> str:
    return uuid.uuid4().hex


def marked_processes(marker: str) -> list[int]:
    """Return every process on the machine that inherited the marker variable."""
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until_gone(marker: str, seconds: float = 10) -> list[int]:
    """Wait for the marked processes to end; return those that did not."""
    deadline = time.monotonic() + seconds
    while (left := marked_processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
