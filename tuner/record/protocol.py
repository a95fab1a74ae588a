"""The messages between the tool and a worker: JSON lines over a pipe of their own.

The worker's standard output belongs to the frameworks, which print there; it goes to the log.
"""

from __future__ import annotations

import signal
import struct
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from tuner.record.configuration import Value
from tuner.record.launch import Built, Checked, Compiled, Prepared, Profiled, Slice
from tuner.record.load import INFERENCE, Load, Offer
from tuner.record.numerics import Level
from tuner.record.outcome import Outcome
from tuner.record.time_to_target import TrainingRun
from tuner.record.why import HostBest, ModelWork
from tuner.record.workload import CPU, ModelCard, ModelFacts, ModelRef

STACK_SIGNAL = signal.SIGUSR2
"""Has a worker write the Python stacks of its threads to its log."""


def weights_beside(reference: Path) -> Path:
    """Return where the weights wait for later launches of a session."""
    return reference.with_suffix(".weights")


def draft_of(weights: Path) -> Path:
    """Return where they lie until it is known whether they are of use."""
    return weights.with_suffix(".part")


class ListModels(msgspec.Struct, frozen=True, tag="list_models"):
    """Read the cards of these models."""

    models: tuple[ModelRef, ...]
    each_variant: bool = False
    """Whether to describe every variant of a file, or only the named one."""


class LookAt(msgspec.Struct, frozen=True, tag="look_at"):
    """Start a user's own program or server without settings, and report what it is."""

    model: ModelRef


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """Build a model with the default settings and tell its facts."""

    model: ModelRef
    framework: str
    seed: int
    device: str = CPU
    mode: str = INFERENCE


class Placed(msgspec.Struct, frozen=True):
    """How a worker starts a user's own server, which is tuned; the worker itself is not."""

    environment: dict[str, str]
    rank: int
    n_instances: int


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Build the model under the process- and model-level settings of a configuration."""

    launch: int
    model: ModelRef
    framework: str
    seed: int
    settings: dict[str, Value]
    """Every setting of the configuration: the launch-level ones are there to be read back."""
    memory_policy: str
    """none, bind:NODE,NODE or interleave:NODE,NODE: applied by the worker before anything large is
    imported."""
    reference: str
    """Path of the file with the conditioned tensors and the default's outputs."""
    mode: str = INFERENCE
    device: str = CPU
    traces: bool = True
    """Whether settings are read back from a trace of a call, if that is costly: on a card it takes
    6 s (H100, PyTorch 2.11), so that one launch of a configuration does it for all."""
    placed: Placed | None = None
    """For a server; None if the worker was started with the settings itself."""


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Compile for a load, and make the first call; after Begin."""

    load: Load


class WarmUp(msgspec.Struct, frozen=True, tag="warm_up"):
    """Make calls until they are steady, then read back what is in force; after Prepare."""


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Time one slice; `discard` calls are made first and not timed."""

    index: int
    seconds: float
    discard: int
    in_team: bool = False
    """Report the stage READY after the discarded calls and wait for Go. When the slice is timed,
    report the stage TIMED and continue calling until Halt, so that no instance ends its slice next
    to idle ones."""
    offer: Offer | None = None
    """Requests that arrive at a server; None if there are none."""
    line: str = ""
    """The file of the line in which they wait for all instances of a team; empty for one."""


class Go(msgspec.Struct, frozen=True, tag="go"):
    """Begin the slice, at a moment of CLOCK_MONOTONIC that all instances share."""

    at: float


class Halt(msgspec.Struct, frozen=True, tag="halt"):
    """Every instance has timed its slice: answer now."""


READY, TIMED = "ready", "timed"
LINE_BYTES = 4096
"""Of the file of a line: for each shape of inputs, eight of how many requests were taken."""


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """Connect to a Unix socket and answer its requests (Asked) until it is closed."""

    address: str


class Asked(NamedTuple):
    """A batch to be called, as it comes over a socket; the answer is one byte."""

    size: int
    shape: int

    def written(self) -> bytes:
        """Return it as it is sent."""
        return ASKED.pack(self.size, self.shape)


ASKED = struct.Struct("<II")


class Profile(msgspec.Struct, frozen=True, tag="profile"):
    """Profile calls; no slice is taken after it."""

    seconds: float
    """For about so long; one call at least."""


REFERENCE_VERSION = 2
"""Of the file that MakeReference writes. 1 holds other elements of large outputs, no sums of them,
and integers as float32."""


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Compare the outputs with the default's; the last command before Quit."""

    n_inputs: int
    level: Level
    tolerance: float | None = None
    """Drift allowed to reduced precision, if the user set it."""


class MakeReference(msgspec.Struct, frozen=True, tag="make_reference"):
    """Condition the default model, and write its changed tensors and its outputs to a file."""

    model: ModelRef
    framework: str
    seed: int
    path: str
    n_inputs: int
    """How many inputs the default's outputs are kept for."""
    device: str = CPU
    sample_seed: int = 0
    """Which elements of large outputs are kept."""
    settings: dict[str, Value] = {}
    """Of a server that does not answer with nothing set: the variables under which it does."""
    mode: str = INFERENCE


class KeepWeights(msgspec.Struct, frozen=True, tag="keep_weights"):
    """Keep the weights of the model that was built for later launches, if that is of use.

    After MakeReference; ReferenceMade is the answer. Whatever comes of it, nothing depends on it.
    """


class LearnToTarget(msgspec.Struct, frozen=True, tag="learn_to_target"):
    """Train a new model until it reaches the quality target that its file states."""

    model: ModelRef
    framework: str
    seed: int
    """Of the first weights, the order of the samples, and what layers draw."""
    settings: dict[str, Value]
    memory_policy: str
    """As in Begin."""
    batch: int
    device: str = CPU


class MeasureBest(msgspec.Struct, frozen=True, tag="measure_best"):
    """Run operators of a framework whose work is known; HostBest is the answer."""

    framework: str
    dtypes: tuple[str, ...]
    """fp32, bf16."""
    device: str = CPU


class CountWork(msgspec.Struct, frozen=True, tag="count_work"):
    """Count the operations and bytes of the default's operators; ModelWork is the answer."""

    model: ModelRef
    framework: str
    seed: int
    device: str = CPU


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Leave at once."""


Command: TypeAlias = (
    ListModels
    | LookAt
    | Describe
    | MakeReference
    | KeepWeights
    | Begin
    | Prepare
    | WarmUp
    | Measure
    | Go
    | Halt
    | Serve
    | Profile
    | Check
    | LearnToTarget
    | MeasureBest
    | CountWork
    | Quit
)


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The worker runs and listens."""

    pid: int


class Cards(msgspec.Struct, frozen=True, tag="cards"):
    """The answer to ListModels, in the same order."""

    cards: tuple[ModelCard, ...]


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """The answer to LookAt."""

    card: ModelCard
    """The error, if there are no facts."""
    facts: dict[str, ModelFacts]
    """By framework."""


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """The worker's current activity: importing, building, compiling, checking, warming up."""

    name: str


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """The answer to Measure."""

    slice: Slice


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """The answer to Measure of an instance to which no request came."""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The answer to Serve, once the other side has gone."""

    n_batches: int


class ReferenceMade(msgspec.Struct, frozen=True, tag="reference_made"):
    """The answer to MakeReference."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The worker cannot go on; the traceback is in the log."""

    outcome: Outcome
    reason: str


Reply: TypeAlias = (
    Hello
    | Cards
    | Seen
    | ModelFacts
    | ReferenceMade
    | Stage
    | Built
    | Compiled
    | Prepared
    | Measured
    | Idle
    | Answered
    | Checked
    | Profiled
    | TrainingRun
    | HostBest
    | ModelWork
    | Failed
)
