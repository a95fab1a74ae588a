"""The result of the designed part: each cell over the default of its own round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from tuner.measurement.passes import passes_of
from tuner.record.designed import DesignedCell, DesignedSection
from tuner.record.journal import Cell, DesignFixed
from tuner.record.launch import LaunchRecord
from tuner.record.objective import Objective
from tuner.record.outcome import Outcome
from tuner.record.store import Store
from tuner.study.designed import whole_rounds


def designed_section(store: Store, objective: Objective) -> DesignedSection | None:
    """Return every cell with its outcome; None if there was no designed part."""
    fixed = store.all(DesignFixed)
    if not fixed:
        return None
    measured: dict[int, _Launched] = {}
    for number, done in enumerate(whole_rounds(store), 1):
        default, *others = [store.launches[launch] for launch in done.launches]
        measured |= {
            cell: _Launched(number, default, own)
            for cell, own in zip(done.cells, others, strict=True)
        }
    design = fixed[0]
    cells = [_cell(cell, measured, objective) for cell in design.cells]
    of_default = {each.default.request.id: each.default for each in measured.values()}
    calls_s = [s.seconds / s.calls for r in of_default.values() for s in r.slices]
    return DesignedSection(
        cells,
        design.left_out,
        list(design.pairs),
        statistics.median(calls_s) if calls_s else None,
    )


class _Launched(NamedTuple):
    round: int
    default: LaunchRecord
    own: LaunchRecord


def _cell(cell: Cell, measured: Mapping[int, _Launched], objective: Objective) -> DesignedCell:
    outcome, reason, ratio, n_passes = None, cell.fault, None, 0
    twin = f"as cell {cell.same_as}" if cell.same_as else ""
    if cell.same_as == 0:
        reason, ratio = "the default", 0.0
    launched = measured.get(cell.same_as or cell.number)
    if launched is not None:
        ending = launched.own.ending
        assert ending is not None
        outcome, reason = ending.outcome, ending.reason or twin
        of_default = launched.default.ending
        assert of_default is not None
        passes = passes_of([launched.default, launched.own], objective)
        if of_default.outcome is not Outcome.MEASURED:
            reason = f"the default failed beside it: {of_default.reason}"
        elif outcome is Outcome.MEASURED and passes.n_taken:
            worth_of_default, worth = passes.values()
            ratio, n_passes = worth - worth_of_default, len(passes.worths)
    elif not reason:
        reason = "no time"
    return DesignedCell(
        number=cell.number,
        factors=list(cell.factors),
        configuration=cell.configuration.as_dict(),
        idle=list(cell.idle),
        same_as=cell.same_as,
        outcome=None if outcome is None else str(outcome),
        reason=reason,
        log_ratio=ratio,
        n_passes=n_passes,
        round=launched.round if launched else None,
    )
