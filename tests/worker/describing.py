"""Describe and check many models in one process: a framework is imported once for all of them.

    python -m tests.worker.describing FRAMEWORK REPLIES

REPLIES is a file, as frameworks print.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import TuneError
from tuner.host.environment import untuned
from tuner.record.load import OFFLINE, Load
from tuner.record.numerics import Level
from tuner.record.output_check import OutputCheck
from tuner.record.protocol import Begin, Check, Describe, MakeReference, Measure, Prepare
from tuner.record.workload import ModelFacts, ModelRef

_N_INPUTS = 32


class Asked(msgspec.Struct):
    """A model, and the batches at which its outputs are compared."""

    ref: ModelRef
    batches: tuple[int, ...] = ()
    reference: str = ""
    """A file in which the reference is kept; empty to drop it."""
    is_measured: bool = False
    """Whether a slice is taken as well."""


class Reply(msgspec.Struct):
    """What came of one model: its facts, or an error."""

    error: str = ""
    facts: ModelFacts | None = None
    checks: list[OutputCheck] = []
    """By batch."""
    rates: list[float] = []

    @property
    def drifts(self) -> list[float]:
        return [check.drift for check in self.checks]


def described(asked: Sequence[Asked], framework: str, folder: Path) -> list[Reply]:
    """Return what a worker says of each model, in order."""
    path = folder / f"described-{framework}.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.worker.describing", framework, str(path)],
        input=msgspec.json.encode(list(asked)),
        env=untuned(os.environ),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(path.read_bytes(), type=list[Reply])


def _launched(asked: Asked, framework: str, path: Path, batch: int, reply: Reply) -> None:
    session = _session()
    session.begin(Begin(1, asked.ref, framework, 0, {}, "none", str(path)))
    session.prepare(Prepare(Load(OFFLINE, batch)))
    if asked.is_measured:
        session.warm_up()
        reply.rates.append(session.measure(Measure(0, 0.05, 1)).slice.rate)
    reply.checks.append(session.check(Check(_N_INPUTS, level=Level.SAME)).check)


def _session() -> Any:
    from tuner.worker.session import Session

    silent: Callable[[str], None] = lambda stage: None  # noqa: E731
    return Session(silent, None)  # type: ignore[arg-type]  # no team gives orders


def _answer(asked: Asked, framework: str) -> Reply:
    try:
        reply = Reply("", _session().describe(Describe(asked.ref, framework, 0)))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(asked.reference or Path(folder) / "reference.npz")
            if asked.batches:
                _session().make_reference(
                    MakeReference(asked.ref, framework, 0, str(path), _N_INPUTS)
                )
            for batch in asked.batches:
                _launched(asked, framework, path, batch, reply)
        return reply
    except TuneError as error:
        return Reply(str(error))
    except Exception as error:  # noqa: BLE001  # as the worker's loop does
        return Reply(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Asked])
    answers = [_answer(each, sys.argv[1]) for each in wanted]
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(answers))
