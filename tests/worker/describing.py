"""Describe many models in one worker's process: a framework is imported once for all of them.

    python -m tests.worker.describing FRAMEWORK REPLIES

A reply is the facts, or the error in one line; REPLIES is a file, as frameworks print.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.host.environment import untuned
from tuner.record.protocol import Describe
from tuner.record.workload import ModelFacts, ModelRef


class Reply(msgspec.Struct):
    """What came of one model."""

    error: str = ""
    facts: ModelFacts | None = None
    checked: list[str] = []
    """What came of references and checks at some batches."""


def described(refs: Sequence[ModelRef], framework: str, folder: Path) -> list[Reply]:
    """Return what a worker says of each model, in order."""
    path = folder / f"described-{framework}.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.worker.describing", framework, str(path)],
        input=msgspec.json.encode(list(refs)),
        env=untuned(os.environ),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(path.read_bytes(), type=list[Reply])


def _describe(ref: ModelRef, framework: str) -> Reply:
    from tuner.worker.session import Session

    try:
        facts = Session(lambda stage: None, None).describe(  # type: ignore[arg-type]
            Describe(ref, framework, 0)
        )
    except Exception as error:  # noqa: BLE001  # as the worker's loop does
        return Reply(error=f"{type(error).__name__}: {error}")
    return Reply(facts=facts)


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=list[ModelRef])
    answers = [_describe(ref, sys.argv[1]) for ref in asked]
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(answers))
