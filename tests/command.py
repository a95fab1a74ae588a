"""Run the real command in a real process, and count from outside what it leaves behind."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

Here = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `here`: runs a command line in the tests' own process, in the test's folder."""
NOTHING: Mapping[str, str] = MappingProxyType({})
HANGS_S = 1800.0
"""What takes longer hangs; no host is so slow or so busy that what a test starts does."""
VIRTUAL, MADE_UP = (Path(__file__).with_name(f"{name}.py") for name in ("virtual", "made_up"))
MARKER = "TUNE_FRAMEWORK_TEST_MARKER"
FINISHED = "fake@seed=2,noise=0.003,faults=fake.compile=fast:crash"
"""The model of the fixture `finished_study`."""
DESIGNED = "fake@seed=3,noise=0.003"
"""The model of the fixture `designed_study`."""


def command(*arguments: str, is_virtual: bool = False, is_made_up: bool = False) -> list[str]:
    """Return the command line of the tool.

    is_virtual: its budget holds the same on every host. is_made_up: nor does it start a worker.
    """
    program = ["-m", "tuner.cli.main"]
    if is_virtual or is_made_up:
        program = [str(MADE_UP if is_made_up else VIRTUAL)]
    return [sys.executable, "-P", *program, *arguments]


def run(
    *arguments: str,
    cwd: Path,
    timeout: float = HANGS_S,
    environment: Mapping[str, str] = NOTHING,
    is_virtual: bool = False,
    is_made_up: bool = False,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, is_virtual=is_virtual, is_made_up=is_made_up),
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
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


def wait_until_gone(marker: str, seconds: float = 10, but: Container[int] = ()) -> list[int]:
    """Wait for the marked processes to end, but those that may stay; return those that did not."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in marked_processes(marker) if pid not in but]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left
