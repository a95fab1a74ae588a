"""The default, the baselines and the three winners, each with its interval."""

from __future__ import annotations

from typing import Any

from tuner.output.figures.chart import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    Chart,
    Rows,
    about_cut,
    colours,
    cut_ends,
    ratio_axis,
    seen_interval,
    vertical_at,
)
from tuner.output.headline import class_name
from tuner.record.interval import Interval
from tuner.record.result import Result, Verdict

_DEFAULT, _BASELINE, _FASTER = "default", "baseline", "faster"
_KINDS: dict[Verdict, str] = {
    "faster": _FASTER,
    "ambiguous": "not decided",
    "keep_default": "not faster",
}
_COLOURS = {
    _DEFAULT: GREY,
    _BASELINE: BLUE,
    _FASTER: GREEN,
    "not decided": ORANGE,
    "not faster": PURPLE,
}


def speedups(result: Result) -> Chart:
    """Draw confirmed speedups as points with intervals, those of the search as rings."""
    rows = _rows(result)
    n_hints = sum(row["from"] == "search" for row in rows)
    x = ratio_axis("point", rows)
    y = {"field": "name", "type": "nominal", "sort": [row["name"] for row in rows], "title": None}
    colour = colours(
        "kind", {k: c for k, c in _COLOURS.items() if any(r["kind"] == k for r in rows)}
    )
    layers = [
        vertical_at(1.0),
        {
            "transform": [{"filter": "datum.from == 'rounds'"}],
            "mark": {"type": "rule", "strokeWidth": 2.5, "aria": False},
            "encoding": {
                "x": {**x, "field": "low"},
                "x2": {"field": "high"},
                "y": y,
                "color": colour,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "fillOpacity": {
                    "condition": {"test": "datum.from == 'search'", "value": 0},
                    "value": 1,
                },
                "stroke": colour,
                "description": {"field": "told"},
            },
        },
        *cut_ends(x, y),
    ]
    is_confirmed = any(row["kind"] == _FASTER for row in rows)
    marked = " Green is confirmed to be faster." if is_confirmed else ""
    hints = " Rings were seen in the search alone: hints, no claims." if n_hints else ""
    is_any = n_hints < len(rows) - 1  # the default's own apart
    how = ", with 95 % intervals of fresh, interleaved launches" if is_any else ""
    return Chart(
        "Speedups",
        f"Each at its best batch against the default at its best{how}; to the right is "
        f"faster.{marked}{hints}{about_cut(rows)}",
        {
            "data": {"values": rows},
            "height": {"step": 22},
            "layer": layers,
        },
    )


def _rows(result: Result) -> Rows:
    rows = [_row("default", _DEFAULT, Interval(1.0, 1.0, 1.0, 0.95), None)]
    shown = [b for b in result.baselines if b.applicable and not b.same_as]
    told = [_row(b.name, _BASELINE, b.speedup, b.search_ratio) for b in shown]
    rows += sorted((row for row in told if row), key=lambda row: row["point"] if row else 0.0)
    for name, winner in result.winners.items():
        if winner.configuration:
            kind, of_class = _KINDS[winner.verdict], class_name(winner, name)
            rows.append(_row(of_class, kind, winner.speedup, winner.search_ratio))
    return [row for row in rows if row is not None]


def _row(
    name: str, kind: str, confirmed: Interval | None, hint: float | None
) -> dict[str, Any] | None:
    if confirmed is None and hint is None:
        return None
    row: dict[str, Any] = {"name": name, "kind": kind}
    if confirmed is None:
        assert hint is not None
        return {
            **row,
            "from": "search",
            "point": hint,
            "told": f"{name}: {hint:.2f}x in the search",
        }
    seen = seen_interval(confirmed)
    found = {"from": "rounds", "point": confirmed.point, **seen}
    return {**row, **found, "told": f"{name}: {seen['told']}"}
