"""Engines that carry out a converted model: arrays in, arrays out."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tuner.engines import ENGINES, OPENVINO
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.engines import ENGINE, KNOBS
from tuner.worker.evidence.allocator import allocator
from tuner.worker.frameworks import Array


class Engine(Protocol):
    """A converted model in memory."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Call it with contiguous arrays, in the order in which the model takes them.

        Returns arrays of its own, in the order in which the model returns them.
        """

    def read_back(self) -> list[ReadBack]:
        """Report the engine, and the settings of its own that are in force."""


def load(
    path: Path,
    settings: Mapping[str, Value],
    n_threads: int,
    example: Sequence[Array],
    n_outputs: int,
) -> Engine:
    """Load a converted model, and call it once.

    n_threads: of its calls, if no setting says another number. example: what it is given.

    Raises UsageError if the engine refuses the model, or returns another number of outputs.
    """
    name = str(settings[ENGINE])
    title = ENGINES[name].title
    module = importlib.import_module(f"tuner.worker.engines.{name}_engine")
    try:
        made: Engine = module.load(path, settings, n_threads)
        found = made.run(example)
    except (MemoryError, OSError):  # of this moment, not of the model
        raise
    except Exception as error:  # an engine may raise anything at a model that it does not know
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UsageError(f"{title} does not take the converted model: {reason}") from error
    if len(found) != n_outputs:
        raise UsageError(f"{title} returns {len(found)} outputs where the model has {n_outputs}")
    return made


def check(settings: Mapping[str, Value], framework: str) -> None:
    """Raise UsageError if the engine of these settings cannot work in this process.

    It names the command to type if the engine or its converter is not installed.
    """
    entry = ENGINES.get(name := str(settings.get(ENGINE)))
    if entry is None:
        return
    for package in (*entry.packages, *entry.converters.get(framework, ())):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed here; type: {entry.install}")
    if name == OPENVINO and (found := allocator()) != "glibc":
        raise UsageError(f"{entry.title} crashes where {found} is preloaded: start without it")


def unused(requested: Mapping[str, Value]) -> list[ReadBack]:
    """Report engines' settings as if no engine had them: what an engine reports comes instead."""
    how = "the engine that carries out the model does not have it"
    return [
        ReadBack(knob.id, requested[knob.id], None, "effective", how)
        for knob in KNOBS
        if knob.id != ENGINE and knob.id in requested
    ]
