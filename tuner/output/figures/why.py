"""The time of an item by class of operators: the default above the recommended winner."""

from __future__ import annotations

from tuner.output.figures.chart import (
    BLUE,
    BROWN,
    DARK_GREY,
    GREEN,
    GREY,
    OLIVE,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    TEAL,
    Chart,
    Rows,
    colours,
)
from tuner.output.why import explanation_of
from tuner.record.result import Result
from tuner.record.why import OperatorClass
from tuner.space.catalogue import class_title

CLASS_COLOURS = {
    OperatorClass.CONVOLUTION: BLUE,
    OperatorClass.PRODUCT: GREEN,
    OperatorClass.ATTENTION: PURPLE,
    OperatorClass.RECURRENT: PINK,
    OperatorClass.ELEMENTWISE: ORANGE,
    OperatorClass.COPY: RED,
    OperatorClass.LOOKUP: OLIVE,
    OperatorClass.UPDATE: TEAL,
    OperatorClass.FUSED: BROWN,
    OperatorClass.OTHER: DARK_GREY,
    OperatorClass.OVERHEAD: GREY,
}
"""In the order in which they are stacked."""


def why(result: Result) -> Chart | None:
    """Draw the classes of both as stacked bars; None if the winner was not explained."""
    found = explanation_of(result)
    if found is None:
        return None
    order = list(CLASS_COLOURS)
    tuned = class_title(result.recommended_class)
    rows: Rows = []
    for each in sorted(found.classes, key=lambda c: order.index(c.name)):
        for of, seconds in (("default", each.default_s), (tuned, each.tuned_s)):
            text = f"{of}, {each.name}: {1000 * seconds:.3g} ms an item"
            rows.append(
                {
                    "of": of,
                    "class": each.name,
                    "ms": 1000 * seconds,
                    "rank": order.index(each.name),
                    "text": text,
                }
            )
    shown = {str(name): colour for name, colour in CLASS_COLOURS.items() if _holds(rows, name)}
    spec = {
        "data": {"values": rows},
        "height": {"step": 34},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "of", "type": "nominal", "sort": ["default", tuned], "title": None},
            "x": {"field": "ms", "type": "quantitative", "title": "ms per item"},
            "color": {**colours("class", shown), "legend": {"columns": 3}},
            "order": {"field": "rank"},
            "description": {"field": "text"},
        },
    }
    return Chart(
        "Why it is faster",
        "The time of an item by class of operators. Where a class became shorter, the gain is from "
        "there.",
        spec,
    )


def _holds(rows: Rows, name: OperatorClass) -> bool:
    return any(row["class"] == name for row in rows)
