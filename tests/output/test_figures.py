"""Every figure shows what the result holds, in marks that can be read without seeing them."""

import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import msgspec
import pytest

from tuner.output import report
from tuner.output.figures import FIGURES
from tuner.output.figures.chart import GREY, Chart, in_page, ratio_ticks, specification
from tuner.output.figures.drawing import drawings
from tuner.record.files import read_result
from tuner.record.interval import Interval
from tuner.record.launch import Operator
from tuner.record.load import Slo
from tuner.record.result import Contribution, OperatorProfile, Result
from tuner.record.serving import Serving, TriedRate
from tuner.record.study_stats import BEFORE, Moment, PhaseSeconds, Seconds
from tuner.record.why import ClassTime, HostBest, OperatorClass, Roofline, RooflinePoint, Why
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import class_title

SAME = WinnerClass.SAME_PRECISION

SAMPLE = Path(__file__).parent / "results" / "resnet50-torch.json"
"""The result of a study of half an hour, as an earlier version wrote it."""
SAMPLES = Path(__file__).parents[2] / "reports/samples"
KNOWN = Path(__file__).parents[2] / "benchmarks/known"
REAL = [
    SAMPLES / "bert-base-tensorflow.json",
    KNOWN / "ncf-tensorflow-with/result.json",
    KNOWN / "distilbert-torch-with/result.json",
]
SVG = "{http://www.w3.org/2000/svg}"


def whole() -> Result:
    """A real study's result, with what it was too early or too short to hold."""
    result = read_result(SAMPLE)
    winner_class = result.recommended_class
    log_score = [
        Contribution("launch.allocator", "tcmalloc", 1.3, Interval(1.3, 1.2, 1.4, 0.95), 6),
        Contribution("torch.compile.mode", "freezing", 1.1, None, 0),
    ]
    default = OperatorProfile(
        [Operator("aten::conv", 0.2, 53), Operator("aten::relu", 0.05, 49)], 4, 0.27, "a profiler"
    )
    winner = OperatorProfile([Operator("mkldnn::conv", 0.4, 53)], 16, 0.5, "a profiler")
    timeline = [
        Moment(
            10.0 * i, 0.2 if i == 7 else 0.0, ["foreign"] if i == 7 else [], 1.0 + 0.01 * (i % 3)
        )
        for i in range(1000)
    ]
    return msgspec.structs.replace(
        result,
        contributions=log_score,
        timeline=timeline,
        why=[explained(result)],
        seconds=Seconds(615.0, 200.0, 31.0, 120.0, 40.0, 90.0, 30.0),
        seconds_by_phase=[
            PhaseSeconds(BEFORE, own=15.0),
            PhaseSeconds(
                "explore",
                40.0,
                30.0,
                20.0,
                40.0,
                30.0,
                1.0,
                150.0,
                disturbed=9.0,
                pacer=120.0,
                waiting=21.0,
                ending=5.0,
                own=60.0,
            ),
            PhaseSeconds("confirm", scored=50.0, discarded=10.0, neighbour=14.0),
        ],
        objective=msgspec.structs.replace(result.objective, slo=Slo(0.99, 0.1, "--slo p99=100ms")),
        default=msgspec.structs.replace(result.default, profile=default, serving=served(20.0)),
        winners=result.winners
        | {
            winner_class: msgspec.structs.replace(
                result.winners[winner_class], profile=winner, serving=served(40.0)
            )
        },
    )


def about(seconds: float) -> Interval:
    return Interval(seconds, seconds - 0.001, seconds + 0.001, 0.95)


def explained(result: Result) -> Why:
    """Convolutions that take a third of their time."""
    classes = [
        ClassTime(OperatorClass.CONVOLUTION, about(0.03), about(0.01), about(0.02)),
        ClassTime(OperatorClass.OVERHEAD, about(0.01), about(0.01), about(0.0)),
    ]
    configuration = result.winners[result.recommended_class].configuration
    best = HostBest({"fp32": 1e11, "bf16": 2e11}, {"fp32": "mm", "bf16": "mm"}, 1e10, "copy")
    points = [
        RooflinePoint(None, 1e9, 1e8, 5e7, 0.04, 0.02),
        RooflinePoint(OperatorClass.CONVOLUTION, 1e9, 5e7, 2.5e7, 0.03, 0.01),
    ]
    roof = Roofline(points, "bf16", 0.005, OperatorClass.OVERHEAD, 0.01)
    return Why(
        configuration,
        3,
        0.04,
        0.02,
        classes,
        1.0,
        about(2.0),
        "a profiler",
        best=best,
        roofline=roof,
    )


def served(edge: float) -> Serving:
    """Two launches whose latency crosses 100 ms at a rate."""
    rates = [
        TriedRate(number, edge * by, 200, 0.04, 0.1 * by**3)
        for number in (1, 2)
        for by in (0.7, 0.9, 1.1, 1.3)
    ]
    return Serving(rates, 2, 2, is_open=False, queue_share=0.3, generator=0.01)


def draw(chart: Chart, width: int) -> str:
    (svg,) = report.drawings([specification(chart, width)])  # type: ignore[attr-defined]
    return in_page(chart, svg)


def test_a_process_of_its_own_draws_the_same() -> None:
    """As users have it; the other tests draw in one that stays (conftest.py)."""
    chart = FIGURES["speedups"](whole())
    assert chart is not None
    asked = [specification(chart, 860)]
    assert drawings(asked) == report.drawings(asked)  # type: ignore[attr-defined]
    assert drawings is not report.drawings  # type: ignore[attr-defined]


def drawn(name: str, result: Result, width: int = 860) -> tuple[Chart, ElementTree.Element]:
    chart = FIGURES[name](result)
    assert chart is not None
    svg = draw(chart, width)
    return chart, ElementTree.fromstring(svg.replace("<svg", f'<svg xmlns="{SVG[1:-1]}"', 1))


def told(svg: ElementTree.Element) -> list[str]:
    """What a screen reader says of each mark."""
    return [e.get("aria-label", "") for e in svg.iter() if e.get("aria-roledescription")]


def texts(svg: ElementTree.Element) -> list[str]:
    return ["\n".join(e.itertext()) for e in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("width", [860, 340])
def test_every_figure_is_as_wide_as_asked_and_says_what_it_shows(name: str, width: int) -> None:
    chart, svg = drawn(name, whole(), width)
    assert abs(float(svg.get("width", "0")) - width) <= 2
    assert svg.get("viewBox")
    label = next(
        e.get("aria-label", "") for e in svg.iter() if e.get("role") == "graphics-document"
    )
    assert label == f"{chart.title}: {chart.summary}"
    assert told(svg)


class Label(NamedTuple):
    """Where a level text lies, in pixels."""

    text: str
    left: float
    right: float
    baseline: float

    def meets(self, other: "Label") -> bool:
        """Tell whether it touches another one, or leaves less than 2 pixels between them."""
        is_apart = self.right + 2 < other.left or other.right + 2 < self.left
        return not is_apart and abs(self.baseline - other.baseline) < 11


def labels(element: ElementTree.Element, x: float = 0.0, y: float = 0.0) -> list[Label]:
    """Return the visible level texts, at 6.6 pixels a letter of 12 pixels."""
    moved = element.get("transform", "")
    if found := re.match(r"translate\((-?[\d.]+),(-?[\d.]+)", moved):
        x, y = x + float(found[1]), y + float(found[2])
    if element.tag != f"{SVG}text":
        return [label for each in element for label in labels(each, x, y)]
    if lines := element.findall(f"{SVG}tspan"):  # each is a text of its own, below the last
        plain = {k: v for k, v in element.attrib.items() if k != "transform"}
        found_lines: list[Label] = []
        for line in lines:
            y += float(line.get("dy", "0"))
            alone = ElementTree.Element(element.tag, plain)
            alone.text = line.text
            found_lines += labels(alone, x, y)
        return found_lines
    text = "".join(element.itertext())
    if not text or element.get("opacity") == "0" or "rotate" in moved:
        return []
    wide = 0.55 * float(element.get("font-size", "12px").removesuffix("px")) * len(text)
    anchor = element.get("text-anchor", "start")
    left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
    return [Label(text, left, left + wide, y)]


@pytest.mark.parametrize("width", [860, 340])
@pytest.mark.parametrize("name", FIGURES)
def test_no_label_lies_on_another_or_is_cut_off(name: str, width: int) -> None:
    """Of real studies, of which settings and ratios differ widely."""
    for result in [whole(), *map(read_result, REAL)]:
        if FIGURES[name](result) is None:
            continue
        _, svg = drawn(name, result, width)
        shown = labels(svg)
        assert shown
        assert [label for label in shown if label.left < -3 or label.right > width + 3] == []
        assert [pair for pair in itertools.combinations(shown, 2) if pair[0].meets(pair[1])] == []


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.95, 1.05, [0.95, 1, 1.05]),
        (0.88, 2.7, [1, 1.4, 2]),
        (0.4, 1.6, [0.4, 0.6, 1, 1.5]),
        (0.5, 20, [1, 3, 10]),
        (0.001, 1.05, [0.001, 0.01, 0.1, 1]),
    ],
)
def test_a_ratio_axis_has_a_tick_at_1_and_room_between_ticks(
    low: float, high: float, ticks: list[float]
) -> None:
    assert ratio_ticks(low, high) == ticks


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_needs_anything_from_outside_or_shares_a_name_with_another(name: str) -> None:
    chart = FIGURES[name](whole())
    assert chart is not None
    svg = draw(chart, 860)
    assert "http" not in svg
    assert "<script" not in svg
    assert "url(" not in svg
    assert not re.search(r'\sid="', svg)


def test_speedups_show_the_default_the_baselines_and_the_winners_with_their_intervals() -> None:
    result = whole()
    chart, svg = drawn("speedups", result)
    names = texts(svg)
    # the guide's bf16 is the winner: one measurement, drawn once
    assert {"default", "no code change", "same precision", "bf16\ntorch_guide_bf16"} <= set(names)
    assert "torch_guide_bf16" not in names
    assert sum("torch_guide_bf16: " in text for text in told(svg)) == 1
    confirmed = next(b for b in result.baselines if b.speedup and not b.same_as)
    assert confirmed.speedup is not None
    point, low, high = (confirmed.speedup.point, confirmed.speedup.low, confirmed.speedup.high)
    assert any(f"{confirmed.name}: {point:.2f}x ({low:.2f} to {high:.2f})" in t for t in told(svg))
    searched = next(
        b for b in result.baselines if b.search_ratio and not b.speedup and not b.same_as
    )
    assert any(
        f"{searched.name}: {searched.search_ratio:.2f}x in the search" in t for t in told(svg)
    )
    assert "hints, no claims" in chart.summary


@pytest.mark.parametrize("point", [0.03, 1.1, 25.0])
def test_an_unbounded_interval_is_cut_and_a_far_one_is_drawn_where_it_is(point: float) -> None:
    result = whole()

    def extent(interval: Interval) -> tuple[float, float, str]:
        winner = msgspec.structs.replace(result.winners[SAME], speedup=interval)
        chart = FIGURES["speedups"](
            msgspec.structs.replace(result, winners=result.winners | {"same_precision": winner})
        )
        assert chart is not None
        row = next(r for r in chart.spec["data"]["values"] if r["name"] == "same precision")
        return row["low"], row["high"], row["text"]

    assert extent(Interval(point, point / 1.2, point * 1.2, 0.95))[:2] == (point / 1.2, point * 1.2)
    low, high, told = extent(Interval(point, 1e-9, 1e9, 0.95))
    assert (low, high) == (point / 20, point * 20)
    assert told.endswith("drawn shorter")


@pytest.mark.parametrize("name", ["speedups", "contributions"])
def test_where_an_interval_is_cut_an_arrow_names_how_far_it_reaches(name: str) -> None:
    intervals = {
        "no_code": Interval(1.5, 0.01, 1.7, 0.95),
        "same_precision": Interval(1.5, 0.02, 80.0, 0.95),
        "reduced_precision": Interval(1.5, 1.2, 1e300, 0.95),
    }
    result = whole()
    winners = {
        n: msgspec.structs.replace(result.winners[SAME], speedup=i) for n, i in intervals.items()
    }
    log_score = [Contribution("a", n, 1.5, i, 6) for n, i in intervals.items()]
    cut = msgspec.structs.replace(result, winners=winners, contributions=log_score)
    chart, svg = drawn(name, cut, 340)
    reach = [text for text in texts(svg) if re.fullmatch(r"\d+\.\d\d|unbounded", text)]
    assert sorted(reach) == ["0.01", "0.02", "80.00", "unbounded"]
    paths = [e.get("d", "") for e in svg.iter(f"{SVG}path") if e.get("fill") == GREY]
    triangles = [d for d in paths if re.fullmatch(r"M[^LA]+L[^LA]+L[^LA]+Z", d)]
    assert len(triangles) == len(reach)
    words = "An arrow marks an interval that reaches further"
    assert words in chart.summary
    whole_chart = FIGURES[name](result)
    assert whole_chart is not None
    assert words not in whole_chart.summary


def test_every_trial_is_in_the_history_and_failures_are_no_numbers() -> None:
    result = whole()
    trials = list(result.trials)
    trials[3] = msgspec.structs.replace(
        trials[3], outcome="crashed", reason="killed", search_ratio=None
    )
    _, svg = drawn("history", msgspec.structs.replace(result, trials=trials))
    said = told(svg)
    assert len([t for t in said if "trial " in t]) == len(trials)
    assert any(f"trial {trials[3].number}, {trials[3].source}: crashed" in t for t in said)


def test_settings_of_what_was_measured_are_axes_with_their_values() -> None:
    result = whole()
    _, svg = drawn("parallel", result)
    shown = texts(svg)
    assert "launch.allocator" in shown
    assert "tcmalloc" in shown
    assert "(not set)" in shown


def test_a_value_that_is_called_default_is_not_what_is_not_set() -> None:
    result = whole()
    trials = [
        msgspec.structs.replace(t, configuration={"torch.compile.mode": "default"})
        if t.configuration.get("launch.allocator") == "tcmalloc"
        else t
        for t in result.trials
    ]
    _, svg = drawn("parallel", msgspec.structs.replace(result, trials=trials))
    assert {"default", "(not set)"} <= set(texts(svg))


def test_operators_are_compared_by_their_shares() -> None:
    _, svg = drawn("operators", whole())
    said = told(svg)
    assert any(t.startswith("default, aten::conv: 80%") for t in said)
    assert any("mkldnn::conv: 100%" in t for t in said)


def test_classes_are_stacked_for_both_in_one_order() -> None:
    result = whole()
    _, svg = drawn("why", result)
    tuned = class_title(result.recommended_class)
    assert [each for each in told(svg) if each.endswith("ms an item")] == [
        "default, convolution: 30 ms an item",
        f"{tuned}, convolution: 10 ms an item",
        "default, framework overhead: 10 ms an item",
        f"{tuned}, framework overhead: 10 ms an item",
    ]


def test_a_winner_that_was_not_explained_has_no_figure() -> None:
    result = whole()
    (known,) = result.why
    of_another = msgspec.structs.replace(known, configuration={"torch.dtype": "fp64"})
    for name in ("why", "roofline"):
        assert FIGURES[name](msgspec.structs.replace(result, why=[of_another])) is None


def test_products_are_drawn_below_the_roofs_of_both_types() -> None:
    result = whole()
    chart, svg = drawn("roofline", result)
    tuned = class_title(result.recommended_class)
    assert [each for each in told(svg) if "GFLOP/s at" in each] == [
        "default, the model: 25 GFLOP/s at 10 operations per byte",
        f"{tuned}, the model: 50 GFLOP/s at 20 operations per byte",
        "default, convolution: 33.3 GFLOP/s at 20 operations per byte",
        f"{tuned}, convolution: 100 GFLOP/s at 40 operations per byte",
    ]
    roofs = chart.spec["layer"][0]["data"]["values"]
    for dtype, flops in (("fp32", 100), ("bf16", 200)):
        corners = [(row["intensity"], row["giga"]) for row in roofs if row["dtype"] == dtype]
        (low, start), (ridge, top), (_, end) = corners
        assert (ridge, top, end) == (flops / 10, flops, flops)
        assert start == pytest.approx(low * 10)


def test_a_long_study_has_no_more_marks_than_can_be_seen() -> None:
    chart, svg = drawn("timeline", whole())
    assert "1 of 1000 slices were disturbed" in chart.summary
    assert len(list(svg.iter(f"{SVG}path"))) + len(list(svg.iter(f"{SVG}line"))) < 1000


def test_the_bar_is_as_long_as_the_wall_clock_and_names_every_part() -> None:
    chart, svg = drawn("spending", whole(), 340)
    assert chart.title == "Where the 10 minutes went"
    assert chart.summary.startswith("615 s of 1800 s. Timed:")
    parts = {
        "timed": 200, "pacer": 120, "starting": 90, "compiling": 40, "warming up": 40,
        "checks": 15, "waiting": 30, "the tool": 80,
    }  # fmt: skip
    assert [t for t in told(svg) if t.endswith("%")] == [
        f"{k}: {s} s, {s / 615:.0%}" for k, s in parts.items()
    ]
    parts_told = [f"{i} {kind} {s} s" for i, (kind, s) in enumerate(parts.items(), 1)]
    assert set(parts_told) <= set(texts(svg))
    numbered = [text for text in texts(svg) if len(text) == 1 and text != "0"]
    assert numbered == ["1", "2", "3", "4", "5", "7", "8"]  # the sixth is too short for a number


def test_what_took_no_time_is_no_part_of_the_bar_and_others_keep_their_colours() -> None:
    colours_of = []
    for row in (PhaseSeconds("explore", scored=60.0, own=40.0), PhaseSeconds("explore", own=1.0)):
        result = msgspec.structs.replace(whole(), seconds_by_phase=[row])
        _, svg = drawn("spending", result)
        bars = [e for e in svg.iter(f"{SVG}path") if e.get("aria-roledescription") == "bar"]
        colours_of.append({e.get("aria-label", "").split(":")[0]: e.get("fill") for e in bars})
    assert set(colours_of[0]) == {"timed", "the tool"}
    assert colours_of[1] == {"the tool": colours_of[0]["the tool"]}


@pytest.mark.parametrize(
    "name", ["contributions", "operators", "timeline", "batches", "spending", "why", "roofline"]
)
def test_what_was_not_measured_has_no_figure(name: str) -> None:
    nothing: dict[str, Any] = json.loads(SAMPLE.read_text())
    nothing |= {"contributions": None, "timeline": [], "trials": nothing["trials"][:1]}
    assert FIGURES[name](msgspec.convert(nothing, Result)) is None


@pytest.mark.parametrize("name", FIGURES)
def test_hostile_text_stays_text(name: str) -> None:
    bad = '</text><script>alert(1)</script><image href="http://x"/>&quot;'
    result = whole()
    operator = OperatorProfile([Operator(bad, 0.1, 1)], 4, 0.2, bad)
    hostile = msgspec.structs.replace(
        result,
        default=msgspec.structs.replace(result.default, profile=operator),
        baselines=[msgspec.structs.replace(b, name=bad) for b in result.baselines],
        contributions=[Contribution(bad, bad, 1.1, None, 0)],
        trials=[
            msgspec.structs.replace(
                t,
                source=bad,
                configuration={
                    bad: f"{bad}{t.number}",
                    "workload.batch": t.number,
                    "b": t.number % 2,
                },
            )
            for t in result.trials
        ]
        + [
            msgspec.structs.replace(t, configuration={"workload.batch": 4 * i})
            for i, t in enumerate(result.trials)
        ],
        timeline=[
            msgspec.structs.replace(m, dirty=[bad] if m.dirty else []) for m in result.timeline
        ],
    )
    _, svg = drawn(name, hostile)
    assert not [e for e in svg.iter() if e.tag in (f"{SVG}script", f"{SVG}image")]


def test_the_latency_under_load_is_drawn_rate_by_rate_with_its_bound() -> None:
    chart, svg = drawn("front", whole())
    points = [text for text in told(svg) if "requests/s" in text]
    assert len(points) == 16
    assert "the default: 18 requests/s, p99 72.9 ms" in points
    assert "p99 within 100 ms (--slo p99=100ms)" in chart.summary
    assert FIGURES["front"](read_result(SAMPLE)) is None
