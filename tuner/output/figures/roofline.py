"""The speed of products over their arithmetic intensity, below the best that the host did."""

from __future__ import annotations

from tuner.output.figures.chart import GREY, Chart, Rows, colours
from tuner.output.figures.why import CLASS_COLOURS
from tuner.output.why import explanation_of
from tuner.record.result import Result
from tuner.record.why import HostBest, Roofline
from tuner.space.catalogue import class_title

_MODEL = "the model"
_MARGIN = 3.0
"""Factor by which the axis of intensities reaches beyond points and ridges."""


def roofline(result: Result) -> Chart | None:
    """Draw the default and the recommended winner below the roof; None if it is not known."""
    found = explanation_of(result)
    if found is None or found.roofline is None or found.best is None:
        return None
    roof, best = found.roofline, found.best
    tuned = class_title(result.recommended_class)
    rows = _points(roof, tuned)
    intensities = [row["intensity"] for row in rows]
    ridges = [flops / best.bytes_per_s for flops in best.flops.values()]
    low = min(intensities + ridges) / _MARGIN
    high = max(intensities + ridges) * _MARGIN
    x = {"field": "intensity", "type": "quantitative", "title": "operations per byte",
         "scale": {"type": "log", "domain": [low, high], "nice": False}}  # fmt: skip
    y = {"field": "giga", "type": "quantitative", "title": "GFLOP/s", "scale": {"type": "log"}}
    spec = {
        "height": 260,
        "layer": [
            {
                "data": {"values": _roofs(best, low, high)},
                "mark": {"type": "line", "color": GREY, "strokeDash": [6, 4], "aria": False},
                "encoding": {"x": x, "y": y, "detail": {"field": "dtype"}},
            },
            {
                "data": {"values": [_end(best, dtype, high) for dtype in best.flops]},
                "mark": {"type": "text", "align": "right", "dy": -7, "aria": False},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 0.9},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": colours("class", _shown(rows)),
                    "shape": {
                        "field": "of",
                        "type": "nominal",
                        "scale": {"domain": ["default", tuned], "range": ["circle", "diamond"]},
                        "legend": None,
                    },
                    "description": {"field": "text"},
                },
            },
        ],
    }
    return Chart(
        "How near to the best of this host",
        "Products of the default (circles) and of the recommendation (diamonds), and the whole "
        "model, by operations per byte that the default's operators read and write. Broken lines: "
        "the best that this host did. What stays in caches may lie above the slope.",
        spec,
    )


def _shown(rows: Rows) -> dict[str, str]:
    """Return the colours of what is drawn."""
    by_name = {_MODEL: GREY, **{str(name): colour for name, colour in CLASS_COLOURS.items()}}
    present = {row["class"] for row in rows}
    return {name: colour for name, colour in by_name.items() if name in present}


def _points(roof: Roofline, tuned: str) -> Rows:
    rows: Rows = []
    for each in roof.points:
        name = each.name or _MODEL
        for of, n_bytes, seconds in (
            ("default", each.default_bytes, each.default_s),
            (tuned, each.tuned_bytes, each.tuned_s),
        ):
            giga = each.flops / seconds / 1e9
            rows.append(
                {
                    "of": of,
                    "class": name,
                    "intensity": each.flops / n_bytes,
                    "giga": giga,
                    "text": f"{of}, {name}: {giga:.3g} GFLOP/s at {each.flops / n_bytes:.3g} "
                    "operations per byte",
                }
            )
    return rows


def _roofs(best: HostBest, low: float, high: float) -> Rows:
    """Return the corners of each data type's roof."""
    return [
        {"dtype": dtype, "intensity": at, "giga": min(flops, at * best.bytes_per_s) / 1e9}
        for dtype, flops in best.flops.items()
        for at in (low, flops / best.bytes_per_s, high)
    ]


def _end(best: HostBest, dtype: str, high: float) -> dict[str, str | float]:
    return {"label": dtype, "intensity": high, "giga": best.flops[dtype] / 1e9}
