"""Where the time of a call goes: the default next to the recommended winner."""

from __future__ import annotations

from tuner.output.evidence import profiled_how, profiles
from tuner.output.figures.chart import GREEN, GREY, Chart, colours
from tuner.record.launch import REST
from tuner.record.result import OperatorProfile, Result

_MOST_OPERATORS = 14


def operators(result: Result) -> Chart | None:
    """Draw each operator's share of the time; None if the default was not profiled."""
    shown_of = profiles(result)
    if "default" not in shown_of:
        return None
    shares = {of: _shares(profile) for of, profile in shown_of.items()}
    names = dict.fromkeys(name for of_one in shares.values() for name in of_one)
    most = {name: max(p.get(name, 0.0) for p in shares.values()) for name in names if name != REST}
    shown = sorted(most, key=most.__getitem__, reverse=True)[:_MOST_OPERATORS]
    rows = []
    for of, taken in shares.items():
        rest = sum(share for name, share in taken.items() if name not in shown)
        for name in [*shown, REST] if len(names) > len(shown) else shown:
            share = rest if name == REST else taken.get(name, 0.0)
            text = f"{of}, {name}: {share:.0%}"
            rows.append({"of": of, "operator": name, "share": share, "text": text})
    by_name = dict(zip(shown_of, (GREY, GREEN), strict=False))
    spec = {
        "data": {"values": rows},
        "height": {"step": 11 if len(shown_of) > 1 else 18},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {"field": "operator", "type": "nominal", "sort": None, "title": None},
            "yOffset": {"field": "of", "sort": list(shown_of)},
            "x": {
                "field": "share",
                "type": "quantitative",
                "title": "share of what all operators took",
                "axis": {"format": ".0%", "tickCount": 6},
            },
            "color": {**colours("of", by_name), "legend": {"columns": 1}},  # on phones too
            "description": {"field": "text"},
        },
    }
    return Chart("Where the time of a call goes", profiled_how(result), spec)


def _shares(profile: OperatorProfile) -> dict[str, float]:
    whole = sum(o.seconds for o in profile.operators) or 1.0
    return {o.name: o.seconds / whole for o in profile.operators}
