"""Who tells where its time goes, and when: the default and the finalists, where time allows.

At the end of a confirmation round, in launches that are there anyway; else, where an early decision
left time, in launches of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.record.configuration import Configuration
from tuner.record.events import TimeLeft
from tuner.study.compared import confirmation_arms
from tuner.study.leaders import is_default
from tuner.study.study import MIN_ROUNDS, Study

_SLICES, _OWN_WORK_S = 3.0, 2.0
"""What a profile takes: some slices, because a profiler slows what it watches, and its own work."""
_LAUNCHES = 1.5
"""The same in a launch of its own, in launches."""


def to_profile(study: Study, arms: list[Configuration], n_rounds: int) -> list[Configuration]:
    """Return the arms that the next round should profile: none, where that costs the first look.

    The default and every finalist; where that takes too long, what ships by default beside it.
    """
    finalists = study.contenders.finalists()
    wanted = [arm for arm in arms if is_default(arm) or arm in finalists.values()]
    fewest = [arm for arm in wanted if is_default(arm) or arm == finalists[study.widest]]
    looking_s = max(0, MIN_ROUNDS - n_rounds) * study.costs.round_s(arms)
    for some in (wanted, fewest):
        if study.budget.left_s() >= looking_s + _profiles_s(study, some):
            return list(filter(study.bench.may_profile, some))
    return []


def seconds_to_profile(study: Study) -> float:
    """Estimate the seconds of profiling the default and what ships by default, in a round."""
    arms = confirmation_arms(study, [study.contenders.finalists()[study.widest]])
    return _profiles_s(study, arms)


def _profiles_s(study: Study, arms: list[Configuration]) -> float:
    may_be = filter(study.bench.may_profile, arms)
    return sum(_SLICES * study.costs.slice_s(arm) + _OWN_WORK_S for arm in may_be)


def profile_alone(study: Study, configurations: Iterable[Configuration]) -> None:
    """Profile what no round did, in launches of their own, while time is left."""
    for configuration in filter(study.bench.may_profile, configurations):
        if study.budget.left_s() > _LAUNCHES * study.costs.launch_s(configuration):
            study.bench.profile(configuration)
            study.ledger.refresh()
            study.listen(TimeLeft(study.budget.left_s()))
