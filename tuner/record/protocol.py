"""The messages between the tool and a worker: JSON lines over a pipe of their own.

The worker's standard output belongs to the frameworks, which print there; it goes to the log.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tuner.record.configuration import Value
from tuner.record.launch import Built, Prepared, Slice
from tuner.record.outcome import Outcome
from tuner.record.workload import ModelCard, ModelFacts, ModelRef


class ListModels(msgspec.Struct, frozen=True, tag="list_models"):
    """Read the cards of these model files."""

    paths: tuple[str, ...]


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """Build a model with the default settings and tell its facts."""

    model: ModelRef
    framework: str
    seed: int


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Build the model under the process- and model-level settings of a configuration."""

    launch: int
    model: ModelRef
    framework: str
    seed: int
    settings: dict[str, Value]
    """Every setting of the configuration: the launch-level ones are there to be read back."""
    memory_policy: str
    """none, or bind:NODE: applied by the worker before anything large is imported."""
    reference: str
    """Path of the file with the conditioned tensors and the default's outputs."""
    makes_reference: bool
    """Whether this launch, a default one, writes that file."""


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Compile, check (n_check inputs, 0 for none) and warm up one batch size."""

    batch: int
    n_check: int
    changes_numerics: bool


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Time one slice; `discard` calls are made first and not timed."""

    index: int
    batch: int
    seconds: float
    discard: int


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Leave at once."""


Command: TypeAlias = ListModels | Describe | Begin | Prepare | Measure | Quit


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The worker runs and listens."""

    pid: int


class Cards(msgspec.Struct, frozen=True, tag="cards"):
    """The answer to ListModels, in the same order."""

    cards: tuple[ModelCard, ...]


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """What the worker is doing now: importing, building, compiling, checking, warming up."""

    name: str


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """The answer to Measure."""

    slice: Slice


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The worker cannot go on; the traceback is in the log."""

    outcome: Outcome
    reason: str


Reply: TypeAlias = Hello | Cards | ModelFacts | Stage | Built | Prepared | Measured | Failed
