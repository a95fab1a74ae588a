"""The designed part: fixed combinations, each with the default, in rounds before the baselines.

The search does not use them, because they serve rules for other models. These must not depend on
what a search preferred.
"""

from __future__ import annotations

from tuner.record.configuration import Configuration
from tuner.record.journal import DesignFixed, DesignRound, Phase
from tuner.record.launch import Purpose
from tuner.record.store import Store
from tuner.space.design import most_telling_first
from tuner.study.steps import NoTime, Round, Steps, ask
from tuner.study.study import Study

CELLS_PER_ROUND = 3
"""15 cells and the default in 20 launches."""


def whole_rounds(store: Store) -> list[DesignRound]:
    """Return the rounds of which every launch is there to its end."""
    return [
        done
        for done in store.all(DesignRound)
        if all(store.launches[launch].ending is not None for launch in done.launches)
    ]


def measure_design(study: Study, design: DesignFixed) -> Steps[None]:
    """Measure the cells that an earlier session has not; where time is short, the most telling."""
    if not study.store.all(DesignFixed):
        study.store.add(design)
    done = {number for each in whole_rounds(study.store) for number in each.cells}
    distinct = [cell for cell in design.cells if not cell.fault and cell.same_as is None]
    waiting = most_telling_first(
        [cell for cell in distinct if cell.number not in done],
        design.pairs,
        [cell for cell in distinct if cell.number in done],
    )
    if not waiting:
        return
    study.notes.enter(Phase.DESIGN, f"{len(waiting)} cells, {CELLS_PER_ROUND} beside the default")
    while waiting:
        group = waiting[:CELLS_PER_ROUND]
        arms = [Configuration(), *(cell.configuration for cell in group)]
        number = len(study.store.all(DesignRound)) + 1
        records = yield from ask(Round(arms, number, Purpose.DESIGN))
        if isinstance(records, NoTime):
            study.notes.leave_undone(f"to measure {len(waiting)} cells of the designed part")
            break
        launches = tuple(record.request.id for record in records)
        study.store.add(DesignRound(tuple(cell.number for cell in group), launches))
        waiting = waiting[CELLS_PER_ROUND:]
    study.notes.done(Phase.DESIGN, "no time for all cells" if waiting else "all cells measured")
