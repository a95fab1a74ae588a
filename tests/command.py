"""Run the real command in a real process, and count from outside what it leaves behind."""

import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, str] = MappingProxyType({})
MARKER = "TUNE_FRAMEWORK_TEST_MARKER"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tuner.cli.main", *arguments]


def seconds_here(nominal: float) -> str:
    """Return a budget that holds here, now, what `nominal` seconds hold on a quick, quiet machine.

    Most of a fake launch is the start of its process: that is what is timed, and half as much again
    is added because a shared machine may slow down afterwards.
    """
    starting = [sys.executable, "-P", "-c", "import tuner.worker.session"]
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run(starting, check=True)
        seconds.append(time.monotonic() - began)
    return f"{nominal * 1.5 * max(1.0, statistics.median(seconds) / 0.1):.0f}s"


def run(
    *arguments: str, cwd: Path, timeout: float = 300, environment: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
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
            command(*arguments),
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
