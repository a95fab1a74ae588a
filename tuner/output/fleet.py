"""The index over a fleet: index.json for programs, index.md and index.html for people.

Of every study it says what its row says, without reading its result: there may be thousands.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tuner.output.index import unfinished
from tuner.output.phrases import settings, verdict_line
from tuner.output.report import render_index
from tuner.output.values import ratio
from tuner.record.files import write_whole
from tuner.record.index import CONFIRMED, REFUTED, Index, Row, write_index_file


class Spread(msgspec.Struct, frozen=True):
    """What a winner gains on the hosts on which it was measured."""

    n_hosts: int
    lowest: float
    highest: float
    worst: str
    """The host with the lowest."""


def write_fleet(folder: Path, index: Index) -> None:
    """Write the index in its three forms."""
    write_index_file(folder, index)
    rows = sorted(index.rows, key=lambda row: (row.model, row.framework, row.kind))
    for name in ("md", "html"):
        text = render_index(
            f"fleet.{name}.j2",
            index=index,
            rows=rows,
            kinds={kind.name: kind for kind in index.kinds},
            told=told,
            elsewhere=elsewhere,
            spread_of=spread_of,
            settings=settings,
        )
        write_whole(folder / f"index.{name}", text)


def told(row: Row) -> str:
    """Say what a study has come to, and whether it is to be shipped."""
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


def elsewhere(row: Row) -> str:
    """Say what other hosts of the kind say of a winner."""
    if row.verdict != "faster":
        return ""
    if not row.elsewhere:
        return "not asked yet" if row.n_elsewhere else "no other was asked"
    return "; ".join(
        f"{each.host}{' (it had part in the study)' if each.host in row.hosts else ''}: "
        f"{each.verdict}"
        + (f", {ratio(each.speedup)}" if each.speedup is not None else "")
        + ("" if each.verdict == CONFIRMED else f" ({each.reason})")
        for each in row.elsewhere
    )


def spread_of(row: Row) -> Spread | None:
    """Return a winner's gain over all hosts that measured it; None of a single one."""
    gains = {row.host: row.speedup} | {each.host: each.speedup for each in row.elsewhere}
    known = {host: speedup.point for host, speedup in gains.items() if speedup is not None}
    if len(known) < 2:
        return None
    worst = min(known, key=known.__getitem__)
    return Spread(len(known), known[worst], max(known.values()), worst)
