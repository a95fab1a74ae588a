"""The result of a study, as `result.json` holds it: the truth that everything is rendered from.

Ratios above 1 are better. Every interval names its confidence. Rates are items per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

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
from tuner.record.time_to_target import TimeToTarget
from tuner.record.why import Why
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU, StepMemory

if TYPE_CHECKING:
    import pandas

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
    """The effect of one setting of a winner: the winner against the winner without it."""

    knob: str
    value: Value
    ratio: float
    speedup: Interval | None
    """None where only launches of the search tell: a hint, not a claim."""
    n_rounds: int
    """Interleaved rounds behind it; 0 for a hint."""
    along: list[str] = []
    """Settings that have no meaning without it: its effect includes theirs."""


class CompileSeconds(msgspec.Struct, frozen=True):
    """The cost of compilation per start of the program; None if it was not measured."""

    cold: float | None
    warm: float | None
    items_to_pay: float | None = None
    """Items after which a start with the compiler's cache there is paid back by speed; None where
    nothing is gained, or nothing has to be paid back."""
    in_company: bool = False
    """Whether other launches were prepared in parallel to those measured: alone it takes less."""


class BesideNeighbour(msgspec.Struct, frozen=True):
    """How an arm of the confirmation performed next to a synthetic busy neighbour.

    collapses: by a 95 % interval, it keeps less than half of the share of its rate that the default
    keeps, or is slower there than the default.
    """

    processes: int
    """Busy ones, on the same CPUs."""
    n_rounds: int
    kept: float
    """Share of its undisturbed rate; for a server, of its rate when it is never idle."""
    speedup: float
    """Against the default next to the same neighbour; for a server, from the ratio of their rates
    and from what both keep."""
    interval: Interval | None
    """Of that; None from fewer than three rounds."""
    collapses: bool


class OperatorProfile(msgspec.Struct, frozen=True):
    """Where the time of a call goes, by the framework's profiler; taken outside scored slices.

    A profiler slows its process, and operators that run in parallel may sum up to more than a call:
    shares are more reliable than seconds.
    """

    operators: list[Operator]
    """The longest first."""
    batch: int
    call_s: float
    """Of a call under the profiler."""
    how: str


class LeftOut(msgspec.Struct, frozen=True):
    """A class's best configuration of the search, for which there was no time in the rounds."""

    configuration: dict[str, Value]
    search_ratio: float
    """Against the default in the search: a hint, not a claim."""
    seconds: float
    """Seconds of an extension that would compare it, as estimated now."""


class WinnerSection(msgspec.Struct, frozen=True):
    """The winner of a class, as confirmed. An empty configuration is the default."""

    configuration: dict[str, Value]
    verdict: Verdict
    reason: str
    """The reason for the verdict."""
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
    """The effect of each setting; empty unless the verdict is `faster`."""
    beside_neighbour: BesideNeighbour | None = None
    disturbed: float = 0.0
    """Share of the slices behind the verdict that something else disturbed."""
    call: Latency | None = None
    """Seconds of a call at the winner's batch, over all of its instances; how slices are pooled:
    tuner/analysis/launches.py."""
    profile: OperatorProfile | None = None
    """For one instance, if there are several."""
    value: Interval | None = None
    """In the objective's unit; None in results of earlier versions, which knew rates only."""
    value_undisturbed: Interval | None = None
    """If all calls count, disturbed ones too: the value without those; otherwise None."""
    stability: Stability | None = None
    """None unless the verdict is `faster`, and in results of earlier versions."""
    device_memory: DeviceMemory | None = None
    """On the card; None if there is none."""
    joules_per_item: float | None = None
    """Energy of the card over the confirming slices; None if nothing shows it."""
    serving: Serving | None = None
    """None if no requests arrived."""
    validations: list[Validation] = []
    """LoadGen's results in their order: for the lower bound of the rate, then for lower rates if
    that was too slow; empty if it was not used."""
    cpu_share: float | None = None
    """Share of the allowed CPUs' time that it used in the confirmation; None if nothing shows it.
    """
    loading: Interval | None = None
    """See DefaultSection."""
    is_unjustified: bool = False
    """Whether it is faster, and has a costly setting that nothing shows to be needed."""
    search_ratio: float | None = None
    """Of a candidate without rounds, against the default in the search: a hint, not a claim. None
    of all others, and in results of earlier versions."""
    n_won: int | None = None
    """Rounds in which it beat the default. None if no round compared them, and in results of
    earlier versions."""
    n_compared: int = 0
    """Rounds that compared them, even if they are too few for a claim."""
    seconds_to_decide: float | None = None
    """Seconds of further rounds that would decide an undecided class, as estimated now. None if it
    is decided, if no reasonable number of rounds would decide it, and in results of earlier
    versions."""
    left_out: LeftOut | None = None
    """What was faster in the search than this winner, and was in no round; None if nothing was, and
    in results of earlier versions."""


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
    """If all calls count, disturbed ones too: the value without those; otherwise None."""
    over_bound: str = ""
    """Which bound the default itself exceeds; empty if none."""
    device_memory: DeviceMemory | None = None
    """On the card; None if there is none."""
    joules_per_item: float | None = None
    """Energy of the card over the confirming slices; None if nothing shows it."""
    serving: Serving | None = None
    """None if no requests arrived."""
    validations: list[Validation] = []
    """LoadGen's results in their order: for the lower bound of the rate, then for lower rates if
    that was too slow; empty if it was not used."""
    cpu_share: float | None = None
    """Share of the allowed CPUs' time that it used in the confirmation; None if nothing shows it.
    """
    loading: Interval | None = None
    """In training from a loader: the seconds of a step over those of one whose batch is there. None
    without a loader."""
    search_value: float | None = None
    """In the objective's unit, from the search: a hint. None if rounds show the value, if the
    search uses another metric, and in results of earlier versions."""


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
    """Confirmed; None if it was only searched."""
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
    """Properties of the model that do not depend on its weights; rules use them."""

    kind: str
    """cnn, transformer, recommendation, recurrent, mlp or other."""
    form: str
    """The form in which it was given: code, script, export, saved, or program."""
    inputs: list[ModelInput]
    parameter_bytes: int
    parameters_sha256: str
    """Over names and shapes of the parameters: one architecture has one. Empty without any."""
    graph_width: float | None
    """Heavy operators that can run in parallel, on average; None if there is no graph."""
    macs: int | None
    """Multiply-accumulates per sample; None if they were not counted."""
    macs_by: str
    """What counted them; empty if nothing did."""
    family: str = "other"
    """cnn, detection, encoder, decoder, ...: more narrowly than `kind`."""
    item: str = "sample"
    """The meaning of an item: sample, prompt, token."""
    differs: str = ""
    """How this model differs from that of the other framework; empty if it is the same, or there is
    no other."""
    learns: str = ""
    """In training, the loss and the optimizer, in words; empty in inference."""
    step_memory: StepMemory | None = None
    """None in inference, and in results of earlier versions."""
    has_target: bool = False
    """In training, whether the model's file states a quality target."""


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
    """Among those that keep the numerics, if the winner has to; the default if none beat it. None
    before all were tried, if none of those that were may win."""
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
    """robust: winners that do not degrade under contention are preferred."""
    source_sha256: str = ""
    """Of the model's file; empty in results of earlier versions."""
    environment: dict[str, str] = {}
    """The tuning variables that were set when the study was begun, and that were removed from every
    measured process."""
    speedup_over_as_run: Interval | None = None
    """The recommendation, or else the default, over the baseline as_you_run_it. None if no variable
    was set, if both are the same, or if rounds do not compare them."""
    device: str = CPU
    """What computed: cpu or cuda."""
    model_facts: ModelSection | None = None
    """None in results of earlier versions."""
    seconds_by_phase: list[PhaseSeconds] = []
    """Every phase in the order of time; the sum is the wall clock. Empty in results of earlier
    versions."""
    designed: DesignedSection | None = None
    """None if it was not requested."""
    callers: int = 1
    """How many call at the same time, threads of one process."""
    price_per_hour: float | None = None
    """Of the host, in the currency in which it was given; None if it was not."""
    default_meets_slo: bool | None = None
    """Whether the default meets the latency bound at any rate that was tried. If not, there is no
    speedup, but the highest rate of each. None without a bound."""
    ahead: list[FasterNotShipped] = []
    """In the order of the confirmation's arms. Empty in results of earlier versions."""
    time_to_target: list[TimeToTarget] = []
    """Runs to the quality target that `time-to-target` made, one entry per configuration."""
    why: list[Why] = []
    """Where the time of a call goes, as `explain` measured it, one entry per configuration."""
    default_silence: str = ""
    """Why a server of the user's answers no request with nothing set; empty where it does."""

    def load_in_words(self) -> str:
        """Say how work arrives."""
        return in_words(self.scenario, self.callers)

    def trials_frame(self) -> pandas.DataFrame:
        """Return a pandas data frame of the trials, one row each (docs/data_frames.md)."""
        from tuner.record.frames import trials_frame

        return trials_frame(self)

    def rounds_frame(self) -> pandas.DataFrame:
        """Return a pandas data frame of the confirmation, a row per round and configuration."""
        from tuner.record.frames import rounds_frame

        return rounds_frame(self)
