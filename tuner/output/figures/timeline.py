"""How noisy the host was meanwhile: the pacer's speed, and what else used the CPUs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable

from tuner.output.figures.chart import AXIS, BLUE, GREY, ORANGE, Chart, Rows
from tuner.record.result import Result
from tuner.record.study_stats import Moment

_MOST_POINTS = 150
"""Per panel: a study of many hours is drawn in as many steps."""


def timeline(result: Result) -> Chart | None:
    """Draw both over the study's minutes; None if no slice was taken."""
    if not result.timeline:
        return None
    paced = [m for m in result.timeline if m.pacer is not None]
    last = max(m.at_s for m in result.timeline) / 60
    x = {"field": "minute", "type": "quantitative", "title": "minutes of the study",
         "scale": {"nice": False, "domain": [0, last]}}  # fmt: skip
    panels = []
    if paced:
        panels.append(
            {
                "title": "the pacer's speed against its mean",
                "data": {"values": _steps(paced, _pacer_step)},
                "height": 110,
                "encoding": {"x": {**x, "title": None}},
                "layer": [
                    {
                        "mark": {"type": "rule", "color": BLUE, "opacity": 0.5, "aria": False},
                        "encoding": {"y": _percent("low"), "y2": {"field": "high"}},
                    },
                    {
                        "mark": {"type": "line", "color": BLUE, "strokeWidth": 1.5},
                        "encoding": {"y": _percent("middle")},
                    },
                ],
            }
        )
    panels.append(
        {
            "title": "share of the CPUs that something else used",
            "data": {"values": _steps(result.timeline, _foreign_step)},
            "height": 90,
            "mark": {"type": "rule", "strokeWidth": 2.5, "aria": False},
            "encoding": {
                "x": x,
                "y": {**_percent("high"), "scale": {"domainMin": 0}},
                "y2": {"datum": 0},
                "color": {
                    "condition": {"test": "datum.dirty", "value": ORANGE},
                    "value": GREY,
                },
            },
        }
    )
    n_dirty = sum(bool(m.dirty) for m in result.timeline)
    return Chart(
        "How noisy the host was",
        f"{n_dirty} of {len(result.timeline)} slices were disturbed (orange) and measured again "
        "where time allowed. The pacer is a launch of the default, measured again and again; each "
        "is drawn against its own mean, so that a step from one pacer to the next is not seen.",
        {"vconcat": panels, "spacing": 14},
    )


def _percent(field: str) -> dict[str, object]:
    return {"field": field, "type": "quantitative", "title": None,
            "axis": {"format": "+.0%" if field != "high" else ".0%", "tickCount": 4,
                     "minExtent": AXIS, "maxExtent": AXIS}}  # fmt: skip


def _steps(moments: list[Moment], step: Callable[[list[Moment]], dict[str, object]]) -> Rows:
    """Put neighbouring slices together, so that no panel holds more than can be seen."""
    whole_s = max(m.at_s for m in moments) or 1.0
    together: dict[int, list[Moment]] = defaultdict(list)
    for moment in moments:
        together[int(_MOST_POINTS * moment.at_s / whole_s)].append(moment)
    return [
        {"minute": statistics.fmean(m.at_s for m in each) / 60, **step(each)}
        for each in together.values()
    ]


def _pacer_step(moments: list[Moment]) -> dict[str, object]:
    changes = [m.pacer - 1 for m in moments if m.pacer is not None]
    return {"low": min(changes), "middle": statistics.median(changes), "high": max(changes)}


def _foreign_step(moments: list[Moment]) -> dict[str, object]:
    return {"high": max(m.foreign for m in moments), "dirty": any(m.dirty for m in moments)}
