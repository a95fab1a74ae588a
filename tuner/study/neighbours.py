"""How configurations fare beside a busy neighbour: most deployments share their hosts.

In the first rounds of the confirmation every arm takes one more slice beside a synthetic busy
neighbour, in the launch in which it was measured undisturbed just before. Claims do not use these.
"""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
from tuner.record.launch import Purpose
from tuner.space.catalogue import is_default
from tuner.study.phase_costs import NEIGHBOUR_ROUNDS
from tuner.study.schedule import Schedule
from tuner.study.study import Study


def wants_neighbour(study: Study, arms: list[Configuration], n_rounds: int) -> bool:
    """Tell whether the next round should end beside a neighbour: a few, within their share.

    And none that the first look would not fit after: unless that is the study's goal.
    """
    if n_rounds >= NEIGHBOUR_ROUNDS:
        return False
    schedule = Schedule(study)
    if not schedule.has_time_beside(arms, n_rounds):
        return False
    records = study.store.launches.values()
    spent_s = 2 * sum(s.seconds for record in records for s in record.beside)  # and the discarded
    return spent_s + schedule.phases.beside_s(arms) <= schedule.phases.neighbours_s()


def probe_finalists(study: Study) -> None:
    """Make sure that no class's candidate collapses, where none may, while there is time.

    Each candidate is launched once more and measured beside the neighbour too; one that collapses
    gives way to the next best, which is measured in its turn.
    """
    while study.preference.bears_neighbours and (wanted := _unprobed(study)) is not None:
        if not Schedule(study).has_time_before_confirming(wanted):
            study.notes.leave_undone("to measure every finalist beside a busy neighbour")
            return
        record = study.measure(wanted, Purpose.RACE, beside_neighbour=True)
        if not record.beside:
            study.notes.warn(f"{wanted.label()} could not be measured beside a busy neighbour")
            return


def is_fragile(study: Study, shorter: Configuration) -> bool:
    """Tell whether a reduced finalist may collapse, where none may: it is measured to know.

    It may miss beside a busy neighbour what was removed as useless.
    """
    if not study.preference.bears_neighbours:
        return False
    if study.ledger.eligible.kept(shorter) is None:
        if not Schedule(study).has_time_before_confirming(shorter):
            return True
        study.measure(shorter, Purpose.ABLATION, beside_neighbour=True)
    return study.ledger.eligible.collapses(shorter)


def _unprobed(study: Study) -> Configuration | None:
    """Return the default, or a class's candidate, if it was not seen beside the neighbour yet."""
    default = study.ledger.leaders.default_at_best()
    if default is not None and study.ledger.eligible.default_kept() is None:
        return default[0]
    candidates = [study.contenders.contender(klass) for klass in WinnerClass]
    unseen = [c for c in candidates if not is_default(c) and study.ledger.eligible.kept(c) is None]
    return unseen[0] if unseen else None
