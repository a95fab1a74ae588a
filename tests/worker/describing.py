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
from tuner.record.protocol import Begin, Check, Describe, MakeReference, Prepare
from tuner.record.workload import ModelFacts, ModelRef

_N_INPUTS = 32


class Asked(msgspec.Struct):
    """A model, and the batches at which its outputs are compared."""

    ref: ModelRef
    batches: tuple[int, ...] = ()


class Reply(msgspec.Struct):
    """What came of one model: its facts, or an error."""

    error: str = ""
    facts: ModelFacts | None = None
    drifts: list[float] = []


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


def _drift(ref: ModelRef, framework: str, path: Path, batch: int) -> float:
    session = _session()
    session.begin(Begin(1, ref, framework, 0, {}, "none", str(path)))
    session.prepare(Prepare(Load(OFFLINE, batch)))
    found: float = session.check(Check(_N_INPUTS, changes_numerics=False)).check.drift
    return found


def _session() -> Any:
    from tuner.worker.session import Session

    silent: Callable[[str], None] = lambda stage: None  # noqa: E731
    return Session(silent, None)  # type: ignore[arg-type]  # no team gives orders


def _answer(asked: Asked, framework: str) -> Reply:
    try:
        facts = _session().describe(Describe(asked.ref, framework, 0))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "reference.npz"
            if asked.batches:
                _session().make_reference(
                    MakeReference(asked.ref, framework, 0, str(path), _N_INPUTS)
                )
            return Reply("", facts, [_drift(asked.ref, framework, path, b) for b in asked.batches])
    except TuneError as error:
        return Reply(str(error))
    except Exception as error:  # noqa: BLE001  # as the worker's loop does
        return Reply(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Asked])
    answers = [_answer(each, sys.argv[1]) for each in wanted]
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(answers))
