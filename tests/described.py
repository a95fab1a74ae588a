"""What workers tell about models, asked once for each content by all processes of a pytest run."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.host.environment import tuning_variables
from tuner.launchers.asking import Deadline, ask
from tuner.record.protocol import Command, Describe, ListModels, Reply
from tuner.record.workload import ModelRef


def remembering(folder: Path) -> Callable[..., Reply]:
    """Return what stands for asking.ask() and keeps cards and facts of model files in a folder."""

    def remembered(
        command: Command,
        models: Sequence[ModelRef],
        waiting: Deadline,
        gpu: str = "",
        then: Command | None = None,
        *started: Any,
    ) -> Reply:
        is_known_by_files = all(ref.path.endswith(".py") for ref in models)
        if not is_known_by_files or not isinstance(command, ListModels | Describe):
            return ask(command, models, waiting, gpu, then, *started)
        kept = folder / hashlib.sha256(_content(command, models, gpu)).hexdigest()
        if kept.exists():
            known: Reply = msgspec.json.decode(kept.read_bytes(), type=Reply)
            return known
        reply = ask(command, models, waiting, gpu, then)
        draft = folder / f"{kept.name}.{os.getpid()}"
        draft.write_bytes(msgspec.json.encode(reply))
        draft.replace(kept)
        return reply

    return remembered


def _content(command: Command, models: Sequence[ModelRef], gpu: str) -> bytes:
    """Return all that an answer depends on: files are known by their bytes, not by their place."""
    question = msgspec.json.encode(command)
    for path in {path for ref in models for path in (ref.path, ref.inputs) if path}:
        question = question.replace(msgspec.json.encode(path), Path(path).read_bytes())
    read = sorted((name, os.environ[name]) for name in tuning_variables(os.environ))
    return msgspec.json.encode([question, read, gpu])
