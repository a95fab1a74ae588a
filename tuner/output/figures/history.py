"""The trials of the search, in their order, and the best so far."""

from __future__ import annotations

from tuner.output.figures.chart import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Chart,
    Layer,
    Rows,
    colours,
    horizontal_at,
    ratio_axis,
)
from tuner.record.result import Result

_REFERENCE, _BASELINE, _SEARCHED = "default", "baseline", "searched"
_STOPPED, _FAILED = "stopped early", "failed"
_COLOURS = {
    _REFERENCE: GREEN,
    _BASELINE: BLUE,
    _SEARCHED: ORANGE,
    _STOPPED: GREY,
    _FAILED: RED,
}


def history(result: Result) -> Chart | None:
    """Draw each trial's ratio, failures along the bottom; None if nothing was measured."""
    baselines = {b.name for b in result.baselines}
    rows: Rows = []
    best: Rows = []
    ratios: list[float | None] = []
    top = 0.0
    for trial in result.trials:
        is_measured = trial.outcome == "measured" and trial.search_ratio is not None
        kind = (
            _STOPPED if trial.outcome == "pruned"
            else _FAILED if not is_measured
            else _REFERENCE if trial.source == "default"
            else _BASELINE if trial.source in baselines
            else _SEARCHED
        )  # fmt: skip
        text = f"trial {trial.number}, {trial.source}: "
        if is_measured:
            assert trial.search_ratio is not None
            top = max(top, trial.search_ratio)
            text += f"{trial.search_ratio:.2f}x"
        else:
            text += str(trial.outcome)
        rows.append({"trial": trial.number, "kind": kind, "text": text})
        ratios.append(trial.search_ratio if is_measured else None)
        best.append({"trial": trial.number, "ratio": top or None})
    if not top:
        return None
    bottom = min(ratio for ratio in ratios if ratio is not None) / 1.15
    for row, ratio in zip(rows, ratios, strict=True):
        row["ratio"] = bottom if ratio is None else ratio
    n_without = sum(ratio is None for ratio in ratios)
    failed = f" {n_without} that failed or were stopped as hopeless stand at the bottom."
    failed = failed if n_without else ""
    return Chart(
        "The search",
        f"{len(rows)} configurations in the order in which they were tried; the line is the best "
        f"so far, which is a hint and mostly the luckiest.{failed}",
        {"height": 240, "layer": _layers(rows, best)},
    )


def _layers(rows: Rows, best: Rows) -> list[Layer]:
    """Draw the trials as points over the line of the best so far."""
    x = {"field": "trial", "type": "quantitative", "title": "trial", "axis": {"format": "d"},
         "scale": {"nice": False, "padding": 8}}  # fmt: skip
    y = ratio_axis("ratio", rows)
    kinds = {k: c for k, c in _COLOURS.items() if any(row["kind"] == k for row in rows)}
    return [
        horizontal_at(1.0),
        {
            "data": {"values": best},
            "mark": {"type": "line", "interpolate": "step-after", "color": ORANGE, "aria": False},
            "encoding": {"x": x, "y": y},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "point", "filled": True, "size": 42, "opacity": 0.9},
            "encoding": {
                "x": x,
                "y": y,
                "color": colours("kind", kinds),
                "shape": {
                    "condition": {
                        "test": f"datum.kind == '{_FAILED}' || datum.kind == '{_STOPPED}'",
                        "value": "cross",
                    },
                    "value": "circle",
                },
                "description": {"field": "text"},
            },
        },
    ]
