"""The command on a clock of its own: a launch costs the same on every host, at every hour.

    python tests/virtual.py --model fake --hw fake --budget 10s ...

Everything else is real: the command line, the worker processes, their deaths, the files. What a
budget holds then depends on the study alone. The fake's speed is its own already; here it also
passes for undisturbed whatever else the host does, so that no launch waits for quiet.

For the tests' sake the tool's own files are not synced, which only a power failure would show, a
report has its figures only where DRAWS is set, and workers are forked (seed.py) but where STARTS
is set.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

import tuner.launchers.process_launch
import tuner.launchers.supervised
import tuner.launchers.time_attribution
import tuner.output.report
import tuner.several
import tuner.study.budget
import tuner.study.phase_costs
import tuner.study.verify
import tuner.tuning
import tuner.verifying
from tuner.cli.main import main
from tuner.launchers.conversations import Conversation
from tuner.launchers.instance_group import Team
from tuner.launchers.processes import ProcessLauncher
from tuner.output.figures.drawing import NotDrawn
from tuner.record.launch import Interference
from tuner.record.protocol import Command, Measured, Reply

KEPT_BY = (
    tuner.study.verify,
    tuner.launchers.process_launch,
    tuner.launchers.time_attribution,
    tuner.study.budget,
    tuner.several,
    tuner.tuning,
    tuner.verifying,
)
"""The modules that count seconds of the budget."""
START_S, ASK_S = 0.1, 0.01
"""What the start of a launch's processes and each of its steps take: as on a quick, quiet host."""


DRAWS = "TUNE_FRAMEWORK_TEST_DRAWS"
"""The variable that has a report drawn."""
STARTS = "TUNE_FRAMEWORK_TEST_STARTS"
"""The variable that has every worker started from nothing."""
SEED = Path(__file__).with_name("seed.py")


class Clock:
    """Stands in for the module `time`; passes only by what launches do."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


MOST_TOGETHER = 2
"""Launches that are prepared side by side, however many cores the host has."""

LOADGEN_S = 2.0
"""What LoadGen sends requests for: its seconds are those of the wall clock."""


def _not_drawn(specifications: Sequence[object]) -> list[str]:
    if specifications:
        raise NotDrawn("not in this test")
    return []


class Forked:
    """Stands in for `subprocess.Popen` of a supervisor."""

    _seed: "subprocess.Popen[bytes]"
    _line: socket.socket | None = None

    def __init__(self, argv: Sequence[str], *, pass_fds: Sequence[int], **_: object) -> None:
        self._line = self._line or self._sow()
        message = json.dumps({"fds": pass_fds, "order": [*map(int, argv[-2:])]})
        socket.send_fds(self._line, [message.encode()], pass_fds)
        self._ended = os.pidfd_open(int(self._line.recv(1 << 6)))

    @classmethod
    def _sow(cls) -> socket.socket:
        """Start what forks: with the first launch, when the tool has its descriptors in order."""
        cls._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            cls._seed = subprocess.Popen(
                [sys.executable, "-P", str(SEED), str(theirs.fileno())],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return cls._line

    def wait(self) -> None:
        """Wait until it has ended."""
        select.select([self._ended], [], [])
        os.close(self._ended)


def _spare() -> None:
    """Leave out what costs much and what hardly any test asks for."""
    os.fdatasync = os.fsync = lambda fd: None
    if DRAWS not in os.environ:
        tuner.output.report.drawings = _not_drawn  # type: ignore[attr-defined]


def install() -> Clock:
    """Have the budget kept by a new clock, which every launch of this process advances."""
    clock = Clock()
    start, ask = Team.__init__, Team.asking

    def started(team: Team, *given: Any, **named: Any) -> None:
        clock.now_s += START_S
        start(team, *given, **named)

    def asking(team: Team, command: Command, timeout_s: float, tell: Any) -> Conversation[Reply]:
        clock.now_s += ASK_S
        reply = yield from ask(team, command, timeout_s, tell)
        if isinstance(reply, Measured):
            undisturbed = msgspec.structs.replace(reply.slice, interference=Interference())
            return msgspec.structs.replace(reply, slice=undisturbed)
        return reply

    Team.__init__, Team.asking = started, asking  # type: ignore[assignment, method-assign]
    tuner.study.phase_costs.LOADGEN_S = LOADGEN_S
    ProcessLauncher.most_together = MOST_TOGETHER  # type: ignore[assignment, method-assign]
    for module in KEPT_BY:
        assert module.time is time
        module.time = clock  # type: ignore[attr-defined]
    return clock


if __name__ == "__main__":
    _spare()
    if STARTS not in os.environ:
        forking = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL)
        vars(tuner.launchers.supervised)["subprocess"] = forking
    install()
    main()
