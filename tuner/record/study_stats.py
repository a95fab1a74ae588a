"""How a study went, as its result tells: where its seconds went, its noise, rounds, trials."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuner.record.configuration import Value
from tuner.record.interval import Interval
from tuner.record.outcome import Outcome

Steadiness = Literal["stable", "unstable", "unknown"]


class Seconds(msgspec.Struct, frozen=True):
    """How the budget was used."""

    wall: float
    scored: float
    """Timed slices of everything but the pacer."""
    warm_up: float
    """Warm-up, output checks, profiles and discarded calls."""
    pacer: float
    compile: float
    start_up: float
    waiting: float
    """Waiting for a quiet moment, and slices during which something else used the CPUs."""


BEFORE = "before the first launch"
"""Looking at the host and the model, resolving the space, making the reference."""


class PhaseSeconds(msgspec.Struct, frozen=True):
    """How the wall clock of a phase was used; over all phases each second is counted once.

    `Seconds` instead adds up what launches report about themselves.
    """

    phase: str
    """A phase of the study (record/journal.py), or BEFORE."""
    start_up: float = 0.0
    """From the start of processes until they answer."""
    imports: float = 0.0
    build: float = 0.0
    """The model with its weights, placed and wrapped."""
    first_call: float = 0.0
    """Tracing, freezing, compiling and the first call."""
    warm_up: float = 0.0
    """Calls until they are steady; then reading back what is in force."""
    check: float = 0.0
    scored: float = 0.0
    """Timed slices of everything but the pacer."""
    disturbed: float = 0.0
    """Those during which something else used the CPUs, so that they were taken again."""
    pacer: float = 0.0
    """Its timed slices; its start, its first calls and its warm-up are where all others' are."""
    discarded: float = 0.0
    """Calls before a slice that are not timed; stopping processes and having them go on."""
    profile: float = 0.0
    neighbour: float = 0.0
    """Timed slices next to a synthetic busy neighbour."""
    ending: float = 0.0
    """Ending processes; of a launch that failed, the step at which it did."""
    waiting: float = 0.0
    """For a quiet moment."""
    own: float = 0.0
    """The tool's own work between launches: proposing, deciding, writing."""


class LeftToFind(msgspec.Struct, frozen=True):
    """How much of a class may be better than the best that was tried."""

    n_random: int
    """Random proposals in the class that no narrower class allows."""
    better_share: float
    """The share of that which is better, at most, with 95 % confidence: 1 - 0.05^(1 / n_random)."""


class FasterNotShipped(msgspec.Struct, frozen=True):
    """A configuration that the confirmation shows to be faster than the recommendation."""

    configuration: dict[str, Value]
    baseline: str
    """The baseline that has these settings; empty if none has."""
    lead: Interval
    """Over the recommendation, or over the default if there is none."""
    reason: str
    """Why it is not recommended."""


class LearntFrom(msgspec.Struct, frozen=True):
    """Earlier studies that guided the search."""

    studies: list[str]
    n_configurations: int
    """Configurations that they had measured and that exist here."""
    rank_correlation: float | None
    """Spearman's correlation of the hints with the measurements; None if there were too few."""
    is_dropped: bool
    """Whether they misled, so that they were not listened to any more."""


class Disturbance(msgspec.Struct, frozen=True):
    """Something that disturbed slices, and what to do about it."""

    what: str
    remedy: str


class NoiseSection(msgspec.Struct, frozen=True):
    """How much two identical configurations differ here."""

    floor: float
    launch_sd: float | None
    """Standard deviation of one launch's score within a round."""
    dirty_slices: int
    slices: int
    disturbances: list[Disturbance] = []
    """What disturbed most slices first; empty in results of earlier versions."""


class Moment(msgspec.Struct, frozen=True):
    """A slice, as far as it tells how noisy the host was."""

    at_s: float
    """Seconds of the study at its middle; those of a resumed study continue after the last slice.
    """
    foreign: float
    """Share of the allowed CPUs' time that others used or the hypervisor took."""
    dirty: list[str]
    """Why it does not count as clean; empty if it does."""
    pacer: float | None
    """A pacer's slice: its rate over the pacer's mean. None for the slices of others."""


class ConfirmationRound(msgspec.Struct, frozen=True):
    """Score of each arm in a round (record/objective.py), in the order of `arms`."""

    number: int
    log_rates: list[float | None]


class ConfirmationSection(msgspec.Struct, frozen=True):
    """The measurements from which alone claims are made."""

    arms: list[dict[str, Value]]
    rounds: list[ConfirmationRound]
    looks: list[int]
    """The number of rounds before it, without the early ones."""
    alpha: float
    n_early: int = 0
    """The number of rounds, at the beginning, that belong to an early verdict."""


class Stability(msgspec.Struct, frozen=True):
    """How often a launch of a winner is slower than the default's of the same round."""

    probability: float
    """Share of the rounds in which the winner's launch was the slower one."""
    low: float
    high: float
    """Of its 95 % interval (Jeffreys)."""
    n_slower: int
    n_rounds: int
    """Rounds in which both were measured: a launch of each."""
    word: Steadiness
    """unstable: the interval lies above 10 %; stable: below 20 %; unknown: too few rounds tell."""
    unseen_one_in: int | None = None
    """N: were one launch in N slow, all rounds would miss them with 5 % probability or more.

    The smallest such N. None in results of earlier versions."""


class TrialSection(msgspec.Struct, frozen=True):
    """One configuration that was tried."""

    number: int
    configuration: dict[str, Value]
    source: str
    outcome: Outcome
    reason: str
    launches: list[int]
    search_ratio: float | None
    """Against the default in the search: a hint, not a claim."""
    search_sd: float | None = None
    """By how much the configuration's own part of the ratio's logarithm may be off (SD): what
    launches scatter by, over how many there were. The default's part, which all ratios share, is
    not in it. None without a ratio, and in results of earlier versions."""
    call_p50_s: float | None = None
    """Median seconds of a call at its batch, in each instance. None if no launch shows it, where
    requests arrive on their own, and in results of earlier versions."""
    memory_bytes: int | None = None
    """Peak memory of all instances together; the card's where one computes. None if no launch
    shows it, and in results of earlier versions."""
