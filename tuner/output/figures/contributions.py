"""What each setting of the recommended winner is worth."""

from __future__ import annotations

from tuner.output.figures.chart import BLUE, Chart, ratio_axis, vertical_at
from tuner.record.result import Result


def contributions(result: Result) -> Chart | None:
    """Draw the winner against itself without each setting; None where nothing was measured."""
    found = result.contributions or []
    if not found:
        return None
    rows = [
        {
            "setting": f"{c.knob}={c.value}",
            "ratio": c.speedup.point if c.speedup else c.ratio,
            "low": c.speedup.low if c.speedup else None,
            "high": c.speedup.high if c.speedup else None,
            "told": f"{c.knob}={c.value}: {c.speedup.point if c.speedup else c.ratio:.2f}x",
        }
        for c in found
    ]
    x = ratio_axis("ratio", "the winner's rate against its own without the setting")
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
                "description": {"field": "told"},
            },
        },
    ]
    hints = any(row["low"] is None for row in rows)
    rings = " Rings are hints of the search, without an interval." if hints else ""
    return Chart(
        "What each setting is worth",
        f"Right of the line it helps, surely where the whole interval lies there.{rings}",
        {"data": {"values": rows}, "height": {"step": 24}, "layer": layers},
    )
