"""How configurations perform next to a busy neighbour: most deployments share their hosts.

After the verdict, the default and the winners take one more slice next to a synthetic busy
neighbour, in a launch that was measured undisturbed just before (study/explain.py). If winners must
not degrade there, the candidates are measured before the confirmation, and all arms in its first
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
    """Find candidates that do not degrade under contention, if the goal asks for it.

    Each candidate is launched once more and measured next to the neighbour. One that degrades is
    replaced by the next best, which is measured in turn.
    """
    while study.preference.bears_neighbours and (wanted := _unprobed(study)) is not None:
        record = yield from _contend(wanted, Purpose.RACE)
        if isinstance(record, NoTime):
            study.notes.leave_undone("to measure every finalist next to a busy neighbour")
            return
        if not record.contended:
            study.notes.warn(f"{wanted.label()} could not be measured next to a busy neighbour")
            return


def is_fragile(study: Study, shorter: Configuration) -> Steps[bool]:
    """Measure whether a reduced finalist degrades under contention, if the goal forbids that.

    A setting that was removed as useless may matter there.
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
    """Return the default or a candidate that was not measured next to the neighbour yet, if any."""
    default = study.evaluation.default_at_best()
    if default is not None and study.evaluation.default_retained is None:
        return default[0]
    candidates = [study.candidates.candidate(winner_class) for winner_class in WinnerClass]
    unseen = [
        c for c in candidates if not is_default(c) and study.evaluation.row(c).retained is None
    ]
    return unseen[0] if unseen else None
