"""What several studies found of each class, with its interval."""

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
from tuner.output.headline import class_lines

_COLOURS = {"faster": GREEN, "keep the default": BLUE, "not decided": ORANGE}
_WORDS = {"faster": "faster", "keep_default": "keep the default", "ambiguous": "not decided"}


def studies(comparison: Comparison) -> Chart | None:
    """Draw the speedup of each class of each study; None if none has one."""
    rows = []
    for study in comparison.studies:
        for line in class_lines(study.result):
            speedup = study.result.winners[line.winner_class].speedup
            if speedup is None or line.same_as:
                continue
            seen, name = seen_interval(speedup), f"{study.name}: {line.name}"
            rows.append(
                {
                    "study": name,
                    "point": speedup.point,
                    **seen,
                    "verdict": _WORDS[line.verdict],
                    "text": f"{name}: {seen['text']}",
                }
            )
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
                         "description": {"field": "text"}},
        },
        *cut_ends(x, y),
    ]  # fmt: skip
    return Chart(
        "Speedups",
        "What each study found of each class, against its own default, with 95 % intervals."
        + about_cut(rows),
        {"data": {"values": rows}, "height": {"step": 24}, "layer": layers},
    )
