"""The result of a study, as `result.json` holds it: the truth that everything is rendered from.

Ratios above 1 are better. Every interval names its confidence. Rates are items per second.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tuner.record.configuration import Value
from tuner.record.designed import DesignedSection
from tuner.record.interval import Interval
from tuner.record.launch import DeviceMemory, Latency, Operator, ReadBack
from tuner.record.load import in_words
from tuner.record.objective import Objective
from tuner.record.output_check import OutputCheck
from tuner.record.serving import Serving, Validation
from tuner.record.study_stats import (
    ConfirmationSection,
    FasterNotShipped,
    LearntFrom,
    LeftToFind,
    Moment,
    NoiseSection,
    PhaseSeconds,
    Seconds,
    Stability,
    TrialSection,
)
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU

SCHEMA_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 1 has other names of the winner classes (record/winner_class.py)."""

Verdict = Literal["faster", "keep_default", "ambiguous"]


class HostSection(msgspec.Struct, frozen=True):
    """The measured machine: what changes results, and what may differ from hour to hour."""

    fingerprint: str
    profile: str
    profile_matches: bool
    identity: dict[str, Any]
    observations: dict[str, Any]


class Contribution(msgspec.Struct, frozen=True):
    """What one setting of a winner is worth: the winner against the winner without it."""

    knob: str
    value: Value
    ratio: float
    speedup: Interval | None
    """None where only launches of the search tell: a hint, not a claim."""
    n_rounds: int
    """Interleaved rounds behind it; 0 for a hint."""
    along: list[str] = []
    """Settings that mean nothing without it: theirs is in its worth."""


class CompileSeconds(msgspec.Struct, frozen=True):
    """What compilation costs per start of the program; None where that was not seen."""

    cold: float | None
    warm: float | None
    items_to_pay: float | None = None
    """Items after which a start with the compiler's cache there is paid back by speed; None where
    nothing is gained, or nothing has to be paid back."""
    in_company: bool = False
    """Whether other launches were prepared beside the ones that tell: by itself it takes less."""


class BesideNeighbour(msgspec.Struct, frozen=True):
    """How a configuration fared in the confirmation beside a synthetic busy neighbour.

    collapses: surely, by a 95 % interval, it keeps less than half of the share of its rate that the
    default keeps, or is slower there than the default.
    """

    processes: int
    """Busy ones, on the same CPUs."""
    n_rounds: int
    kept: float
    """Share of its undisturbed rate; of a server, of what it answers when never idle."""
    speedup: float
    """Against the default beside the same neighbour; of a server, by the ratio of their rates and
    by what both keep."""
    interval: Interval | None
    """Of that; None from fewer than three rounds."""
    collapses: bool


class OperatorProfile(msgspec.Struct, frozen=True):
    """Where the time of a call goes, by the framework's profiler; taken outside scored slices.

    A profiler slows what it watches, and operators that run side by side may sum up to more than a
    call: shares tell more than seconds.
    """

    operators: list[Operator]
    """The longest first."""
    batch: int
    call_s: float
    """Of a call under the profiler."""
    how: str


class WinnerSection(msgspec.Struct, frozen=True):
    """The winner of a class, as confirmed. An empty configuration is the default."""

    configuration: dict[str, Value]
    verdict: Verdict
    reason: str
    """Why the verdict is what it is."""
    n_rounds: int
    rate: Interval | None
    """Items per second, whatever the objective; of all instances together."""
    speedup: Interval | None
    speedup_at_reference_batch: Interval | None
    batch_gain: float | None
    """Rate at the winner's batch over its rate at the reference batch."""
    output_drift: OutputCheck | None
    compile_seconds: CompileSeconds
    memory_peak_bytes: int | None
    read_back: list[ReadBack]
    not_in_force: list[str]
    removed: list[str]
    """Settings that the search had chosen and minimising took away."""
    noise_floor: float
    """At as many rounds as the verdict has."""
    contributions: list[Contribution] = []
    """What each setting is worth; empty unless the verdict is `faster`."""
    beside_neighbour: BesideNeighbour | None = None
    disturbed: float = 0.0
    """Share of the slices behind the verdict that something else disturbed."""
    call: Latency | None = None
    """Seconds of a call at the winner's batch, over all of its instances; how slices are pooled:
    tuner/analysis/launches.py."""
    profile: OperatorProfile | None = None
    """Of one instance, where there are several."""
    value: Interval | None = None
    """In the objective's unit; None in results of earlier versions, which knew rates only."""
    value_undisturbed: Interval | None = None
    """Where all calls count, disturbed ones too, what it is without those; else None."""
    stability: Stability | None = None
    """None unless the verdict is `faster`, and in results of earlier versions."""
    device_memory: DeviceMemory | None = None
    """On the card; None where there is none."""
    joules_per_item: float | None = None
    """That the card took, over the confirming slices; None where nothing tells."""
    serving: Serving | None = None
    """None where no requests arrived."""
    validations: list[Validation] = []
    """What LoadGen said, as it was asked: of the lower bound of the rate, then of lower rates where
    that was too slow; empty where it was not asked."""
    cpu_share: float | None = None
    """Of the allowed CPUs' time that it used in the confirmation; None where nothing tells."""
    is_unjustified: bool = False
    """Whether it is faster, and has a costly setting that nothing shows to be needed."""
    search_ratio: float | None = None
    """Of a candidate without rounds, against the default in the search: a hint, not a claim. None
    of all others, and in results of earlier versions."""
    n_won: int | None = None
    """Rounds in which it beat the default. None where no round compared them, and in results of
    earlier versions."""
    n_compared: int = 0
    """Rounds that compared them; also those that are too few for a claim."""
    seconds_to_decide: float | None = None
    """Of further rounds that would decide a class which is not decided, as things look now. None
    where it is decided, where no reasonable number of rounds would, and in results of earlier
    versions."""


class DefaultSection(msgspec.Struct, frozen=True):
    """The denominator of every speedup."""

    batch: int
    """The batch at which the default is fastest."""
    rate: Interval | None
    rate_at_reference_batch: float | None
    memory_peak_bytes: int | None
    read_back: list[ReadBack]
    beside_neighbour: BesideNeighbour | None = None
    call: Latency | None = None
    profile: OperatorProfile | None = None
    value: Interval | None = None
    """In the objective's unit; None in results of earlier versions, which knew rates only."""
    value_undisturbed: Interval | None = None
    """Where all calls count, disturbed ones too, what it is without those; else None."""
    over_bound: str = ""
    """Which bound the default itself exceeds; empty if none."""
    device_memory: DeviceMemory | None = None
    """On the card; None where there is none."""
    joules_per_item: float | None = None
    """That the card took, over the confirming slices; None where nothing tells."""
    serving: Serving | None = None
    """None where no requests arrived."""
    validations: list[Validation] = []
    """What LoadGen said, as it was asked: of the lower bound of the rate, then of lower rates where
    that was too slow; empty where it was not asked."""
    cpu_share: float | None = None
    """Of the allowed CPUs' time that it used in the confirmation; None where nothing tells."""
    search_value: float | None = None
    """In the objective's unit, by the search: a hint. None where rounds tell, where the search goes
    by another metric, and in results of earlier versions."""


class BaselineSection(msgspec.Struct, frozen=True):
    """A recommendation, resolved for this host."""

    name: str
    source: str
    applicable: bool
    reason: str
    """Why it does not apply here, or why it has no rate; empty if it has one."""
    same_as: str | None
    dead_settings: list[str]
    substituted: list[str]
    configuration: dict[str, Value]
    speedup: Interval | None
    """Confirmed; None where it was only searched."""
    search_ratio: float | None
    """Against the default in the search: a hint, not a claim."""
    beside_neighbour: BesideNeighbour | None = None


class ModelInput(msgspec.Struct, frozen=True):
    """An input of the model."""

    shape: list[int]
    """Without the batch dimension."""
    type: str
    """As NumPy names it: float32, int64."""


class ModelSection(msgspec.Struct, frozen=True):
    """What describes the model whatever its weights: what studies of other models are told by."""

    kind: str
    """cnn, transformer, recommendation, recurrent, mlp or other."""
    form: str
    """code, script, export, saved, or program: what it was given as."""
    inputs: list[ModelInput]
    parameter_bytes: int
    parameters_sha256: str
    """Over names and shapes of the parameters: one architecture has one. Empty without any."""
    graph_width: float | None
    """Heavy operators that can run side by side, on average; None where no graph is to be had."""
    macs: int | None
    """Multiply-accumulates per sample; None where nothing counts them."""
    macs_by: str
    """Who counted them; empty if nobody did."""
    family: str = "other"
    """cnn, detection, encoder, decoder, ...: more narrowly than `kind`."""
    item: str = "sample"
    """What an item is: sample, prompt, token."""
    differs: str = ""
    """How this model differs from that of the other framework; empty if it is the same, or there is
    no other."""


class Result(msgspec.Struct, frozen=True):
    """Everything a study found."""

    schema_version: int
    tool_version: str
    created: str
    """When the last session that measured began (UTC, ISO 8601)."""
    identity: str
    model: str
    model_title: str
    n_parameters: int
    framework: str
    scenario: str
    reference_batch: int
    batches: list[int]
    objective: Objective
    host: HostSection
    versions: dict[str, str]
    numerics: str
    seed: int
    recommended_class: WinnerClass
    verdict: Verdict
    speedup: Interval | None
    speedup_over_best_baseline: Interval | None
    best_baseline: str | None
    """Of those that keep the numerics, where the winner has to; the default where none beat it.
    None before all were tried, if none of those that were may win."""
    default: DefaultSection
    winners: dict[WinnerClass, WinnerSection]
    baselines: list[BaselineSection]
    noise_floor: float
    noise: NoiseSection
    confirmation: ConfirmationSection
    trials: list[TrialSection]
    contributions: list[Contribution] | None
    """Those of the recommended winner."""
    seconds: Seconds
    budget_s: float
    budget_shares: dict[str, float]
    """Share of the used time per phase."""
    phases: dict[str, str]
    """Why each phase ended."""
    warnings: list[str]
    command: str
    """The command that the study was begun with: it resumes the study or renders it again."""
    tolerance: float | None = None
    """Drift that the user allowed to reduced precision; None for the tool's own bound."""
    accuracy_loss: float | None = None
    """By how much the user's accuracy was allowed to fall, which then decided in its place."""
    learnt_from: LearntFrom | None = None
    convergence_reason: str = ""
    """Why the search for new configurations ended: settled, exhausted, or out of time."""
    left: dict[WinnerClass, LeftToFind] = {}
    """Per class that anything was drawn at random of; empty in results of earlier versions."""
    timeline: list[Moment] = []
    """Every slice in the order of time; empty in results of earlier versions."""
    goal: str = "fastest"
    """robust: winners that do not collapse beside a busy neighbour are preferred."""
    source_sha256: str = ""
    """Of the model's file; empty in results of earlier versions."""
    environment: dict[str, str] = {}
    """The tuning variables that were set where the study was begun, and that were removed from
    every measured process."""
    speedup_over_as_run: Interval | None = None
    """What is recommended, or the default where nothing is, over the baseline as_you_run_it; None
    where no variable was set, where both are the same, or where rounds do not compare them."""
    device: str = CPU
    """What computed: cpu or cuda."""
    model_facts: ModelSection | None = None
    """None in results of earlier versions."""
    seconds_by_phase: list[PhaseSeconds] = []
    """Every phase in the order of time; the sum is the wall clock. Empty in results of earlier
    versions."""
    designed: DesignedSection | None = None
    """None where it was not asked for."""
    callers: int = 1
    """How many call at the same time, threads of one process."""
    price_per_hour: float | None = None
    """Of the host, in whatever currency it was given; None where it was not."""
    default_meets_slo: bool | None = None
    """Whether the default keeps within the latency bound at any rate that was tried; if not, there
    is no speedup, but the highest rate of each. None where there is no bound."""
    ahead: list[FasterNotShipped] = []
    """In the order of the confirmation's arms. Empty in results of earlier versions."""
    default_silence: str = ""
    """Why a server of the user's answers no request with nothing set; empty where it does."""

    def load_in_words(self) -> str:
        """Say how work arrives."""
        return in_words(self.scenario, self.callers)
