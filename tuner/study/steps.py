"""The steps that phases ask for, each with its aim and cost.

A phase is a generator: it yields a step and receives the result, or NoTime if the planner
(study/planner.py) refuses the step. A phase reads no clock and keeps no time for others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.serving import Validation
from tuner.record.winner_class import WinnerClass
from tuner.study.forecast import Forecast

AnswerT = TypeVar("AnswerT")


class NoTime(msgspec.Struct, frozen=True):
    """The planner's answer to a step that it refuses."""

    reason: str = ""
    """The reason, if a phase reports it."""


class Aim(StrEnum):
    """The aim of a launch. The planner derives from it how much time must be left afterwards."""

    BASELINE = "baseline"
    """The default, or a recommendation."""
    SEARCH = "search"
    """A proposal of the search, or a leader that the search continues around."""
    RACE = "race"
    """The candidates of a class again."""
    CONTENTION = "contention"
    """A candidate next to a busy neighbour."""
    REMOVAL = "removal"
    """A finalist, or the finalist without some settings, in a share of the time."""
    PROOF = "proof"
    """The same, so that a costly setting may ship at all."""


class TimeShare:
    """A part of the time that the confirmation leaves, identified by the object.

    Its end is fixed when the first step of the share is asked for.
    """

    def __init__(self, n: int) -> None:
        """n: the number of parts left, this one included. Later ones get what it leaves."""
        self.n = n


class Step(msgspec.Struct, Generic[AnswerT], frozen=True):
    """A step that a phase may ask for. AnswerT: what it receives if the planner grants it."""


class Launch(Step[LaunchRecord], frozen=True):
    """One launch of a configuration."""

    configuration: Configuration
    purpose: Purpose
    aim: Aim
    may_prune: bool = False
    """Whether it is not measured to its end if it is hopeless."""
    beside_neighbour: bool = False
    """Whether its last slice is measured next to a busy neighbour too."""
    leaving: Sequence[Configuration] = ()
    """Configurations that are launched after it, and must fit as well."""
    share: TimeShare | None = None
    """Of Aim.REMOVAL."""
    confirmed: Sequence[Configuration] = ()
    """For Aim.PROOF: the arms of the confirmation that follows."""

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds."""
        return forecast.costs.launch_s(self.configuration)


class Launches(Step[list[LaunchRecord]], frozen=True):
    """One launch each of configurations that are drawn while there is time for more.

    They may be prepared in parallel. None is drawn before the planner handles the step. The answer
    holds the records in the order in which the configurations were drawn.
    """

    draw: Callable[[], Configuration | None]
    """Returns the next configuration; None if there is none."""
    purpose: Purpose
    aim: Aim
    may_prune: bool = False
    has_stalled: bool = False
    """Whether the search has found nothing better for some time."""


class Round(Step[list[LaunchRecord]], frozen=True):
    """One fresh launch of every arm, slices interleaved; the answer is in the order of the arms."""

    arms: list[Configuration]
    number: int
    """From 1, of the rounds of this purpose; where winners are explained, of one winner's."""
    purpose: Purpose
    n_before: int = 0
    """Complete rounds of this purpose before it, in this extent of the study."""
    is_proved: bool = False
    """Whether the recommendation is known already."""

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds, rather too many than too few."""
        return forecast.costs.round_s(self.arms)


class EarlyLook(Step[list[LaunchRecord]], frozen=True):
    """A round of the default and of the best so far, before the search has ended."""

    arms: list[Configuration]
    number: int
    """From 1; as many as a first look has are granted, or none."""

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds, rather too many than too few."""
        return forecast.costs.round_s(self.arms)


class ExtraRound(Step[list[LaunchRecord]], frozen=True):
    """A round after the verdict: each arm is profiled, and measured next to a busy neighbour."""

    arms: list[Configuration]
    number: int

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds, rather too many than too few."""
        extra_s = forecast.contended_s(self.arms) + forecast.profiling_s(self.arms)
        return forecast.costs.round_s(self.arms) + extra_s


class LoadgenRun(Step[Validation], frozen=True):
    """A launch to which LoadGen sends requests at a rate."""

    configuration: Configuration
    rate: float
    """Requests a second."""

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds."""
        return forecast.costs.unsliced_s(self.configuration) + forecast.loadgen_s(self.rate)


class Publish(Step[None], frozen=True):
    """The result as far as it is known is written to the study's folder. Launches nothing."""


class Fitting(msgspec.Struct, frozen=True):
    """The arms that the confirmation has time to compare."""

    arms: tuple[Configuration, ...]
    at_reference: bool
    """Whether the winners are launched at the reference batch as well."""
    is_out_of_reach: bool
    """Whether not even a verdict on one arm fits."""


class ArmsWanted(Step[Fitting], frozen=True):
    """The arms that the confirmation would like to compare with the default. Launches nothing."""

    finalists: Mapping[WinnerClass, Configuration]
    leaner: Mapping[Configuration, Sequence[Configuration]]
    """Each finalist without the costly settings that the rounds have to prove."""
    baselines: Sequence[Configuration]
    """The most important first."""
    main: Sequence[Configuration | None]
    """Those that may use the time of later looks."""


class Outlook(Step[None], frozen=True):
    """The outlook of a new study, once the default has shown what a launch costs. Launches nothing.

    The planner reports the gain that the budget can decide on, and warns if the budget is too
    short.
    """

    n_baselines: int


Steps: TypeAlias = Generator[Step[Any], Any, AnswerT]
"""The type of phases, and of their parts (`yield from`). AnswerT: what they return."""


def ask(step: Step[AnswerT]) -> Steps[AnswerT | NoTime]:
    """Yield one step; return what came of it."""
    answer: AnswerT | NoTime = yield step
    return answer
