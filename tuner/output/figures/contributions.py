"""The effect of each setting of the recommended winner."""

from __future__ import annotations

from typing import Any

from tuner.output.figures.chart import (
    BLUE,
    Chart,
    Rows,
    about_cut,
    cut_ends,
    ratio_axis,
    seen_interval,
    vertical_at,
)
from tuner.record.result import Contribution, Result


def contributions(result: Result) -> Chart | None:
    """Draw the winner against itself without each setting; None if nothing was measured."""
    found = result.contributions or []
    if not found:
        return None
    rows: Rows = [_row(c) for c in found]
    x = ratio_axis("ratio", rows, "the winner against itself without the setting")
    y = {"field": "setting", "type": "nominal", "sort": "-x", "title": None}
    layers = [
        vertical_at(1.0),
        {
            "transform": [{"filter": "datum.low != null"}],
            "mark": {"type": "rule", "strokeWidth": 2.5, "color": BLUE, "aria": False},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1, "stroke": BLUE},
            "encoding": {
                "x": x,
                "y": y,
                "fill": {
                    "condition": {"test": "datum.low == null", "value": "transparent"},
                    "value": BLUE,
                },
                "description": {"field": "text"},
            },
        },
        *cut_ends(x, y),
    ]
    hints = any(row["low"] is None for row in rows)
    rings = " Rings are hints of the search, without an interval." if hints else ""
    return Chart(
        "Effect of each setting",
        f"Right of the line it helps, surely where the whole interval lies there.{rings}"
        + about_cut(rows),
        {"data": {"values": rows}, "height": {"step": 24}, "layer": layers},
    )


def _row(contribution: Contribution) -> dict[str, Any]:
    """Return a setting with its effect; a hint has no interval."""
    name = f"{contribution.knob}={contribution.value}"
    if contribution.speedup is None:
        hint = {"ratio": contribution.ratio, "low": None, "high": None}
        return {"setting": name, **hint, "text": f"{name}: {contribution.ratio:.2f}x"}
    seen = seen_interval(contribution.speedup)
    return {
        "setting": name,
        "ratio": contribution.speedup.point,
        **seen,
        "text": f"{name}: {seen['text']}",
    }
