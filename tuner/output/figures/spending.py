"""Where the time of a study went: one bar, as long as the wall clock."""

from __future__ import annotations

from tuner.output.figures.chart import (
    BLUE,
    GREEN,
    GREY,
    OLIVE,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    Chart,
    Rows,
    colours,
)
from tuner.output.spending import KINDS, MEANING, by_kind, in_seconds, used, went
from tuner.record.result import Result

_COLOURS = dict(zip(KINDS, (GREEN, PURPLE, ORANGE, BLUE, OLIVE, PINK, RED, GREY), strict=True))
"""Neighbouring colours differ for every kind of colour blindness; others may not. The number in a
part of the bar identifies it."""
_LEAST_NUMBERED = 0.03
"""Share of the bar in which a number has room, 340 pixels wide."""


def spending(result: Result) -> Chart | None:
    """Draw the seconds of each kind after each other; None in results of earlier versions."""
    kinds = by_kind(result)
    whole_s = sum(kinds.values())
    if not whole_s:
        return None
    rows: Rows = []
    at_s = 0.0
    for number, (kind, seconds) in enumerate(kinds.items(), 1):
        rows.append(
            {
                "kind": f"{number} {kind} {in_seconds(seconds)} s",
                "from": at_s,
                "to": at_s + seconds,
                "middle": at_s + seconds / 2,
                "number": str(number) if seconds >= _LEAST_NUMBERED * whole_s else "",
                "text": f"{kind}: {in_seconds(seconds)} s, {seconds / whole_s:.0%}",
            }
        )
        at_s += seconds
    by_name = {row["kind"]: _COLOURS[kind] for row, kind in zip(rows, kinds, strict=True)}
    x = {"type": "quantitative", "title": "seconds", "scale": {"nice": False, "domain": [0, at_s]},
         "axis": {"tickCount": 5, "grid": False}}  # fmt: skip
    spec = {
        "data": {"values": rows},
        "height": 44,
        "layer": [
            {
                "mark": {"type": "bar", "size": 40, "x2Offset": -1},
                "encoding": {
                    "x": {**x, "field": "from"},
                    "x2": {"field": "to"},
                    "color": {**colours("kind", by_name), "legend": {"columns": 2}},
                    "description": {"field": "text"},
                },
            },
            {
                "mark": {"type": "text", "color": "white", "fontWeight": "bold", "aria": False},
                "encoding": {"x": {**x, "field": "middle"}, "text": {"field": "number"}},
            },
        ],
    }
    return Chart(went(result), f"{used(result)}. {MEANING}", spec)
