"""Events of a run, for listeners; the engine itself never prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.record.result import Result, Verdict
from tuner.record.winner_class import WinnerClass


class ModelBegins(msgspec.Struct, frozen=True, tag="model_begins"):
    """One of several models is built and looked at, before any of them is measured."""

    model: str
    framework: str
    number: int
    """Of its study, from 1."""
    of: int


class TurnBegins(msgspec.Struct, frozen=True, tag="turn_begins"):
    """It is the turn of one of several studies."""

    model: str
    framework: str
    number: int
    """Its position among the studies of this run, from 1."""
    of: int
    left_s: float
    """For this one and those after it."""


class StudyBegins(msgspec.Struct, frozen=True, tag="study_begins"):
    """A study is opened; `resumed_s` seconds of its budget were used before."""

    workload: str
    folder: str
    budget_s: float
    resumed_s: float
    n_configurations: int | None
    """Size of the space; None if it is too large to count."""
    n_measured: int = 0
    """Launches of earlier sessions that were measured, the pacer's apart."""
    n_failed: int = 0


class TransferLoaded(msgspec.Struct, frozen=True, tag="told_beforehand"):
    """Earlier studies, or rules, are listened to.

    The best that they name of each class is tried right after the default; all is a hint.
    """

    sources: tuple[str, ...]
    n_configurations: int
    """The number of their configurations that exist here, the default included."""


class PhaseBegins(msgspec.Struct, frozen=True, tag="phase_begins"):
    """A phase is entered."""

    name: str
    detail: str


class LaunchBegins(msgspec.Struct, frozen=True, tag="launch_begins"):
    """A launch is about to start."""

    launch: int
    label: str
    purpose: Purpose


class LaunchStage(msgspec.Struct, frozen=True, tag="launch_stage"):
    """The current activity of a launch's worker."""

    launch: int
    stage: str


class LaunchDone(msgspec.Struct, frozen=True, tag="launch_done"):
    """A launch has ended.

    `rate` (items per second) and `value` (in `unit`, of the objective) are medians over its
    undisturbed slices, or over all if none is undisturbed. They are as measured, with the machine's
    drift, which the scores of the search do not contain.
    """

    launch: int
    label: str
    purpose: Purpose
    outcome: Outcome
    reason: str
    rate: float | None
    seconds: float
    n_slices: int = 0
    n_disturbed: int = 0
    """Slices that something else disturbed."""
    search_ratio: float | None = None
    """The search's present ratio of its configuration to the default; None for the default, and if
    there is no search. The result may rest on more launches."""
    value: float | None = None
    unit: str = ""
    is_late: bool = False
    """Of a server: even single requests take longer than the bound, and the value only ranks."""


class BestSoFar(msgspec.Struct, frozen=True, tag="best_so_far"):
    """The best configuration of a class in the search, if it is above the default; no claim."""

    label: str
    ratio: float
    """Against the default, both at their best batch; above 1."""
    winner_class: WinnerClass
    """The narrowest class that allows it."""
    name: str
    """The class for a reader: bf16, same precision, no code change."""


class GainsAhead(msgspec.Struct, frozen=True, tag="gains_ahead"):
    """The gain that the confirmation can probably decide on, estimated at the start."""

    gain: float
    """A share: 0.08 is 8 %."""
    n_rounds: int
    launch_sd: float
    """The expected scatter of launches of one configuration (log)."""
    by_shares: float | None = None
    """Of a server, the gain where late requests do not agree with a simulation."""


class VerdictReached(msgspec.Struct, frozen=True, tag="verdict_reached"):
    """A configuration is confirmed to be faster while the search goes on for more."""

    label: str
    speedup: tuple[float, float, float]
    """Point and bounds."""
    seconds: float
    """Of the budget, used so far."""


class RoundEnds(msgspec.Struct, frozen=True, tag="round_ends"):
    """A confirmation round is complete; per class, point and bounds of the speedup so far."""

    number: int
    speedups: dict[str, tuple[float, float, float]]
    is_preliminary: bool = False
    """The scatter of launches elsewhere: an interval from these rounds alone may be wider."""


class WaitingForModel(msgspec.Struct, frozen=True, tag="waiting_for_model"):
    """The model is imported or built, before anything is measured, and takes a while."""

    model: str
    stage: str
    """What its process does now."""
    seconds: float
    """Waited so far."""
    at_most_s: float
    """After this it is given up."""


class WaitingForQuiet(msgspec.Struct, frozen=True, tag="waiting_for_quiet"):
    """Something else uses the CPUs; measuring waits until they are quiet, or for so long."""

    reason: str
    seconds: float
    """Waited so far."""
    at_most_s: float


class TimeLeft(msgspec.Struct, frozen=True, tag="time_left"):
    """How much of the study's budget is left."""

    seconds: float


class Warned(msgspec.Struct, frozen=True, tag="warned"):
    """Something a reader of the result must know."""

    text: str


class StudyEnds(msgspec.Struct, frozen=True, tag="study_ends"):
    """The study is complete and written."""

    workload: str
    verdict: Verdict
    folder: str


class HostSeen(msgspec.Struct, frozen=True, tag="host"):
    """A host of a fleet has reported what it is, or takes no part, permanently or for now."""

    host: str
    kind: str
    """The name of its kind; empty if it has none yet."""
    fault: str
    """Why it takes no part; empty if it does."""


class StudyPlaced(msgspec.Struct, frozen=True, tag="placed"):
    """A host of a fleet has begun a study, or the verification of a winner."""

    study: str
    host: str
    attempt: int
    """From 1."""
    is_verification: bool
    is_ahead: bool
    """Whether the host held more of the study than the driver."""


class StudyReturned(msgspec.Struct, frozen=True, tag="returned"):
    """The work of a host in a fleet has ended, or is left for another host."""

    study: str
    host: str
    state: str
    """done, failed, interrupted; of a verification confirmed, refuted, inconclusive."""
    reason: str
    """The verdict of a study that is done."""


class FrameworkEnds(msgspec.Struct, frozen=True, tag="result"):
    """The last of a framework: its result, or the error that ended its study."""

    framework: str
    folder: str
    exit_code: int
    error: str
    result: Result | None


Event: TypeAlias = (
    ModelBegins
    | TurnBegins
    | StudyBegins
    | TransferLoaded
    | PhaseBegins
    | LaunchBegins
    | LaunchStage
    | LaunchDone
    | BestSoFar
    | GainsAhead
    | VerdictReached
    | RoundEnds
    | WaitingForModel
    | WaitingForQuiet
    | TimeLeft
    | Warned
    | StudyEnds
    | HostSeen
    | StudyPlaced
    | StudyReturned
    | FrameworkEnds
)
Listener: TypeAlias = Callable[[Event], None]


def unheard(event: Event) -> None:
    """Ignore an event."""
