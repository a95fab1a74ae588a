"""A server's latency over the request rate: every rate that was tried."""

from __future__ import annotations

from tuner.output.figures.chart import BLUE, GREEN, GREY, ORANGE, RED, Chart, Rows, colours
from tuner.output.serving import latency_bound, served
from tuner.output.values import value_of
from tuner.record.result import Result

_COLOURS = (GREY, BLUE, GREEN, ORANGE)


def front(result: Result) -> Chart | None:
    """Draw latency over rate, and the highest rate within the bound of each configuration.

    None if no requests arrived.
    """
    slo, sections = result.objective.slo, served(result)
    if slo is None or not sections:
        return None
    rows: Rows = [
        {
            "of": name,
            "rate": tried.rate,
            "latency": 1000 * tried.quantile_s,
            "text": f"{name}: {tried.rate:.3g} requests/s, {slo.name} "
            f"{1000 * tried.quantile_s:.3g} ms",
        }
        for name, section in sections.items()
        if section.serving is not None
        for tried in section.serving.rates
    ]
    edges: Rows = [
        {"of": name, "rate": value.point}
        for name, section in sections.items()
        if section.serving is not None and section.serving.n_met
        if (value := value_of(section)) is not None
    ]
    by_name = dict(zip(sections, _COLOURS, strict=False))
    color = colours("of", by_name)
    x = {"field": "rate", "type": "quantitative", "title": "requests per second",
         "scale": {"zero": True}}  # fmt: skip
    y = {"field": "latency", "type": "quantitative", "title": f"{slo.name} of the latency, ms",
         "scale": {"type": "log"}}  # fmt: skip
    spec = {
        "height": 260,
        "layer": [
            {
                "data": {"values": [{"bound": 1000 * slo.seconds}]},
                "mark": {"type": "rule", "strokeDash": [6, 4], "color": RED, "aria": False},
                "encoding": {"y": {**y, "field": "bound"}},
            },
            {
                "data": {"values": edges},
                "mark": {"type": "rule", "strokeWidth": 2, "aria": False},
                "encoding": {"x": x, "color": color},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.8},
                "encoding": {"x": x, "y": y, "color": color, "description": {"field": "text"}},
            },
        ],
    }
    return Chart(
        "Latency under load",
        f"Every rate that was tried in the confirmation. Broken line: the bound, "
        f"{latency_bound(result)}. Upright lines: the highest rate within it.",
        spec,
    )
