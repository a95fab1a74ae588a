"""How configurations fare beside a busy neighbour: most deployments share their hosts.

After the verdict, the default and the winners take one more slice beside a synthetic busy
neighbour, in a launch in which they were measured undisturbed just before (study/explain.py). Where
winners must bear one, the candidates do so before the confirmation, and all arms in its first
rounds. Claims do not use these slices.
"""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import is_default
from tuner.study.steps import Aim, Launch, NoTime, Steps, ask
from tuner.study.study import Study


def probe_finalists(study: Study) -> Steps[None]:
    """Make sure that no class's candidate collapses, where none may, while there is time.

    Each candidate is launched once more and measured beside the neighbour too; one that collapses
    gives way to the next best, which is measured in its turn.
    """
    while study.preference.bears_neighbours and (wanted := _unprobed(study)) is not None:
        record = yield from _contend(wanted, Purpose.RACE)
        if isinstance(record, NoTime):
            study.notes.leave_undone("to measure every finalist beside a busy neighbour")
            return
        if not record.beside:
            study.notes.warn(f"{wanted.label()} could not be measured beside a busy neighbour")
            return


def is_fragile(study: Study, shorter: Configuration) -> Steps[bool]:
    """Tell whether a reduced finalist may collapse, where none may: it is measured to know.

    It may miss beside a busy neighbour what was removed as useless.
    """
    if not study.preference.bears_neighbours:
        return False
    is_unseen = study.evaluation.row(shorter).retained is None
    if is_unseen and isinstance((yield from _contend(shorter, Purpose.ABLATION)), NoTime):
        return True
    return study.evaluation.row(shorter).degrades


def _contend(configuration: Configuration, purpose: Purpose) -> Steps[LaunchRecord | NoTime]:
    return ask(Launch(configuration, purpose, Aim.CONTENTION, beside_neighbour=True))


def _unprobed(study: Study) -> Configuration | None:
    """Return the default, or a class's candidate, if it was not seen beside the neighbour yet."""
    default = study.evaluation.default_at_best()
    if default is not None and study.evaluation.default_retained is None:
        return default[0]
    candidates = [study.candidates.candidate(winner_class) for winner_class in WinnerClass]
    unseen = [
        c for c in candidates if not is_default(c) and study.evaluation.row(c).retained is None
    ]
    return unseen[0] if unseen else None
