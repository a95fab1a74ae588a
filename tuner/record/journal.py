"""The decisions and notes of a study, line by line, so that it can be resumed and audited."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from tuner.record.configuration import Configuration
from tuner.record.launch import Built, Checked, Compiled, LaunchRequest, Prepared, Profiled, Slice
from tuner.record.load import Slo
from tuner.record.outcome import Ending
from tuner.record.serving import Validation
from tuner.record.winner_class import WinnerClass


class Phase(StrEnum):
    """The parts of a study, in their order."""

    DESIGN = "design"
    BASELINES = "baselines"
    EXPLORE = "explore"
    RACE = "race"
    MINIMISE = "minimise"
    CONFIRM = "confirm"
    EXPLAIN = "explain"


class StudyOpened(msgspec.Struct, frozen=True, tag="study"):
    """The first line: the subject of the study."""

    identity: str
    """SHA-256 over hardware, versions, workload and space."""
    identity_parts: dict[str, str]
    """The hash of each part, so that a mismatch can be named."""
    created: str
    tool_version: str
    environment: dict[str, str] | None = None
    """The tuning variables that were set when it was begun, none of which reached a measured
    process; None in journals of earlier versions."""
    command: str = ""
    """The command that resumes it if it is stopped before its first session; empty in journals of
    earlier versions."""


class SessionOpened(msgspec.Struct, frozen=True, tag="session"):
    """One run of the tool over this study; a resume opens another."""

    number: int
    started: str
    budget_s: float
    command: str = ""
    """What repeats it; empty in journals of earlier versions."""


class Extended(msgspec.Struct, frozen=True, tag="extended"):
    """A finished study goes on: what follows is its next extent, with its own phases.

    All that was measured before stays. Journals without this line hold one extent.
    """

    seconds: float
    """The time granted in addition to the time used, over all frameworks of the run."""


class Added(msgspec.Struct, frozen=True, tag="added"):
    """A study that is not finished is granted more time: its extent goes on, with its phases."""

    seconds: float
    """The time that the extent may use in all, over all frameworks of the run."""
    added_s: float
    """The time that was requested in addition."""


PREDICTED = "predicted"
TRANSFERRED = "transferred"
"""The source of a trial that earlier studies recommend."""


class SloFixed(msgspec.Struct, frozen=True, tag="slo_fixed"):
    """The latency bound of a server if the user named none; it stays fixed."""

    slo: Slo


class ValidationNoted(msgspec.Struct, frozen=True, tag="validation"):
    """LoadGen's result for a configuration's rate."""

    configuration: Configuration
    validation: Validation


class TrialNoted(msgspec.Struct, frozen=True, tag="trial"):
    """A configuration with its outcome, as told to Optuna."""

    number: int
    """Optuna's trial number."""
    configuration: Configuration
    source: str
    """Who proposed it: default, a baseline's name, transferred, surrogate, nearby, tpe, random."""
    ending: Ending
    launches: tuple[int, ...]
    score: float | None = None
    """Natural logarithm of the pacer-corrected rate (items per second) when it was told to Optuna.
    """


class EarlierNoted(msgspec.Struct, frozen=True, tag="earlier"):
    """An earlier study that guides the search; a resumed study uses the same."""

    name: str
    configurations: tuple[Configuration, ...]
    log_ratios: tuple[float, ...]
    """Of each, the natural logarithm of its rate over that of the default."""

    def __post_init__(self) -> None:
        """Check the consistency of what is read from a file; raises ValueError."""
        if len(self.configurations) != len(self.log_ratios):
            raise ValueError("there is not one ratio for each configuration")


class TransferNoted(msgspec.Struct, frozen=True, tag="transfer"):
    """The influence of earlier studies on a search, at its end."""

    studies: tuple[str, ...]
    n_configurations: int
    """Configurations that they had measured and that exist here."""
    rank_correlation: float | None
    """Spearman's correlation of the hints with the measurements; None if there were too few."""
    is_dropped: bool
    """Whether they misled, so that they were not listened to any more."""


class PhaseDone(msgspec.Struct, frozen=True, tag="phase_done"):
    """A phase will not be entered again, and why it ended."""

    phase: Phase
    reason: str


class FinalistNamed(msgspec.Struct, frozen=True, tag="finalist"):
    """The configuration that goes on in its class, after the race or after minimising."""

    phase: Phase
    winner_class: WinnerClass = msgspec.field(name="klass")
    configuration: Configuration
    removed: tuple[str, ...] = ()
    """Settings that minimising took away, because they did no good."""


class ArmsChosen(msgspec.Struct, frozen=True, tag="arms"):
    """The arms of the confirmation; fixed before its first launch."""

    arms: tuple[Configuration, ...]
    best_baseline: Configuration | None
    at_reference: bool
    """Whether arms at another batch are confirmed at the reference batch too."""
    looks: tuple[int, ...]
    level: float = 0.05
    """The two-sided error rate of the last look, over all finalists; in journals of earlier
    versions the whole of it."""


class RoundDone(msgspec.Struct, frozen=True, tag="round"):
    """A complete confirmation round: one fresh launch of each arm."""

    number: int
    launches: tuple[int, ...]


class EarlyRound(msgspec.Struct, frozen=True, tag="early_round"):
    """One fresh launch of the default and of the best so far, while the search goes on."""

    arm: Configuration
    """The best so far, when the first of these rounds was begun."""
    launches: tuple[int, ...]


class AblationRound(msgspec.Struct, frozen=True, tag="ablation_round"):
    """One fresh launch of a winner, and of the winner without each of its settings."""

    winner: Configuration
    launches: tuple[int, ...]


class NeighbourRound(msgspec.Struct, frozen=True, tag="neighbour_round"):
    """One launch each of the default and winners after the verdict, profiled or contended.

    The busy neighbour runs at the end of the launch.
    """

    launches: tuple[int, ...]


class Cell(msgspec.Struct, frozen=True):
    """A combination of the designed part: main settings, each set in half of the cells."""

    number: int
    """From 1; cell 0 is the default."""
    factors: tuple[str, ...]
    """The factors that are set in it and have an effect with the others."""
    configuration: Configuration
    idle: tuple[str, ...] = ()
    """Factors that are set in it and change nothing there."""
    same_as: int | None = None
    """An earlier cell with the same effect, which stands for it."""
    fault: str = ""
    """Why it cannot be run here."""


class DesignFixed(msgspec.Struct, frozen=True, tag="design"):
    """The designed part, fixed before anything is measured."""

    cells: tuple[Cell, ...]
    left_out: dict[str, str]
    """Factors that cannot be set here at all, with the reason."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Factors that interact, separable from everything else in the design."""


class DesignRound(msgspec.Struct, frozen=True, tag="design_round"):
    """One fresh launch of the default, and of some cells, side by side."""

    cells: tuple[int, ...]
    launches: tuple[int, ...]
    """The default's first."""


class WarningNoted(msgspec.Struct, frozen=True, tag="warning"):
    """Something a reader of the result must know."""

    text: str
    is_passing: bool = False
    """Whether it depends on the time that was left: if the study continues, it is repeated."""


class Waited(msgspec.Struct, frozen=True, tag="waited"):
    """The tool waited for a quiet moment, after a disturbed slice."""

    seconds: float
    reason: str
    """What disturbed it last."""
    is_quiet: bool
    """Whether the moment came before the wait was given up."""


class ReferenceNoted(msgspec.Struct, frozen=True, tag="reference"):
    """The reference that launches restore and are compared with was made, or made again."""

    sha256: str
    """Of the file: another one is damaged."""


class LossNoted(msgspec.Struct, frozen=True, tag="loss"):
    """A part of the study's files was lost, and the study goes on without it."""

    file: str
    text: str
    """The text for readers of the result; empty if another loss has it."""
    launches: tuple[int, ...] = ()
    """Launches that were cut short: no trial rests on them any more."""
    slices: tuple[int, ...] = ()
    """Ordinals of slices that are in no launch's file any more."""
    notes: int = 0
    """How many lines the journal lost."""


class StudyFinished(msgspec.Struct, frozen=True, tag="finished"):
    """The study is complete: the same command renders it again; an extension may follow."""

    reason: str


class StudyFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A session found that nothing can be measured; the next one tries again."""

    reason: str


Note: TypeAlias = (
    StudyOpened
    | SessionOpened
    | Extended
    | Added
    | TrialNoted
    | EarlierNoted
    | SloFixed
    | ValidationNoted
    | TransferNoted
    | PhaseDone
    | FinalistNamed
    | ArmsChosen
    | RoundDone
    | EarlyRound
    | AblationRound
    | NeighbourRound
    | DesignFixed
    | DesignRound
    | WarningNoted
    | Waited
    | ReferenceNoted
    | LossNoted
    | StudyFinished
    | StudyFailed
)


class SliceTaken(msgspec.Struct, frozen=True, tag="slice"):
    """A slice, as it stands in a launch's file."""

    slice: Slice
    n_neighbours: int = 0
    """Busy processes that the tool itself ran next to it."""


class LaunchEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The last line of a launch's file."""

    ending: Ending
    total_s: float
    slicing_s: float


class LaunchOpened(msgspec.Struct, frozen=True, tag="request"):
    """The first line of a launch's file."""

    request: LaunchRequest


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The worker answered."""

    start_up_s: float


LaunchLine: TypeAlias = (
    LaunchOpened
    | Started
    | Built
    | Compiled
    | Prepared
    | SliceTaken
    | Checked
    | Profiled
    | LaunchEnded
)
