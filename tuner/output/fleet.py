"""The index over a fleet: index.json for programs, index.md and index.html for people.

Of every study it says what its row says, without reading its result: there may be thousands.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuner.output.index import unfinished
from tuner.output.phrases import elsewhere, settings, verdict_line
from tuner.output.report import render_index
from tuner.output.values import ratio
from tuner.record.files import write_whole
from tuner.record.index import CONFIRMED, PAGES, REFUTED, Index, Row, write_index_file


class Spread(msgspec.Struct, frozen=True):
    """A winner's gain on the hosts on which it was measured."""

    n_hosts: int
    lowest: float
    highest: float
    worst: str
    """The host with the lowest."""


def write_fleet(folder: Path, index: Index) -> None:
    """Write the index in its three forms."""
    write_index_file(folder, index)
    rows = sorted(index.rows, key=lambda row: (row.model, row.framework, row.kind))
    for name in PAGES:
        text = render_index(
            f"{name.replace('index', 'fleet')}.j2",
            index=index,
            rows=rows,
            kinds={kind.name: kind for kind in index.kinds},
            state_in_words=state_in_words,
            elsewhere=elsewhere,
            spread_of=spread_of,
            settings=settings,
        )
        write_whole(folder / name, text)


def state_in_words(row: Row) -> str:
    """Write the state of a study, and whether its winner is to be shipped."""
    if row.state != "done":
        return unfinished(row)
    if not row.verdict:
        return "-"
    words = verdict_line(row.verdict)
    if row.verdict != "faster":
        return words
    said = f"{words}: {ratio(row.speedup)}"
    if row.is_recommended():
        return said
    refuted = [each.host for each in row.elsewhere if each.verdict == REFUTED]
    if refuted:
        return f"{said}; refuted on {', '.join(refuted)}: not shipped"
    n_confirmed = sum(each.verdict == CONFIRMED for each in row.elsewhere)
    return f"{said}; confirmed on {n_confirmed} of {row.n_elsewhere} others: not shipped yet"


def spread_of(row: Row) -> Spread | None:
    """Return a winner's gain over all hosts that measured it; None of a single one."""
    gains = {row.host: row.speedup} | {each.host: each.speedup for each in row.elsewhere}
    known = {host: speedup.point for host, speedup in gains.items() if speedup is not None}
    if len(known) < 2:
        return None
    worst = min(known, key=known.__getitem__)
    return Spread(len(known), known[worst], max(known.values()), worst)
