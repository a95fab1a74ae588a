"""A launch and its measurements: the request, the preparation, the slices, the end.

Metrics (all times are wall-clock seconds):
  rate            items / seconds of a slice; the discarded call after a pause, warm-up, output
              check, compilation and start-up are outside it
  start_up_s      from the request until the worker answers, process creation included
  import_s        importing the framework; build_s: the model with its weights, placed and wrapped
  first_call_s    tracing, freezing and the first call of a batch size, compilation included
  compile_s       first_call_s less a steady call
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

import msgspec

from tuner.record.configuration import Configuration, Value
from tuner.record.load import OFFLINE, Batching, Load, Slo
from tuner.record.outcome import Ending, Outcome
from tuner.record.output_check import OutputCheck
from tuner.record.serving import Served

_Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_Counted: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
"""Rates are computed from these, and logarithms from rates: a file that holds others is damaged."""


class Purpose(StrEnum):
    """Why a launch was made; a claim rests on `CONFIRM` launches alone."""

    PACER = "pacer"
    ANCHOR = "anchor"
    BASELINE = "baseline"
    SEARCH = "search"
    RACE = "race"
    ABLATION = "ablation"
    CONFIRM = "confirm"
    EXPLAIN = "explain"
    PROFILE = "profile"
    """Only its profile counts: its compiler may generate code that a profiler can name."""
    DESIGN = "design"
    BOUND = "bound"
    """The default's time for one request at a time: it sets the latency bound of a server."""


UNPACED = (
    Purpose.CONFIRM,
    Purpose.EXPLAIN,
    Purpose.PROFILE,
    Purpose.DESIGN,
    Purpose.BOUND,
)
"""Purposes of launches that were not measured next to the pacer: most were in rounds."""


class Interference(msgspec.Struct, frozen=True):
    """What else happened on the measured CPUs during a slice.

    Shares are of the CPU time that the allowed CPUs offer (elapsed x CPUs). `pressure` is the
    kernel's PSI `some` share; it is recorded and never judged, because a configuration with more
    threads than CPUs causes it itself.
    """

    steal: float = 0.0
    foreign: float = 0.0
    throttled_periods: int = 0
    pressure: float = 0.0
    involuntary_switches: int = 0
    gpu_foreign: float | None = None
    """Share of the measured card's multiprocessors that others used; None if unknown."""
    gpu_power_capped: float = 0.0
    """Share of the time in which the power limit lowered the card's clocks. Recorded and never
    judged: every fast program reaches it."""
    dirty: tuple[str, ...] = ()
    """The reasons why the slice does not count as clean; empty if it does."""
    own: float | None = None
    """Share that the measured process used itself; None in launches of earlier versions."""


class DeviceMemory(msgspec.Struct, frozen=True):
    """The memory of a launch on a card, according to the framework's own allocator."""

    allocated_peak_bytes: int
    """The most that tensors took at any time so far."""
    reserved_peak_bytes: int
    """The most that the allocator held for them: what other programs could not have."""
    reserved_bytes: int
    """The memory after the warm-up: a waiting launch keeps it."""
    card_bytes: int
    """The card's total memory."""


class Share(msgspec.Struct, frozen=True):
    """The work of one instance, or of one of several callers, in a slice, from the common start."""

    calls: int
    seconds: _Positive


class Latency(msgspec.Struct, frozen=True):
    """Seconds that a call took, over all calls of a slice: of every instance, pooled."""

    p50_s: float
    p99_s: float
    n_calls: int


def latency(call_s: Sequence[float]) -> Latency:
    """Summarise the seconds of some calls, at least one."""
    ordered = sorted(call_s)
    return Latency(percentile(ordered, 0.5), percentile(ordered, 0.99), len(ordered))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value, of at least one, that so large a share of them lie below.

    The rank is the one that MLPerf's LoadGen takes. The nearest rank, which is one less, is
    expected at the 87th percentile of 30 calls and at the 90th of 300: an arm would look the
    faster, the fewer its calls.
    """
    return sorted(values)[math.floor(share * len(values))]


def packed(call_s: Iterable[float]) -> bytes:
    """Write the seconds of calls as a slice keeps them: 4 bytes each, to seven digits."""
    return array("f", call_s).tobytes()


class Slice(msgspec.Struct, frozen=True):
    """Timed work inside a launch: at least the requested seconds and one whole call.

    With several instances, `calls` are those of all, and `seconds` the longest of theirs. They
    start at the same moment, and none stops working before the last has timed its slice. The same
    holds for several callers of one process.
    """

    index: int
    """Study-wide ordinal: no two slices of a study share it."""
    batch: _Counted
    calls: _Counted
    seconds: _Positive
    at: float
    """CLOCK_MONOTONIC at the middle of the slice, in seconds."""
    interference: Interference = Interference()
    shares: tuple[Share, ...] = ()
    """Of each instance by rank, or of each caller; empty where one process has one caller."""
    latency: Latency | None = None
    """Percentiles of the calls below, for readers who need no more."""
    energy_j: float | None = None
    """The energy of the measured card, whichever process used it; None if nothing shows it."""
    packed_calls: bytes = b""
    """Seconds of every call, in their order; a team's, instance by instance. Empty where calls were
    not timed one by one, and in launches of earlier versions. Single precision, little-endian.
    Where requests arrived at a server: of every request, from the moment at which it was due."""
    served: Served | None = None
    """None if no server was measured."""

    def __post_init__(self) -> None:
        """Refuse calls that no clock has timed: raises ValueError."""
        if not all(0 < seconds < math.inf for seconds in self.call_s):
            raise ValueError("the seconds of a call are no time")

    @property
    def call_s(self) -> list[float]:
        """Seconds of every call."""
        return array("f", self.packed_calls).tolist()

    @property
    def call_mean_s(self) -> float:
        """Mean seconds of a call, over all instances."""
        return self.seconds * max(1, len(self.shares)) / self.calls

    @property
    def rate(self) -> float:
        """Items per second; of a team, the sum over its instances."""
        if self.served is not None:
            return self.served.n_requests / self.seconds
        if self.shares:
            return sum(share.calls * self.batch / share.seconds for share in self.shares)
        return self.calls * self.batch / self.seconds


Evidence = Literal["effective", "accepted", "environment_only"]


class ReadBack(msgspec.Struct, frozen=True):
    """The actual value of a knob, read inside the measured process.

    evidence: `effective`: observed in the library or the kernel; `accepted`: the interface took it;
    `environment_only`: not observable (echoing the environment is no evidence).
    """

    knob: str
    requested: Value | None
    observed: Value | None
    evidence: Evidence
    how: str
    """What was examined, in words."""

    @property
    def in_force(self) -> bool:
        """Whether nothing speaks against the requested value being in force."""
        return self.requested is None or self.observed == self.requested


class Built(msgspec.Struct, frozen=True, tag="built"):
    """The worker has imported, built and applied everything that comes before the first call."""

    import_s: float
    build_s: float
    versions: dict[str, str]


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """The model is compiled and has made its first call; `Prepared` says the same, and more."""

    first_call_s: float


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """The model is compiled and warm at the launch's batch size."""

    first_call_s: float
    steady_call_s: float
    warm_up_s: float
    is_steady: bool
    memory_peak_bytes: int
    """The most that was resident at any time so far; freezing a graph can take many times more
    than running it."""
    memory_private_bytes: int
    """Anonymous memory resident after the warm-up: that of a waiting launch."""
    read_back: tuple[ReadBack, ...]
    memory_shared_bytes: int = 0
    """The part of the peak that is mapped files: another process that maps them shares it."""
    cpus: tuple[int, ...] = ()
    """The affinity mask before any library bound its threads."""
    is_traced: bool = True
    """Whether a call was traced for the read-back; else it says less: another launch did it."""
    device_memory: DeviceMemory | None = None
    """None if the model is in the host's memory alone."""
    call_there_s: float = 0.0
    """Mean seconds of a step of training whose batch is there; 0 where no loader is waited for."""


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """The outputs were compared with the default's, after the last slice.

    Never before: what the check allocates changes how glibc's malloc serves the calls after it (its
    mmap threshold grows with the largest block freed): 26 images/s became 39, measured on
    resnet50's default with PyTorch 2.13. For the same reason a launch serves one batch size only:
    after another one, resnet50's default ran at 0.91 to 1.17 of its rate (benchmarks/swept.py).
    """

    check: OutputCheck
    seconds: float


REST = "everything else"


class Operator(msgspec.Struct, frozen=True):
    """The time of the calls of one kind of operator, without the operators inside it."""

    name: str
    seconds: float
    """Per call of the model."""
    calls: float
    """Per call of the model."""


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """Where the time of a call goes, by the framework's own profiler, the longest first.

    Taken after the last slice, because a profiler slows its process. Operators that run in parallel
    may sum up to more than a call takes.
    """

    operators: tuple[Operator, ...]
    """The last entry is the sum of the operators that are not listed."""
    call_s: float
    """Of a call under the profiler."""
    n_calls: int
    how: str
    seconds: float
    """That it took, the profiler's own work included."""


class LaunchRequest(msgspec.Struct, frozen=True):
    """One start of the worker for one configuration."""

    id: int
    configuration: Configuration
    batch: int
    purpose: Purpose
    pacer_block: int = 0
    """Which respawn of the pacer this launch is scored against; 0 for none."""
    round: int = 0
    """The confirmation round; 0 outside the confirmation."""
    session: int = 0
    started_s: float = 0.0
    """Seconds of the study's budget used when the launch began."""
    padding_bytes: int = 0
    """Length of a variable that only moves the stack: where it begins changes speeds (Mytkowicz et
    al. 2009), so that each launch draws it anew."""
    scenario: str = OFFLINE
    n_companions: int = 0
    """The number of launches prepared in parallel, until its first call had returned. Nothing was
    measured meanwhile, but preparation took longer: the worker's seconds of its start, its model
    and its first call include that."""
    callers: int = 1
    """Threads of the process that call at the same time."""
    batching: Batching | None = None
    """For a server's requests, `batch` at most; None if no server is measured."""
    slo: Slo | None = None

    @property
    def load(self) -> Load:
        """The requests of the slice."""
        return Load(self.scenario, self.batch, self.callers, self.batching)


class LaunchRecord(msgspec.Struct):
    """Everything known of a launch; grows while it runs."""

    request: LaunchRequest
    built: Built | None = None
    prepared: Prepared | None = None
    slices: list[Slice] = []
    contended: list[Slice] = []
    """Slices taken next to a synthetic busy neighbour, after the others."""
    n_neighbours: int = 0
    """Of how many processes."""
    check: OutputCheck | None = None
    check_s: float = 0.0
    profile: Profiled | None = None
    ending: Ending | None = None
    start_up_s: float = 0.0
    total_s: float = 0.0
    """Seconds that the tool spent on this launch; other launches' slices in between are not in.
    Seconds in which several were prepared side by side are shared out among them: the sum over all
    launches is of the wall clock."""
    slicing_s: float = 0.0
    """The part of these that its slices took: discarded calls, resuming, stopping included."""

    @property
    def clean_slice(self) -> Slice | None:
        """The first undisturbed slice; None while there is none."""
        return next((s for s in self.slices if not s.interference.dirty), None)

    @property
    def was_measured(self) -> bool:
        """Whether it was measured to its end; one that the tool's end cut short is made again."""
        return self.ending is not None and self.ending.outcome is Outcome.MEASURED

    @property
    def compile_s(self) -> float:
        """Seconds that starting this configuration costs beyond a steady call."""
        if self.prepared is None:
            return 0.0
        return max(0.0, self.prepared.first_call_s - self.prepared.steady_call_s)
