"""A chart in Vega-Lite, and its embedding in a page: no script, no request, for light and dark.

Vega writes the text for screen readers at each mark (WAI-ARIA graphics roles). Text and axes have
the page's own colour; the others are visible on white and on black (3:1 or more).
https://vega.github.io/vega-lite/docs/, https://www.w3.org/TR/graphics-aria-1.0/
"""

from __future__ import annotations

import html
import math
import re
from typing import Any, TypeAlias

import msgspec

from tuner.record.interval import Interval

Rows: TypeAlias = list[dict[str, Any]]
Layer: TypeAlias = dict[str, Any]

BLUE, GREEN, ORANGE, RED, GREY = "#3b7dd8", "#2a9159", "#c46f12", "#d2453f", "#858585"
PURPLE, OLIVE, PINK = "#8a63d2", "#8a7d1a", "#c2559b"
TEAL, BROWN, DARK_GREY = "#1f8a8a", "#a0613a", "#6b6b6b"

_MEASURED, _DRAWN = 14, 12
"""Pixels: room is made for larger text than is drawn, because the reader's font may be wider."""
_NARROW = 500
"""Pixels; below, it is drawn for a phone."""
_FOR_PHONES: Layer = {
    "legend": {"columns": 2},  # one row would be cut off at the right
    "axis": {"labelLimit": 190},  # else names leave no room for what is drawn
    "axisX": {"titleAnchor": "end"},  # a title is longer than its axis
}
AXIS = 46
_BESIDE_PANELS = AXIS + 13
"""Pixels of the axis and the margins of panels that stand above each other."""
_THEME: Layer = {
    "background": None,
    "config": {
        "font": "system-ui, sans-serif",
        "axis": {
            "labelColor": "currentColor",
            "titleColor": "currentColor",
            "titleFontWeight": "normal",
            "domainColor": GREY,
            "tickColor": GREY,
            "gridColor": GREY,
            "gridOpacity": 0.25,
            "labelFontSize": _MEASURED,
            "titleFontSize": _MEASURED,
            "labelLimit": 260,
        },
        "legend": {
            "labelColor": "currentColor",
            "titleColor": "currentColor",
            "labelFontSize": _MEASURED,
            "orient": "top",
            "title": None,
            "labelLimit": 260,
        },
        "header": {"labelColor": "currentColor", "titleColor": "currentColor"},
        "title": {"color": "currentColor", "anchor": "start", "fontSize": _MEASURED},
        "text": {"color": "currentColor"},
        "view": {"stroke": None},
    },
}


class Chart(msgspec.Struct, frozen=True):
    """A figure: `spec` is Vega-Lite without width and theme."""

    title: str
    summary: str
    """A description in a sentence or two: for those who cannot see it, and below it for all."""
    spec: Layer
    narrow: Layer | None = None
    """The variant for phones, if it differs in more than its width."""


def specification(chart: Chart, width: int) -> Layer:
    """Return a chart in Vega-Lite, `width` pixels wide on a screen."""
    spec = {**_THEME, **chart.spec}
    if width < _NARROW:
        config = _THEME["config"]
        own = {name: {**config.get(name, {}), **each} for name, each in _FOR_PHONES.items()}
        spec |= {**(chart.narrow or {}), "config": {**config, **own}}
    if "vconcat" in spec:  # which cannot be fitted as a whole
        spec["vconcat"] = [{**panel, "width": width - _BESIDE_PANELS} for panel in spec["vconcat"]]
    else:
        spec |= {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    return spec


def in_page(chart: Chart, svg: str) -> str:
    """Return a chart's drawing as it is put into a page, with its description."""
    svg = svg.replace(f'font-size="{_MEASURED}px"', f'font-size="{_DRAWN}px"')
    label = html.escape(f"{chart.title}: {chart.summary}")
    # inside a page, a namespace is superfluous
    return re.sub(
        r"^.*?<svg[^>]*?(?= class=)",
        lambda _: (
            f'<svg role="graphics-document" aria-roledescription="figure" aria-label="{label}"'
        ),
        svg,
        count=1,
        flags=re.DOTALL,
    )


WIDEST = 20.0
"""Intervals from few rounds may reach further from their point; figures do not follow them."""
_UNBOUNDED = 1000.0
_CUT = " An arrow marks an interval that reaches further than is drawn: to the number beside it."


def seen_interval(interval: Interval) -> dict[str, Any]:
    """Return the drawn part of an interval, where it was cut, and the whole of it in words.

    As fields of a row: `low` and `high`, the numbers of cut ends as `cut_low` and `cut_high` (None
    if nothing is cut), and `told`.
    """
    low = max(interval.low, interval.point / WIDEST)
    high = min(interval.high, interval.point * WIDEST)
    cut_low = _bound(interval.low) if low != interval.low else None
    cut_high = _bound(interval.high) if high != interval.high else None
    text = f"{interval.point:.2f}x ({interval.low:.2f} to {_bound(interval.high)})"
    is_cut = cut_low is not None or cut_high is not None
    text += ", drawn shorter" if is_cut else ""
    return {"low": low, "high": high, "cut_low": cut_low, "cut_high": cut_high, "text": text}


def _bound(value: float) -> str:
    return f"{value:.2f}" if value < _UNBOUNDED else "unbounded"


def cut_ends(x: Layer, y: Layer) -> list[Layer]:
    """Draw an arrow, with the number that it stands for, where an interval was cut."""
    layers: list[Layer] = []
    for end, turned, align in (("low", "left", "left"), ("high", "right", "right")):
        is_cut = [{"filter": f"isValid(datum.cut_{end})"}]
        at = {"x": {**x, "field": end}, "y": y}
        layers += [
            {
                "transform": is_cut,
                "mark": {"type": "point", "shape": f"triangle-{turned}", "filled": True,
                         "size": 90, "opacity": 1, "color": GREY, "aria": False},
                "encoding": at,
            },
            {
                "transform": is_cut,
                "mark": {"type": "text", "align": align, "dy": -8, "fontSize": 11, "aria": False},
                "encoding": {**at, "text": {"field": f"cut_{end}"}},
            },
        ]  # fmt: skip
    return layers


def about_cut(rows: Rows) -> str:
    """Explain a chart's arrows in its summary; empty if it has none."""
    return _CUT if any(row.get("cut_low") or row.get("cut_high") for row in rows) else ""


def colours(field: str, by_name: dict[str, str]) -> Layer:
    """Colour marks by a field's value."""
    scale = {"domain": list(by_name), "range": list(by_name.values())}
    return {"field": field, "type": "nominal", "scale": scale}


_LEAST_RATIOS = (0.95, 1.05)
"""The least span of an axis: a difference of a thousandth must not look large."""


_ABOVE = (1.02, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 300, 1000)
_BELOW = (0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.07, 0.05, 0.03, 0.02,
          0.01, 0.003, 0.001)  # fmt: skip
"""The possible labels of a ratio's ticks, from 1 outwards."""
_TICKS_APART = 1 / 3.5
"""Least distance between ticks, as a share of the axis: 30 pixels on a phone, next to long names.
"""


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return where an axis from low to high has ticks: at 1, and where their labels have room."""
    apart = math.log(high / low) * _TICKS_APART
    ticks = [1.0]
    for outwards in (_ABOVE, _BELOW):
        last = 1.0
        for tick in outwards:
            if low <= tick <= high and abs(math.log(tick / last)) >= apart:
                ticks.append(last := tick)
    return sorted(ticks)


def ratio_axis(field: str, rows: Rows, title: str = "against the default") -> Layer:
    """Place marks by a ratio: half as fast is as far from 1 as twice as fast.

    rows: the data; their intervals, as `low` and `high`, are on the axis too.
    """
    drawn = [row[name] for row in rows for name in (field, "low", "high") if row.get(name)]
    seen = [*drawn, *_LEAST_RATIOS]
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {
            "type": "log",
            "domain": {"unionWith": list(_LEAST_RATIOS)},
            "nice": False,
            "padding": 12,
        },
        "axis": {
            "format": ".3~g",
            "values": ratio_ticks(min(seen), max(seen)),
        },
    }


def vertical_at(x: float) -> Layer:
    """Draw a dashed line at a value of x, which is no mark of the data."""
    return {
        "data": {"values": [{"at": x}]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": GREY, "aria": False},
        "encoding": {"x": {"field": "at", "type": "quantitative"}},
    }


def horizontal_at(y: float) -> Layer:
    """Draw a dashed line at a value of y, which is no mark of the data."""
    return {
        "data": {"values": [{"at": y}]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": GREY, "aria": False},
        "encoding": {"y": {"field": "at", "type": "quantitative"}},
    }
