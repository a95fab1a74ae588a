"""The command on a clock of its own: a launch costs the same on every host, at every hour.

    python tests/virtual.py --model fake --hw fake --budget 10s ...

Everything else is real: the command line, the worker processes, their deaths, the files. What a
budget holds then depends on the study alone. The fake's speed is its own already; here its noise
and drift are the same in every run, and it passes for undisturbed whatever else the host does, so
that no launch waits for quiet. The drift of a launch is that of its begin: the pacer, which stays,
does not show it. That it is corrected by the pacer is tested where launches are made up.

For the tests' sake no file is synced, which only a power failure would show, a
report has its figures only where DRAWS is set, and workers are forked (seed.py) but where STARTS
is set.
"""

import itertools
import json
import os
import select
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import sqlalchemy

import tuner.launchers.supervised
import tuner.output.report
import tuner.study.forecast
from tuner.cli.main import main
from tuner.host.environment import for_workers, untuned
from tuner.launchers.clock import VirtualClock
from tuner.launchers.conversations import Conversation
from tuner.launchers.instance_group import InstanceGroup
from tuner.launchers.testbed import ThisHost
from tuner.output.figures.drawing import NotDrawn
from tuner.record.launch import Built, Checked, Interference
from tuner.record.protocol import Command, Measured, Reply
from tuner.space.launching import LaunchPlan
from tuner.worker.frameworks.fake.parts import MOMENT

START_S, ASK_S = 0.1, 0.01
"""What the start of a launch's processes and each of its steps take: as on a quick, quiet host."""


DRAWS = "TUNE_FRAMEWORK_TEST_DRAWS"
"""The variable that has a report drawn."""
STARTS = "TUNE_FRAMEWORK_TEST_STARTS"
"""The variable that has every worker started from nothing."""
SEED = Path(__file__).with_name("seed.py")


MOST_TOGETHER = 1
"""Launches that are prepared side by side: of two, the host decides which answers first."""

LOADGEN_S = 2.0
"""What LoadGen sends requests for: its seconds are those of the wall clock."""


def _not_drawn(specifications: Sequence[object]) -> list[str]:
    if specifications:
        raise NotDrawn("not in this test")
    return []


class Forked:
    """Stands in for `subprocess.Popen` of a supervisor."""

    imports: tuple[str, ...] = ()
    """Modules that the seed imports for all."""
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
                [sys.executable, "-P", str(SEED), str(theirs.fileno()), *cls.imports],
                env={**untuned(os.environ), **for_workers("")},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return cls._line

    def wait(self) -> None:
        """Wait until it has ended."""
        select.select([self._ended], [], [])
        os.close(self._ended)


def unsync() -> None:
    """Have no file synced in this process: of a study, hundreds of times."""
    os.fdatasync = os.fsync = lambda fd: None
    sqlalchemy.event.listen(
        sqlalchemy.Engine,
        "connect",
        lambda connection, _: (
            isinstance(connection, sqlite3.Connection)
            and connection.execute("PRAGMA synchronous = OFF")
        ),
    )


def spare() -> None:
    """Leave out what costs much and what hardly any test asks for."""
    unsync()
    if DRAWS not in os.environ:
        tuner.output.report.drawings = _not_drawn  # type: ignore[attr-defined]


def _group_on(clock: VirtualClock) -> type[InstanceGroup]:
    """Return processes of a launch that advance a clock, and that nothing disturbs."""

    numbers = itertools.count()

    class Group(InstanceGroup):
        def __init__(
            self, plans: Sequence[LaunchPlan], log: Path, extra: Mapping[str, str], **named: Any
        ) -> None:
            clock.advance(START_S)
            moment = {MOMENT: f"{next(numbers)} {clock.now_s()}"}
            super().__init__(plans, log, {**extra, **moment}, **named)

        def asking(self, command: Command, timeout_s: float, tell: Any) -> Conversation[Reply]:
            clock.advance(ASK_S)
            reply = yield from super().asking(command, timeout_s, tell)
            replace = msgspec.structs.replace
            match reply:
                case Measured(slice=told):
                    own = replace(told, at=clock.now_s(), interference=Interference())
                    return replace(reply, slice=own)
                case Built():
                    return replace(reply, import_s=ASK_S, build_s=ASK_S)
                case Checked():
                    return replace(reply, seconds=ASK_S)
            return reply

    return Group


class VirtualHost(ThisHost):
    """Real processes on a clock that they advance, on a host that nothing else uses."""

    def __init__(self) -> None:
        self._virtual = VirtualClock()
        super().__init__(self._virtual, _group_on(self._virtual), MOST_TOGETHER)

    def watch_idle(self, seconds: float) -> Interference:
        self._virtual.advance(seconds)
        return Interference()


if __name__ == "__main__":
    spare()
    if STARTS not in os.environ:
        forking = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL)
        vars(tuner.launchers.supervised)["subprocess"] = forking
    tuner.study.forecast.LOADGEN_S = LOADGEN_S
    main(VirtualHost())
