"""What only a child process can tell: the cards of model files, the facts of a built model.

The tool itself never imports a model file: that would import a framework, with its threads, into
the process that measures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tuner.errors import NothingMeasured, UnknownName, UsageError
from tuner.measurement.process import WorkerEnded, WorkerProcess
from tuner.record.protocol import (
    Cards,
    Command,
    Describe,
    Failed,
    ListModels,
    MakeReference,
    ReferenceMade,
    Reply,
    Stage,
)
from tuner.record.workload import ModelCard, ModelFacts, ModelRef
from tuner.space.launching import LaunchPlan
from tuner.space.restrictions import parse_value

_TIMEOUT_S = 600.0


def _ask(command: Command) -> Reply:
    """Put one question to a fresh worker without any setting.

    Raises UsageError with the worker's reason, NothingMeasured if the worker died of it.
    """
    with tempfile.TemporaryDirectory(prefix="tune-framework-") as folder:
        log = Path(folder) / "describe.log"
        try:
            worker = WorkerProcess(LaunchPlan({}, None, "none"), log, {})
        except WorkerEnded as error:
            raise UsageError(f"cannot start a worker: {error}") from error
        try:
            worker.send(command)
            while isinstance(reply := worker.receive(_TIMEOUT_S), Stage):
                pass
        except WorkerEnded as error:
            if isinstance(command, ListModels):  # the file itself, before any framework
                raise UsageError(f"the model cannot be loaded: {error}") from error
            raise NothingMeasured(
                f"nothing can be measured: 1 x {error.ending.outcome}: {error}"
            ) from error
        finally:
            worker.close()
    if isinstance(reply, Failed):
        raise UsageError(f"the model cannot be loaded: {reply.reason}")
    return reply


def read_cards(paths: Iterable[Path]) -> list[ModelCard]:
    """Read the cards of model files, in order."""
    reply = _ask(ListModels(tuple(map(str, paths))))
    assert isinstance(reply, Cards)
    return list(reply.cards)


def gallery_cards(folder: Path) -> list[ModelCard]:
    """Read the cards of every model file in a folder."""
    return read_cards(sorted(folder.glob("*.py")))


def find_model(text: str, folder: Path) -> tuple[ModelRef, ModelCard]:
    """Find a model as typed: NAME or PATH.py, optionally @key=value,...

    Raises UnknownName with close matches, UsageError for a file that cannot be used.
    """
    name, _, tail = text.partition("@")
    pairs = []
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"{part!r} in --model {text!r} is not key=value")
        pairs.append((key, parse_value(value)))
    path = Path(name) if name.endswith(".py") else folder / f"{name}.py"
    if name.endswith(".py") and not path.is_file():
        raise UsageError(f"there is no model file {name}")
    if not path.is_file():
        known = [p.stem for p in folder.glob("*.py")]
        raise UnknownName(
            "model", name, known, "list them with: tune-framework models; or name a file PATH.py"
        )
    card = read_cards([path.resolve()])[0]
    if card.fault:
        raise UsageError(f"{path}: {card.fault}")
    return ModelRef(path.stem, str(path.resolve()), tuple(sorted(pairs))), card


def make_reference(ref: ModelRef, framework: str, seed: int, path: Path) -> None:
    """Have a child of its own write the study's reference; raises UsageError if it cannot."""
    reply = _ask(MakeReference(ref, framework, seed, str(path.absolute())))
    assert isinstance(reply, ReferenceMade)


def describe_model(ref: ModelRef, framework: str, seed: int) -> ModelFacts:
    """Build the model with nothing set, in a child, and return its facts."""
    reply = _ask(Describe(ref, framework, seed))
    assert isinstance(reply, ModelFacts)
    return reply
