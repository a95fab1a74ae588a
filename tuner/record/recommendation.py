"""`recommended.toml`: the settings to ship, with the claim about them, its workload and host."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tuner.record.configuration import VARIABLE_NAME, Value
from tuner.record.interval import Interval
from tuner.record.load import MOST_CALLERS, SCENARIOS, Slo, in_words
from tuner.record.numerics import Level
from tuner.record.objective import METRICS, Bound
from tuner.record.output_check import OutputCheck
from tuner.record.result import Verdict
from tuner.record.result_faults import fault_of_interval
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU, OF_PROGRAMS

RECOMMENDATION_VERSION = 2
READABLE_RECOMMENDATIONS = (1, 2)
"""Version 1 has other names of the winner classes (record/winner_class.py)."""
INSTANCES_VARIABLE = "TUNE_FRAMEWORK_INSTANCES"
"""Tells a program how many instances were started; set by whatever starts it as recommended."""


Expected = Literal["predicted", "looked_up", "not_known"]
EXPECTED = ("predicted", "looked_up", "not_known")
"""The verdicts of claims without measurements on this host: from rules of other models, or from a
study of this model on such a host; not_known if neither says what to set."""
WITHOUT_SETTINGS = {
    "keep_default": "keep the default: nothing that was tried is faster",
    "ambiguous": "not decided: nothing was confirmed to be faster, so that nothing is set",
    "predicted": "keep the default: the guidelines expect no setting to be faster",
    "not_known": "not known: the guidelines do not say what to set; a study of this model tells",
    "looked_up": "keep the default: a study of this model on such a host found nothing faster",
}
"""What a recommendation without settings means, by its claim's verdict."""


class RecommendedWorkload(msgspec.Struct, frozen=True):
    """The workload that the settings were confirmed for."""

    model: str
    framework: str
    scenario: str
    batch: int
    default_batch: int | None = None
    """The batch at which the default was fastest: the claim compares with it."""
    form: str = ""
    """The form in which the model was given: code, script, export, saved or program."""
    source_sha256: str = ""
    """Of the model's file."""
    device: str = CPU
    """The device."""
    callers: int = 1
    """How many called at the same time."""
    batch_dim: int | None = None
    """Which dimension of the model's inputs is the batch, as --batch-dim named it."""

    @property
    def mode(self) -> str:
        """Whether the model answers or learns (record/load.py)."""
        return SCENARIOS[self.scenario].mode

    def load_in_words(self) -> str:
        """Say how work arrived."""
        return in_words(self.scenario, self.callers)


class RecommendedHost(msgspec.Struct, frozen=True):
    """The host on which they were confirmed."""

    fingerprint: str
    cpu: str
    physical_cores: int
    cpus: int | None = None
    """CPUs (hardware threads) that the program was allowed, its quota considered."""
    threads_per_core: int = 1
    identity: dict[str, Any] = {}
    """What changes results, part by part; empty in files of earlier versions."""


class Placement(msgspec.Struct, frozen=True):
    """Where one instance of the program runs."""

    cpus: str | None = None
    """As the kernel lists them; None: all that it is given."""
    memory_policy: str = "none"
    """"none", "bind:NODE,NODE" or "interleave:NODE,NODE"."""


class Setting(msgspec.Struct, frozen=True):
    """One setting, by its stable knob id."""

    knob: str
    value: Value
    applies: str
    """launch, process, model or call: when it must be set."""
    needs_code_change: bool
    how: str
    """How to set it, in one line."""


class ShippedClaim(msgspec.Struct, frozen=True):
    """The confirmed speedup, or the expected one."""

    verdict: Verdict | Expected
    n_rounds: int
    noise_floor: float
    speedup: Interval | None = None
    launch_sd: float | None = None
    """The scatter of launches (log) in the confirmation."""
    launch_freedom: int = 0
    """Degrees of freedom claimed for it: those of a single arm's rounds."""
    default_rate: float | None = None
    """Items per second of the default at its best batch; None in files of earlier versions."""
    default_value: float | None = None
    """Its value in the unit of the metric; None in files of earlier versions."""
    metric: str = "throughput"
    """By which it is faster (record/objective.py)."""
    default_meets_slo: bool | None = None
    """False: the default keeps within no latency bound, so that no speedup is claimed."""
    rests_on: list[str] = []
    """The rules or the study behind it, in words, if nothing was confirmed here."""
    studies: list[str] = []
    """The names of those behind it, then."""


class Tolerances(msgspec.Struct, frozen=True):
    """The bounds for the outputs."""

    numerics: str
    max_drift: float | None = None
    """None if the user's accuracy function decided instead."""
    max_accuracy_loss: float | None = None


class Recommendation(msgspec.Struct, frozen=True):
    """One winner, ready to be applied. No settings means: keep the default."""

    schema_version: int
    winner_class: WinnerClass
    workload: RecommendedWorkload
    host: RecommendedHost
    claim: ShippedClaim
    tolerances: Tolerances
    versions: dict[str, str]
    environment: dict[str, str]
    """The launch settings as environment variables, as is needed to start the program."""
    settings: list[Setting]
    placements: list[Placement] = msgspec.field(default_factory=lambda: [Placement()])
    """One per instance, by rank."""
    memory_bytes: int | None = None
    """The most that all instances used together."""
    packages: dict[str, str] = {}
    """For each library in LD_PRELOAD that pip installs, by its file's name: NAME==VERSION.

    LD_PRELOAD then holds the name alone: its path depends on the environment.
    """
    bounds: list[Bound] = []
    """The bounds that it kept."""
    slo: Slo | None = None
    """The latency that a server's requests were kept within."""
    outputs: OutputCheck | None = None
    """How far its outputs were from the default's, if it was measured."""

    @property
    def nothing_set(self) -> str:
        """Why nothing is set; empty where something is."""
        return "" if self.settings else WITHOUT_SETTINGS.get(self.claim.verdict, "")

    @property
    def is_expected(self) -> bool:
        """Whether nothing of its claim was measured on the host that it names."""
        return self.claim.verdict in EXPECTED


_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_FILE = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*")
_LARGEST = 1e9
"""No figure of a claim reaches it."""
_MOST = 2**63
"""No count of ours reaches it, bytes included."""
_FORMS = ("", "code", "script", "export", "saved", *OF_PROGRAMS)
"""Of a model (record/workload.py); empty in files of earlier versions."""
_NUMERICS = tuple(level.in_words for level in Level)
_POLICY = re.compile(r"none|(bind|interleave):\d+(,\d+)*")


def fault_of(recommendation: Recommendation) -> str | None:
    """Return why a recommendation cannot be one of ours, or None.

    It may come from anywhere, and goes into shells, units and manifests.
    """
    r = recommendation
    for name in r.environment:
        if not VARIABLE_NAME.fullmatch(name):
            return f"{name!r} is not a variable's name"
    if (text := _unprintable(msgspec.to_builtins(r))) is not None:
        return f"control characters in {text!r}"
    for file, package in r.packages.items():
        if not _FILE.fullmatch(file) or not _PACKAGE.fullmatch(package):
            return f"{file!r} = {package!r} is not a library's file and its package"
    for placement in r.placements:
        if placement.cpus is not None and not _CPUS.fullmatch(placement.cpus):
            return f"{placement.cpus!r} is not a list of CPUs"
        if not _POLICY.fullmatch(placement.memory_policy):
            return f"{placement.memory_policy!r} is not a memory policy"
    return (
        _fault_of_words(r)
        or _fault_of_counts(r)
        or _fault_of_claim(r.claim)
        or _fault_of_tolerances(r.tolerances)
        or _fault_of_outputs(r.outputs)
        or _fault_of_bounds(r.bounds)
        or _fault_of_slo(r)
        or (None if r.placements else "it places no instance")
    )


def _fault_of_words(r: Recommendation) -> str | None:
    words: dict[str, tuple[str, tuple[str, ...]]] = {
        "workload.scenario": (r.workload.scenario, tuple(SCENARIOS)),
        "workload.form": (r.workload.form, _FORMS),
        "claim.metric": (r.claim.metric, tuple(METRICS)),
        "tolerances.numerics": (r.tolerances.numerics, _NUMERICS),
    }
    for where, (word, allowed) in words.items():
        if word not in allowed:
            listed = ", ".join(filter(None, allowed))
            return f"its {where} is {word!r}; allowed are: {listed}"
    return None


def _fault_of_counts(r: Recommendation) -> str | None:
    """Check whole numbers; of the batches, the catalogue knows more (space/recommended.py)."""
    least: dict[str, tuple[int | None, int]] = {
        "host.physical_cores": (r.host.physical_cores, 1),
        "host.cpus": (r.host.cpus, 1),
        "host.threads_per_core": (r.host.threads_per_core, 1),
        "claim.n_rounds": (r.claim.n_rounds, 0),
        "claim.launch_freedom": (r.claim.launch_freedom, 0),
        "memory_bytes": (r.memory_bytes, 0),
    }
    if r.outputs is not None:
        counts = ("n_inputs", "top1_inputs", "top1_classes")
        least |= {f"outputs.{name}": (getattr(r.outputs, name), 0) for name in counts}
    for where, (count, at_least) in least.items():
        if count is not None and not at_least <= count < _MOST:
            return f"its {where} is {count}, which is no number of these"
    if r.workload.scenario in SCENARIOS:
        has_several = SCENARIOS[r.workload.scenario].callers > 1
        low, high = (2, MOST_CALLERS) if has_several else (1, 1)
        if not low <= r.workload.callers <= high:
            return f"its workload.callers is {r.workload.callers}, which is no number of these"
    return None


def _fault_of_claim(claim: ShippedClaim) -> str | None:
    if claim.verdict == "faster" and claim.speedup is None and claim.default_meets_slo is not False:
        return "its claim is 'faster' and has no speedup"
    figures = {
        "claim.noise_floor": claim.noise_floor,
        "claim.launch_sd": claim.launch_sd,
        "claim.default_rate": claim.default_rate,
        "claim.default_value": claim.default_value,
    }
    if claim.speedup is not None:
        if fault := fault_of_interval(claim.speedup, "its claim.speedup"):
            return fault
        figures["claim.speedup.high"] = claim.speedup.high
    return _fault_of_figures(figures, _LARGEST)


def _fault_of_tolerances(tolerances: Tolerances) -> str | None:
    return _fault_of_figures(
        {
            "tolerances.max_drift": tolerances.max_drift,
            "tolerances.max_accuracy_loss": tolerances.max_accuracy_loss,
        },
        math.inf,  # a user may allow any
    )


def _fault_of_outputs(outputs: OutputCheck | None) -> str | None:
    figures = {} if outputs is None else msgspec.structs.asdict(outputs)
    figures = {  # an accuracy may be below 0: it is any number of which more is better
        f"outputs.{name}": abs(figure) if "accuracy" in name else figure
        for name, figure in figures.items()
        if isinstance(figure, float)
    }
    return _fault_of_figures(figures, math.inf)


def _fault_of_bounds(bounds: list[Bound]) -> str | None:
    for bound in bounds:
        if not 0 < bound.most < _MOST:
            return f"its bound on {bound.figure} is {bound.most}, which is invalid"
    return None


def _fault_of_slo(r: Recommendation) -> str | None:
    is_served = SCENARIOS[r.workload.scenario].is_served
    if r.slo is None:
        return "its workload is a server's, and it has no slo" if is_served else None
    if not is_served:
        return f"it has an slo, and its workload is {r.workload.scenario}"
    if not (0.5 <= r.slo.quantile < 1 and 0 < r.slo.seconds < _LARGEST):
        return f"its slo is {r.slo.name} within {r.slo.seconds} s, which is invalid"
    trace = r.slo.trace
    if trace is not None and not (trace.n_requests > 1 and 0 < trace.rate < math.inf):
        return "its trace is invalid"
    return None


def _fault_of_figures(figures: Mapping[str, float | None], below: float) -> str | None:
    for where, figure in figures.items():
        if figure is not None and not 0 <= figure < below:  # no NaN is
            return f"its {where} is {figure}, which is no such figure"
    return None


def _unprintable(part: Any) -> str | None:
    """Return the first text with control characters, however deep; None if there is none."""
    if isinstance(part, str):
        return None if part.isprintable() else part
    inside = [*part, *part.values()] if isinstance(part, dict) else part
    if not isinstance(inside, list | tuple):
        return None
    return next((found for each in inside if (found := _unprintable(each)) is not None), None)
