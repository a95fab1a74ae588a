"""guidelines.json: rules of what settings do to models, with the studies that they rest on.

A study's recording is what rules are learnt from, kept without the rest of its folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.designed import DesignedSection
from tuner.record.files import SCHEMAS, UNREADABLE, in_short, write_whole
from tuner.record.interval import Interval
from tuner.record.result import Verdict
from tuner.record.result_faults import fault_of_interval
from tuner.record.winner_class import WinnerClass

GUIDELINES_VERSION = 1
GUIDELINES_SCHEMA = SCHEMAS / f"guidelines-{GUIDELINES_VERSION}.json"
RECORDING_SCHEMA = SCHEMAS / f"recording-{GUIDELINES_VERSION}.json"
GUIDELINES_FILE = "guidelines.json"
RECORDINGS = "studies"
"""The folder of recordings next to a guidelines.json."""
Fact = str | float
Advice = Literal["set", "leave", "none"]
_Read = TypeVar("_Read", bound="Guidelines | Recording")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,@+-]{0,150}")
_LARGEST = 20.0
"""No logarithm of an effect reaches it."""
_MOST_BYTES = 1 << 28


class Condition(msgspec.Struct, frozen=True):
    """Which models a rule is about: fact == value for words, fact <= or > value for numbers."""

    fact: str
    relation: Literal["==", "!=", "<=", ">"]
    value: Fact

    def holds(self, facts: Mapping[str, Fact]) -> bool | None:
        """Tell whether it holds for a model; None if the fact is unknown."""
        own = facts.get(self.fact)
        if own is None:
            return None
        if self.relation in ("==", "!="):
            return (own == self.value) is (self.relation == "==")
        if isinstance(own, str) or isinstance(self.value, str):
            return None
        return (own <= self.value) is (self.relation == "<=")

    def opposite(self) -> Condition:
        """Return that of all other models."""
        other: dict[str, Literal["==", "!=", "<=", ">"]] = {"==": "!=", "<=": ">"}
        return Condition(self.fact, other[self.relation], self.value)


class Rule(msgspec.Struct, frozen=True):
    """What setting something does to models."""

    framework: str
    setting: str
    """A factor of the search space's design, or "a with b": what both do beyond each alone."""
    condition: Condition | None
    mean: float
    """Logarithm of the ratio, on average over families."""
    spread: float
    """SD of that logarithm in a model of another family, the mean's own error included."""
    n_families: int
    effect: Interval
    """On average over families, as a ratio, 95 %; of all conditions at once that were tried."""
    expected: Interval
    """In a model of another family, as a ratio, 90 %."""
    advice: Advice
    families: dict[str, float]
    """Each one's mean ratio."""
    n_models: int
    studies: list[str]


class Failure(msgspec.Struct, frozen=True):
    """A setting that all combinations of a model had that failed there in one way.

    Rules know nothing of them: what fails has no speed.
    """

    framework: str
    setting: str
    model: str
    n_failed: int
    n_cells: int
    """Combinations with the setting that were tried."""
    outcome: str


class Found(msgspec.Struct, frozen=True):
    """A study's own result for a winner class, for throughput and without bounds."""

    verdict: Verdict
    configuration: dict[str, Value]
    speedup: Interval | None


class Studied(msgspec.Struct, frozen=True, kw_only=True):
    """A study that teaches rules: its subject, host, date and own result."""

    name: str
    created: str
    """UTC, ISO 8601: when it was begun."""
    tool_version: str
    model: str
    framework: str
    family: str
    parameters_sha256: str
    """Over names and shapes of the parameters (record/result.py)."""
    facts: dict[str, Fact]
    """What conditions ask of."""
    host: str
    """In words."""
    fingerprint: str
    """Of the host."""
    versions: dict[str, str]
    winners: dict[WinnerClass, Found]
    """By their class."""


class Recording(Studied, frozen=True, kw_only=True):
    """All that is kept of a study to learn rules from it again."""

    schema_version: int
    design: DesignedSection


class StudyOf(Studied, frozen=True, kw_only=True):
    """A study as it stands in guidelines: with what its designed part says."""

    effects: dict[str, tuple[float, float]]
    """Of each factor, and of pairs: the logarithm of its ratio, and its standard error."""
    failed: list[list[str]] = []
    """Factors that were set together in combinations that failed."""


class Guidelines(msgspec.Struct, frozen=True):
    """All rules of a recording."""

    schema_version: int
    tool_version: str
    created: str
    """UTC, ISO 8601."""
    launch_sd: dict[str, float]
    """Per host, by its fingerprint: the logarithmic SD of a launch within its round.

    By what sums of effects leave unexplained.
    """
    launch_freedom: dict[str, int]
    """Degrees of freedom of each."""
    settings: dict[str, dict[str, list[str]]]
    """Per framework, what each factor set: KNOB=VALUE."""
    studies: list[StudyOf]
    rules: list[Rule]
    failures: list[Failure] = []

    @property
    def hosts(self) -> list[str]:
        """The hosts that taught them, in words, each once."""
        return list(dict.fromkeys(study.host for study in self.studies))


def write_as_json(path: Path, kept: Guidelines | Recording) -> None:
    """Write a guidelines.json, or a recording."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(kept), indent=1).decode() + "\n")


def read_guidelines(path: Path) -> Guidelines:
    """Read a guidelines.json, or the one in a folder; raises UsageError if it is invalid."""
    return _read(path / GUIDELINES_FILE if path.is_dir() else path, Guidelines, "guidelines")


def read_recording(path: Path) -> Recording:
    """Read the recording of a study; raises UsageError if it is invalid."""
    return _read(path, Recording, "the recording of a study")


class _Recorded(msgspec.Struct):
    """Fields that no other file of a study or of guidelines has."""

    design: msgspec.Raw
    fingerprint: str


def is_recording(path: Path) -> bool:
    """Tell whether a file looks like a recording, of whatever version."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return False
        msgspec.json.decode(path.read_bytes(), type=_Recorded)
    except (OSError, *UNREADABLE):
        return False
    return True


def _read(path: Path, kind: type[_Read], what: str) -> _Read:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is not {what}: it is too large")
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UNREADABLE as error:
        raise UsageError(f"{path} is not {what}: {in_short(error)}") from error
    if found.schema_version != GUIDELINES_VERSION:
        raise UsageError(
            f"{path} is of schema_version {found.schema_version}; this version reads "
            f"{GUIDELINES_VERSION}"
        )
    if fault := _fault_of(found):
        raise UsageError(f"{path} is not {what}: {fault}")
    return found


def _fault_of(found: Guidelines | Recording) -> str:
    """Return why it cannot be one of ours; empty if it can. It may come from anywhere."""
    studied = [found] if isinstance(found, Recording) else found.studies
    for study in studied:
        if not _NAME.fullmatch(study.name):
            return f"a study is named {study.name!r}"
        if any(isinstance(v, float) and not math.isfinite(v) for v in study.facts.values()):
            return f"{study.name} has a fact that is no number"
        for won in study.winners.values():
            if won.speedup and (fault := fault_of_interval(won.speedup, "the speedup of a winner")):
                return fault
    if isinstance(found, Recording):
        ratios = [c.log_ratio for c in found.design.cells if c.log_ratio is not None]
        return "" if _are_small(ratios) else f"{found.name} has an invalid ratio"
    figures = [figure for rule in found.rules for figure in (rule.mean, rule.spread)]
    for study in found.studies:
        figures += [figure for pair in study.effects.values() for figure in pair]
        if study.effects and study.fingerprint not in found.launch_freedom:
            return f"{study.name} is of a host without a noise figure"
    if not _are_small(figures):
        return "an effect is larger than any can be"
    for rule in found.rules:
        for each in (rule.effect, rule.expected):
            if not 0 <= each.low <= each.point <= each.high:
                return f"the interval of {rule.setting!r} is out of order"
    return ""


def _are_small(figures: Iterable[float]) -> bool:
    return all(abs(figure) < _LARGEST for figure in figures)  # no NaN is
