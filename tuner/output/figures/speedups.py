"""The default, the baselines and the winners, each measurement once, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
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
from tuner.record.configuration import Configuration, Value
from tuner.record.interval import Interval
from tuner.record.result import Result, Verdict
from tuner.space.knobs_of.launch import BATCH

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
    y = {"field": "name", "type": "nominal", "sort": [row["name"] for row in rows], "title": None,
         "axis": {"labelExpr": r"split(datum.label, '\n')"}}  # fmt: skip
    n_lines = max(len(row["name"].splitlines()) for row in rows)
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
                "description": {"field": "text"},
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
            "height": {"step": 9 + 13 * n_lines},
            "layer": layers,
        },
    )


def _rows(result: Result) -> Rows:
    """Return the default, what is only recommended, and the winners, each measurement once."""
    found: dict[tuple[object, ...], _Measured] = {}
    for name, winner in result.winners.items():
        if winner.configuration:
            own = (class_name(winner, name), _KINDS[winner.verdict])
            _add(found, winner.configuration, *own, winner.speedup, winner.search_ratio)
    for b in result.baselines:
        if b.applicable and not b.same_as:
            _add(found, b.configuration, b.name, _BASELINE, b.speedup, b.search_ratio)
    default = _Measured(["default"], _DEFAULT, Interval(1.0, 1.0, 1.0, 0.95), None)
    rows = [row for each in (default, *found.values()) if (row := _row(each)) is not None]
    first, *others = rows
    baselines = sorted(
        (row for row in others if row["kind"] == _BASELINE), key=lambda row: row["point"]
    )
    return [first, *baselines, *(row for row in others if row["kind"] != _BASELINE)]


@dataclass
class _Measured:
    """What a row shows."""

    names: list[str]
    kind: str
    confirmed: Interval | None
    hint: float | None


def _add(
    found: dict[tuple[object, ...], _Measured],
    configuration: dict[str, Value],
    name: str,
    kind: str,
    confirmed: Interval | None,
    hint: float | None,
) -> None:
    """Add a measurement, or its name to the same one under another name."""
    key = (Configuration.of(configuration).without(BATCH), confirmed or hint)
    found.setdefault(key, _Measured([], kind, confirmed, hint)).names.append(name)


def _row(each: _Measured) -> dict[str, Any] | None:
    """Return the data of a row; None without a measurement."""
    if each.confirmed is None and each.hint is None:
        return None
    name = ", ".join(each.names)
    row: dict[str, Any] = {"name": "\n".join(each.names), "kind": each.kind}
    if each.confirmed is None:
        assert each.hint is not None
        text = f"{name}: {each.hint:.2f}x in the search"
        return {**row, "from": "search", "point": each.hint, "text": text}
    seen = seen_interval(each.confirmed)
    found = {"from": "rounds", "point": each.confirmed.point, **seen}
    return {**row, **found, "text": f"{name}: {seen['text']}"}
