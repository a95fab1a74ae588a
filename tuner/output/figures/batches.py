"""How the default and the winners change with the batch."""

from __future__ import annotations

from tuner.output.figures.chart import BLUE, GREEN, GREY, ORANGE, Chart, Rows, colours
from tuner.record.configuration import Value
from tuner.record.result import Result
from tuner.space.catalogue import class_title
from tuner.space.knobs_of.launch import BATCH

_COLOURS = (GREY, BLUE, GREEN, ORANGE)


def batches(result: Result) -> Chart | None:
    """Draw a line per configuration over the batches at which the search measured it.

    None if no configuration was measured at two of them.
    """
    curves: dict[str, dict[str, Value]] = {"default": {}}
    for winner_class, winner in result.winners.items():
        bare = _bare(winner.configuration)
        if bare and bare not in curves.values():
            curves[class_title(winner_class)] = bare
    rows = [row for name, bare in curves.items() for row in _points(result, name, bare)]
    drawn = {n for n in curves if sum(row["of"] == n for row in rows) > 1}
    if not drawn:
        return None
    by_name = {n: c for n, c in zip(curves, _COLOURS, strict=False) if n in drawn}
    encoding = {
        "x": {"field": "batch", "type": "ordinal", "title": "batch", "axis": {"labelAngle": 0}},
        "y": {"field": "ratio", "type": "quantitative", "title": "against the default's best",
              "scale": {"zero": True}},
        "color": colours("of", by_name),
    }  # fmt: skip
    spec = {
        "data": {"values": [row for row in rows if row["of"] in drawn]},
        "height": 220,
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 2, "aria": False}, "encoding": encoding},
            {
                "mark": {"type": "point", "filled": False, "size": 60, "opacity": 1},
                "encoding": {**encoding, "description": {"field": "text"}},
            },
        ],
    }
    return Chart(
        "Batches",
        "Each batch against the default's best, as the search saw them: hints, "
        "with the machine's drift taken out. Speedups compare each at its best batch.",
        spec,
    )


def _bare(configuration: dict[str, Value]) -> dict[str, Value]:
    return {knob: value for knob, value in configuration.items() if knob != BATCH}


def _points(result: Result, name: str, bare: dict[str, Value]) -> Rows:
    found = {
        int(t.configuration.get(BATCH) or result.reference_batch): t.search_ratio
        for t in result.trials
        if _bare(t.configuration) == bare and t.outcome == "measured" and t.search_ratio is not None
    }
    return [
        {"of": name, "batch": batch, "ratio": ratio, "text": f"{name}, batch {batch}: {ratio:.2f}x"}
        for batch, ratio in sorted(found.items())
    ]
