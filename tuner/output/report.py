"""report.md and report.html, rendered from the result alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tuner.galleries import TEMPLATES
from tuner.output.advice import arms, in_words, to_apply
from tuner.output.compare import Comparison
from tuner.output.figures import FIGURES
from tuner.output.figures.chart import Chart, in_page, specification
from tuner.output.figures.drawing import NotDrawn, drawings
from tuner.output.figures.studies import studies
from tuner.output.headline import (
    class_lines,
    class_name,
    in_short,
    next_steps,
    what_was_tuned,
)
from tuner.output.measured import measured
from tuner.output.phrases import FILTERS, is_recommended
from tuner.output.spending import KINDS, MEANING
from tuner.output.trade_offs import trade_off_table
from tuner.record.files import write_whole
from tuner.record.outcome import Outcome
from tuner.record.result import Result

_WIDE, _NARROW = 860, 340
"""Pixels of a figure on a desk and on a telephone."""
_HTML = ".html.j2"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but for line ends and tabs, and halves of characters: no text of ours has any,
and a terminal that a report is printed on would obey them."""


def render(result: Result, template: str, folder: Path = Path()) -> str:
    """Render one template; everything that is put into HTML is escaped.

    folder: the study's, as seen from where it was begun.
    """
    makers = FIGURES if template.endswith(_HTML) else {}
    figures, undrawn = _drawn({name: make(result) for name, make in makers.items()})
    text = _template(template).render(
        r=result, folder=folder, counts=_outcome_counts(result), figures=figures, undrawn=undrawn
    )
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _outcome_counts(result: Result) -> dict[Outcome, int]:
    """Count the trials by outcome."""
    return dict(Counter(trial.outcome for trial in result.trials))


@cache
def _template(name: str) -> jinja2.Template:
    """Return a template with all that it may use."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=name.endswith(_HTML),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= FILTERS
    environment.globals |= {"is_recommended": is_recommended, "kinds": KINDS}
    environment.globals["kinds_meaning"] = MEANING
    environment.filters |= {"in_words": in_words, "to_apply": to_apply, "arms": arms}
    environment.filters |= {
        "class_lines": class_lines,
        "class_name": class_name,
        "in_short": in_short,
        "next_steps": next_steps,
        "what_was_tuned": what_was_tuned,
        "measured": measured,
        "trade_off_table": trade_off_table,
    }
    return environment.get_template(name)


def _drawn(charts: Mapping[str, Chart | None]) -> tuple[dict[str, dict[str, Any]], str]:
    """Draw the charts that have something to show, for both widths; or say why they are not."""
    shown = {name: chart for name, chart in charts.items() if chart is not None}
    try:
        made = drawings([specification(c, w) for c in shown.values() for w in (_WIDE, _NARROW)])
    except NotDrawn as error:
        return {}, str(error)
    figures = {
        name: {
            "summary": chart.summary,
            "wide": Markup(in_page(chart, wide)),  # Vega escapes all text that it writes
            "narrow": Markup(in_page(chart, narrow)),
        }
        for (name, chart), wide, narrow in zip(shown.items(), made[::2], made[1::2], strict=True)
    }
    return figures, ""


def write_reports(folder: Path, result: Result) -> None:
    """Write report.md and report.html."""
    for name in ("report.md", "report.html"):
        write_whole(folder / name, render(result, f"{name}.j2", folder))


def render_index(template: str, **given: Any) -> str:
    """Render the index over several models."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _template(template).render(**given))


def write_comparison(path: Path, comparison: Comparison) -> None:
    """Write several studies side by side as one page."""
    write_page(path, "compare.html.j2", {"studies": studies(comparison)}, c=comparison)


def write_page(path: Path, template: str, charts: Mapping[str, Chart | None], **given: Any) -> None:
    """Render a template with its data, and the figures that it may request by name."""
    figures, undrawn = _drawn(charts)
    page = _template(template).render(figures=figures, undrawn=undrawn, **given)
    write_whole(path, _CONTROL.sub("\N{REPLACEMENT CHARACTER}", page))
