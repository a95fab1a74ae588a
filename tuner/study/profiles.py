"""Who tells where its time goes, and when: the default and the finalists, where time allows.

At the end of a confirmation round, in launches that are there anyway; else, where an early decision
left time, in launches of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.record.configuration import Configuration
from tuner.record.events import TimeLeft
from tuner.space.catalogue import is_default
from tuner.study.schedule import Schedule
from tuner.study.study import Study


def to_profile(study: Study, arms: list[Configuration], n_rounds: int) -> list[Configuration]:
    """Return the arms that the next round should profile: none, where that costs the first look.

    The default and every finalist; where that takes too long, what ships by default beside it.
    """
    finalists = study.contenders.finalists()
    wanted = [arm for arm in arms if is_default(arm) or arm in finalists.values()]
    fewest = [arm for arm in wanted if is_default(arm) or arm == finalists[study.widest]]
    schedule = Schedule(study)
    for some in (wanted, fewest):
        if schedule.has_time_to_profile(arms, n_rounds, some):
            return list(filter(study.bench.may_profile, some))
    return []


def profile_alone(study: Study, configurations: Iterable[Configuration]) -> None:
    """Profile what no round did, in launches of their own, while time is left."""
    for configuration in filter(study.bench.may_profile, configurations):
        if Schedule(study).has_time_to_profile_alone(configuration):
            study.bench.profile(configuration)
            study.ledger.refresh()
            study.listen(TimeLeft(study.budget.left_s()))
