"""`recommended.toml`: the settings to ship, with what they are claimed to do, where and how."""

from __future__ import annotations

import msgspec

from tuner.record.configuration import Value
from tuner.record.result import Interval, Verdict

RECOMMENDATION_VERSION = 1


class RecommendedWorkload(msgspec.Struct, frozen=True):
    """What the settings were confirmed for."""

    model: str
    framework: str
    scenario: str
    batch: int


class RecommendedHost(msgspec.Struct, frozen=True):
    """Where they were confirmed."""

    fingerprint: str
    cpu: str
    physical_cores: int


class Setting(msgspec.Struct, frozen=True):
    """One setting, by its stable knob id."""

    knob: str
    value: Value
    applies: str
    """launch, process, model or call: when it must be set."""
    needs_code_change: bool
    how: str
    """How to set it, in one line."""


class Claim(msgspec.Struct, frozen=True):
    """What was confirmed."""

    verdict: Verdict
    n_rounds: int
    noise_floor: float
    speedup: Interval | None = None


class Tolerances(msgspec.Struct, frozen=True):
    """What the outputs were held to."""

    numerics: str
    max_drift: float | None
    """None where the user's accuracy decided in its place."""
    max_accuracy_loss: float | None = None


class Recommendation(msgspec.Struct, frozen=True):
    """One winner, ready to be applied. No settings means: keep the default."""

    schema_version: int
    winner_class: str
    workload: RecommendedWorkload
    host: RecommendedHost
    claim: Claim
    tolerances: Tolerances
    versions: dict[str, str]
    environment: dict[str, str]
    """The launch settings as environment variables, for whoever starts the program."""
    settings: list[Setting]
