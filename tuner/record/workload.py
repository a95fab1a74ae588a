"""A workload: model x framework x scenario x input shape, and what a model file states."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuner.record.configuration import Value

Scenario = Literal["offline"]
FRAMEWORKS = ("torch", "tensorflow", "fake")


class ModelRef(msgspec.Struct, frozen=True):
    """Where a model comes from: a file of the gallery (or a user's), with parameters."""

    name: str
    path: str
    parameters: tuple[tuple[str, Value], ...] = ()

    def label(self) -> str:
        """Name it as it is typed: NAME or NAME@key=value,..."""
        pairs = ",".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}@{pairs}" if pairs else self.name


class ModelCard(msgspec.Struct, frozen=True):
    """What a model file states about itself, read without importing a framework."""

    name: str
    title: str
    task: str
    kind: str
    """cnn, transformer, recommendation, mlp or other: what vendors' formulas ask about."""
    frameworks: tuple[str, ...]
    reference_batch: int
    batches: tuple[int, ...]
    n_classes: int | None
    source_sha256: str
    fault: str = ""
    """Why the file cannot be used; empty if it can."""


class ModelFacts(msgspec.Struct, frozen=True, tag="facts"):
    """What only the built model tells: measured in a child process, never in the tool itself."""

    n_parameters: int
    input_shapes: tuple[tuple[int, ...], ...]
    """Per input, without the batch dimension."""
    versions: dict[str, str]
    effective_defaults: dict[str, Value]
    """Per knob, what is in force when nothing is set: how the tool knows that two are one."""
    unread: dict[str, str]
    """Variables that nothing in the process reads, each with the reason."""
    graph_width: float
    """Heavy operators that can run side by side, on average (tuner/worker/graph.py); 0 if it is not
    known."""
    graph_fault: str
    """Why the width is not known; empty if it is."""
    import_s: float
    build_s: float
    call_s: float
    """Seconds of one warm call of the default at the reference batch: for time estimates only."""


class Workload(msgspec.Struct, frozen=True):
    """What is tuned: every field changes the results, so all of them are part of the identity."""

    model: ModelRef
    framework: str
    scenario: Scenario
    card: ModelCard
    seed: int = 0

    def label(self) -> str:
        """Name it as folders and reports do."""
        return f"{self.model.label()}-{self.framework}-{self.scenario}"
