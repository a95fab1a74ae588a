"""Engines that carry out a converted model: arrays in, arrays out."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tuner.engines import ENGINES
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.engines import ENGINE, KNOBS
from tuner.worker.frameworks import Array


class Engine(Protocol):
    """A converted model in memory."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Call it with contiguous arrays, in the order in which the model takes them.

        Returns arrays of its own, in the order in which the model returns them.
        """

    def read_back(self) -> list[ReadBack]:
        """Report the engine, and the settings of its own that are in force."""


SUFFIXES = {"onnxruntime": ".onnx", "openvino": ".xml"}
"""How the files of converted models end."""


def load(path: Path, settings: Mapping[str, Value], n_threads: int) -> Engine:
    """Load a converted model; n_threads: of its calls, if no setting says another number.

    Raises UsageError with the command to type if the engine is not installed, or with its reason if
    it refuses the model.
    """
    name = str(settings[ENGINE])
    check_installed(name)
    module = importlib.import_module(f"tuner.worker.engines.{name}_engine")
    try:
        made: Engine = module.load(path, settings, n_threads)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # an engine may raise anything at a model that it does not know
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UsageError(
            f"{ENGINES[name].title} does not take the converted model: {reason}"
        ) from error
    return made


def check_installed(name: str) -> None:
    """Raise UsageError with the command to type if an engine or its converter is missing."""
    entry = ENGINES[name]
    for package in entry.packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed here; type: {entry.install}")


def unused(asked: Mapping[str, Value]) -> list[ReadBack]:
    """Report engines' settings as if no engine had them: what an engine reports comes instead."""
    how = "the engine that carries out the model does not have it"
    return [
        ReadBack(knob.id, asked[knob.id], None, "effective", how)
        for knob in KNOBS
        if knob.id != ENGINE and knob.id in asked
    ]
