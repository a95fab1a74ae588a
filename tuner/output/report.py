"""report.md and report.html, rendered from the result alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tuner.galleries import TEMPLATES
from tuner.output.assemble import outcome_counts
from tuner.output.compare import Comparison
from tuner.output.figures import FIGURES
from tuner.output.figures.chart import Chart, draw
from tuner.output.figures.studies import studies
from tuner.output.phrases import FILTERS, is_recommended
from tuner.record.files import write_whole
from tuner.record.result import Result

_WIDE, _NARROW = 860, 340
"""Pixels of a figure on a desk and on a telephone."""
_HTML = ".html.j2"


def render(result: Result, template: str) -> str:
    """Render one template; everything that is put into HTML is escaped."""
    makers = FIGURES if template.endswith(_HTML) else {}
    figures = _drawn({name: make(result) for name, make in makers.items()})
    return _template(template).render(r=result, counts=outcome_counts(result), figures=figures)


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
    environment.globals["is_recommended"] = is_recommended
    return environment.get_template(name)


def _drawn(charts: Mapping[str, Chart | None]) -> dict[str, dict[str, Any]]:
    """Draw the charts that have something to show, for both widths."""
    return {
        name: {
            "title": chart.title,
            "summary": chart.summary,
            "wide": Markup(draw(chart, _WIDE)),  # Vega escapes all text that it writes
            "narrow": Markup(draw(chart, _NARROW)),
        }
        for name, chart in charts.items()
        if chart is not None
    }


def write_reports(folder: Path, result: Result) -> None:
    """Write report.md and report.html."""
    for name in ("report.md", "report.html"):
        write_whole(folder / name, render(result, f"{name}.j2"))


def write_comparison(path: Path, comparison: Comparison) -> None:
    """Write several studies side by side as one page."""
    figures = _drawn({"studies": studies(comparison)})
    write_whole(path, _template("compare.html.j2").render(c=comparison, figures=figures))
