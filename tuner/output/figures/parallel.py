"""Every configuration that was measured, as a line through the values of its settings."""

from __future__ import annotations

from tuner.output.figures.chart import BLUE, GREEN, GREY, Chart, Layer, Rows, colours
from tuner.record.configuration import Value
from tuner.record.result import Result
from tuner.record.study_stats import TrialSection

_BEST, _FASTER, _OTHER = "best tenth", "faster than the default", "others"
_COLOURS = {_OTHER: GREY, _FASTER: BLUE, _BEST: GREEN}
_MOST_KNOBS, _MOST_ON_PHONES = 10, 3
_LONGEST = 10
"""Characters of a value next to its axis."""
_NOT_SET = "(not set)"
"""Not "default", which is the name of a value of some settings."""


def parallel(result: Result) -> Chart | None:
    """Draw parallel coordinates of the searched settings; None where fewer than two varied."""
    measured = [t for t in result.trials if t.outcome == "measured" and t.search_ratio is not None]
    measured.sort(key=lambda t: t.search_ratio or 0.0)
    varied = _varied(measured)
    if len(varied) < 2:
        return None
    knobs = varied[:_MOST_KNOBS]
    heights = {knob: _heights(measured, knob) for knob in knobs}
    from_best = len(measured) - max(1, len(measured) // 10)
    lines: Rows = []
    for rank, trial in enumerate(measured):
        ratio = trial.search_ratio or 0.0
        kind = _BEST if rank >= from_best else _FASTER if ratio > 1 else _OTHER
        lines += [
            {
                "trial": trial.number,
                "knob": knob,
                "height": heights[knob][_text(trial.configuration.get(knob))],
                "kind": kind,
                "text": f"trial {trial.number}: {ratio:.2f}x",
            }
            for knob in knobs
        ]
    labels: Rows = [
        {"knob": knob, "height": height, "value": _short(value)}
        for knob, of_knob in heights.items()
        for value, height in of_knob.items()
    ]
    n_left_out = len(varied) - len(knobs)
    more = f" {n_left_out} settings that were tried less are left out." if n_left_out else ""
    first = knobs[:_MOST_ON_PHONES]
    if len(first) < len(knobs):
        more += f" A narrow screen shows the first {len(first)}."
    of_first = [[row for row in rows if row["knob"] in first] for rows in (lines, labels)]
    return Chart(
        "Settings of everything measured",
        "Each line is a configuration. Where the green ones agree, the best have that in common: "
        "it may matter, or the search may have kept to it." + more,
        {"height": 300, "layer": _layers(lines, labels)},
        {"layer": _layers(*of_first)},
    )


def _layers(lines: Rows, labels: Rows) -> list[Layer]:
    """Draw the configurations, the best above the others, and the values next to the axes."""
    x = {"field": "knob", "type": "nominal", "sort": None, "title": None,
         "axis": {"labelAngle": -35, "grid": True, "gridOpacity": 0.6},
         "scale": {"padding": 1}}  # fmt: skip  # room for the values beside the last one
    y = {
        "field": "height",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [-0.08, 1.08]},
    }
    drawn: list[Layer] = [
        {
            "transform": [{"filter": f"datum.kind == '{kind}'"}],
            "data": {"values": lines},
            "mark": {
                "type": "line",
                "strokeWidth": 2.5 if kind == _BEST else 1.2,
                "opacity": 0.9 if kind == _BEST else 0.45,
                "interpolate": "monotone",
            },
            "encoding": {
                "x": x,
                "y": y,
                "color": colours("kind", _COLOURS),
                "detail": {"field": "trial"},
                "description": {"field": "text"},
            },
        }
        for kind in _COLOURS
    ]
    drawn.append(
        {
            "data": {"values": labels},
            "mark": {"type": "text", "fontSize": 11, "align": "left", "dx": 5, "dy": -6},
            "encoding": {"x": x, "y": y, "text": {"field": "value"}},
        }
    )
    return drawn


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(value: Value | None) -> str:
    return _NOT_SET if value is None else str(value)


def _varied(trials: list[TrialSection]) -> list[str]:
    """Return the settings with several measured values, the most informative first.

    Those of the best configuration, then those that were tried most. trials: the best one last.
    """
    knobs = dict.fromkeys(knob for t in trials for knob in t.configuration)
    varied = [k for k in knobs if len({_text(t.configuration.get(k)) for t in trials}) > 1]
    best = trials[-1].configuration if trials else {}
    n_tried = {k: sum(k in t.configuration for t in trials) for k in varied}
    return sorted(varied, key=lambda k: (k not in best, -n_tried[k], k))


def _heights(trials: list[TrialSection], knob: str) -> dict[str, float]:
    """Spread a setting's values over its axis, the default lowest, numbers by size."""
    values = {t.configuration.get(knob) for t in trials} - {None}
    ordered = sorted(values, key=lambda v: (isinstance(v, str), v if isinstance(v, str) else 0, v))
    texts = list(dict.fromkeys([_NOT_SET, *map(_text, ordered)]))
    return {text: i / max(1, len(texts) - 1) for i, text in enumerate(texts)}
