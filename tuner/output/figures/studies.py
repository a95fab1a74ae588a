"""What several studies recommend, each with its interval."""

from __future__ import annotations

from tuner.output.compare import Comparison
from tuner.output.figures.chart import (
    BLUE,
    GREEN,
    ORANGE,
    Chart,
    about_cut,
    colours,
    cut_ends,
    ratio_axis,
    seen_interval,
    vertical_at,
)

_COLOURS = {"faster": GREEN, "keep the default": BLUE, "not decided": ORANGE}
_WORDS = {"faster": "faster", "keep_default": "keep the default", "ambiguous": "not decided"}


def studies(comparison: Comparison) -> Chart | None:
    """Draw the speedup of each study's recommended class; None where none has one."""
    rows = []
    for study in comparison.studies:
        result = study.result
        speedup = result.winners[result.recommended_class].speedup
        if speedup is not None:
            seen = seen_interval(speedup)
            told = f"{study.name}: {seen['told']}"
            rows.append({"study": study.name, "point": speedup.point, **seen,
                         "verdict": _WORDS[result.verdict], "told": told})  # fmt: skip
    if not rows:
        return None
    x = ratio_axis("point", rows)
    y = {"field": "study", "type": "nominal", "sort": None, "title": None}
    seen = {v: c for v, c in _COLOURS.items() if any(row["verdict"] == v for row in rows)}
    layers = [
        vertical_at(1.0),
        {
            "mark": {"type": "rule", "strokeWidth": 2.5, "aria": False},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y,
                         "color": colours("verdict", seen)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colours("verdict", seen),
                         "description": {"field": "told"}},
        },
        *cut_ends(x, y),
    ]  # fmt: skip
    return Chart(
        "Speedups",
        "What each study recommends, or would have, against its own default, with 95 % intervals."
        + about_cut(rows),
        {"data": {"values": rows}, "height": {"step": 24}, "layer": layers},
    )
