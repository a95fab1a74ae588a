"""The index over several models: index.json for programs, index.md and index.html for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.errors import UsageError
from tuner.output.phrases import settings
from tuner.output.report import render_index
from tuner.output.values import ratio
from tuner.record.files import read_result, write_whole
from tuner.record.index import PAGES, Index, Row, result_of, write_index_file
from tuner.record.result import Result
from tuner.space.as_run import AS_RUN


class Line(msgspec.Struct, frozen=True):
    """A row of the index with what its study found."""

    row: Row
    result: Result | None


def lines_of(folder: Path, rows: Sequence[Row]) -> list[Line]:
    """Return rows of a folder's index, each with its result if it has one."""
    found = []
    for row in rows:
        path = result_of(folder, row)
        try:
            found.append(Line(row, None if path is None else read_result(path)))
        except UsageError as error:  # one that cannot be read stops no other
            found.append(
                Line(msgspec.structs.replace(row, state="failed", reason=str(error)), None)
            )
    return found


def write_index(folder: Path, index: Index) -> None:
    """Write the index in its three forms."""
    write_index_file(folder, index)
    lines = lines_of(folder, index.rows)
    hosts = list(dict.fromkeys(row.host for row in index.rows if row.host))
    for name in PAGES:
        text = render_index(
            f"{name}.j2",
            index=index,
            lines=lines,
            hosts=hosts,
            best_guide=best_guide,
            unfinished=unfinished,
            recommended=recommended,
        )
        write_whole(folder / name, text)


def unfinished(row: Row) -> str:
    """Say why a row has no result."""
    why = f" ({row.reason})" if row.reason else ""
    words = {
        "pending": f"not finished{why}: the same command resumes it",
        "done": "its folder is gone",
    }
    return words.get(row.state, row.reason)


def recommended(result: Result) -> str:
    """Write the settings of the recommendation; the verdict says whether there is one."""
    return settings(result.winners[result.recommended_class].configuration)


def best_guide(result: Result) -> str:
    """Write the gain of the best vendor recommendation; "-" if none was measured.

    A confirmed one with its interval; one that only the search knows is marked.
    """
    guides = [b for b in result.baselines if b.configuration and b.name != AS_RUN]
    confirmed = [b for b in guides if b.speedup is not None]
    if confirmed:
        best = max(confirmed, key=lambda b: b.speedup.point if b.speedup else 0.0)
        return f"{ratio(best.speedup)}, {best.name}"
    searched = [b for b in guides if b.search_ratio]
    if not searched:
        return "-"
    best = max(searched, key=lambda b: b.search_ratio or 0.0)
    return f"{best.search_ratio:.2f}x in the search, {best.name}"
