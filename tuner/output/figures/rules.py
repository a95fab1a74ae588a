"""A setting's effect in each model that taught a rule, and the rule."""

from __future__ import annotations

import math

from scipy.special import stdtrit

from tuner.output.figures.chart import (
    BLUE,
    GREEN,
    GREY,
    Chart,
    about_cut,
    cut_ends,
    ratio_axis,
    seen_interval,
    vertical_at,
)
from tuner.record.guidelines import Guidelines, Rule
from tuner.record.interval import Interval

_ALL, _OTHER = "on average over families", "expected of another family (90 %)"


def forest(rule: Rule, what: str, where: str, guidelines: Guidelines) -> Chart | None:
    """Draw the effect in each model with its 95 % interval, the mean, and the prediction."""
    rows = []
    several = len(guidelines.hosts) > 1
    for study in guidelines.studies:
        if study.name not in rule.studies or rule.setting not in study.effects:
            continue
        value, error = study.effects[rule.setting]
        half = -float(stdtrit(guidelines.launch_freedom[study.fingerprint], 0.025)) * error
        interval = Interval(math.exp(value), math.exp(value - half), math.exp(value + half), 0.95)
        there = f", {study.facts.get('host_isa', study.host)}" if several else ""
        rows.append(_row(f"{study.family}: {study.model}{there}", "model", interval))
    if not rows:
        return None
    rows.sort(key=lambda row: str(row["name"]))
    rows += [_row(_ALL, "mean", rule.effect), _row(_OTHER, "expected", rule.expected)]
    x = ratio_axis("point", rows, "factor on the speed")
    y = {"field": "name", "type": "nominal", "sort": None, "title": None}
    kinds = {"model": GREY, "mean": GREEN, "expected": BLUE}
    colour = {
        "field": "kind",
        "type": "nominal",
        "scale": {"domain": list(kinds), "range": list(kinds.values())},
        "legend": None,
    }
    layers = [
        vertical_at(1.0),
        {
            "mark": {"type": "rule", "strokeWidth": 2.5, "aria": False},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y,
                         "color": colour},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "description": {"field": "text"}},
        },
        *cut_ends(x, y),
    ]  # fmt: skip
    text = f"{what}{f', where {where}' if where else ''}"
    return Chart(
        text,
        f"{text}: each model with its 95 % interval, the mean over families (green), and where a "
        f"model of another family is expected (blue).{about_cut(rows)}",
        {"data": {"values": rows}, "height": {"step": 20}, "layer": layers},
    )


def _row(name: str, kind: str, interval: Interval) -> dict[str, object]:
    seen = seen_interval(interval)
    return {"name": name, "kind": kind, "point": interval.point, **seen,
            "text": f"{name}: {seen['text']}"}  # fmt: skip
