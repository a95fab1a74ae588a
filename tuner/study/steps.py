"""What a phase asks for: steps, each with its aim and what it costs.

A phase is a generator: it yields a step and receives what came of it, or NoTime where the planner
(study/planner.py) refuses the step. It holds no clock and keeps no time for others.
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
    """Why, where a phase tells it."""


class Aim(StrEnum):
    """What a launch is for. By this the planner knows what must be left after it."""

    BASELINE = "baseline"
    """The default, or a recommendation."""
    SEARCH = "search"
    """A configuration that nobody recommends, or a leader that the search goes on around."""
    RACE = "race"
    """The candidates of a class again."""
    CONTENTION = "contention"
    """A candidate beside a busy neighbour."""
    REMOVAL = "removal"
    """A finalist and what is left of it without some settings, in a share of the time."""
    PROOF = "proof"
    """The same, so that a costly setting may ship at all."""


class TimeShare:
    """A part of the time that the confirmation leaves, by its identity.

    Its end is fixed when the first step of the share is asked for.
    """

    def __init__(self, n: int) -> None:
        """n: parts of which this is the first; those after it get what it leaves."""
        self.n = n


class Step(msgspec.Struct, Generic[AnswerT], frozen=True):
    """What a phase may ask for. AnswerT: what it receives where the planner grants it."""


class Launch(Step[LaunchRecord], frozen=True):
    """One launch of a configuration."""

    configuration: Configuration
    purpose: Purpose
    aim: Aim
    may_prune: bool = False
    """Whether it is not measured to its end if it is hopeless."""
    beside_neighbour: bool = False
    """Whether it is measured beside a busy neighbour too, at its end."""
    leaving: Sequence[Configuration] = ()
    """What is to be launched after it, and must fit as well."""
    share: TimeShare | None = None
    """Of Aim.REMOVAL."""
    confirmed: Sequence[Configuration] = ()
    """Of Aim.PROOF: what the confirmation compares afterwards."""

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds."""
        return forecast.costs.launch_s(self.configuration)


class Launches(Step[list[LaunchRecord]], frozen=True):
    """One launch each of configurations that are drawn while there is time for more.

    They are prepared side by side where that may be, and none is drawn before the planner has
    turned to the step. The answer holds the records of those that were
    launched, in the order in which they were drawn.
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
    """Whether what ships is known already."""

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
    """A round after the verdict: each arm is profiled, and measured beside a busy neighbour too."""

    arms: list[Configuration]
    number: int

    def cost_s(self, forecast: Forecast) -> float:
        """Estimate its seconds, rather too many than too few."""
        extra_s = forecast.beside_s(self.arms) + forecast.profiling_s(self.arms)
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
    """What the confirmation has time to compare."""

    arms: tuple[Configuration, ...]
    at_reference: bool
    """Whether the winners are launched at the reference batch as well."""
    is_out_of_reach: bool
    """Whether not even a verdict on one arm fits."""


class ArmsWanted(Step[Fitting], frozen=True):
    """What the confirmation would compare with the default, had it the time. Launches nothing."""

    finalists: Mapping[WinnerClass, Configuration]
    leaner: Mapping[Configuration, Sequence[Configuration]]
    """What each finalist is without a costly setting that the rounds have to show to be needed."""
    baselines: Sequence[Configuration]
    """The most important first."""
    main: Sequence[Configuration | None]
    """Those that may take the time of later looks."""


class Outlook(Step[None], frozen=True):
    """What is ahead of a new study when the default has told what a launch costs. Launches nothing.

    The planner says what gain the budget can decide on, and warns if it holds less than is wanted.
    """

    n_baselines: int


Steps: TypeAlias = Generator[Step[Any], Any, AnswerT]
"""What a phase is, and what it calls with `yield from`. AnswerT: what that returns."""


def ask(step: Step[AnswerT]) -> Steps[AnswerT | NoTime]:
    """Yield one step; return what came of it."""
    answer: AnswerT | NoTime = yield step
    return answer
