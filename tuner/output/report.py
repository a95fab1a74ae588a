"""report.md and report.html, rendered from the result alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from tuner.galleries import TEMPLATES
from tuner.output.assemble import outcome_counts, verdict_line
from tuner.record.files import write_whole
from tuner.record.launch import OutputCheck
from tuner.record.result import Interval, Result

_N_TOP1 = 64
"""Inputs that a comparison of classes needs; settings that keep the numerics get fewer."""


def ratio(interval: Interval | None) -> str:
    """Write a ratio with its interval: 1.65x (1.52 - 1.79)."""
    if interval is None:
        return "-"
    return f"{interval.point:.2f}x ({interval.low:.2f} - {_number(interval.high)})"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else "unbounded"


def rate(interval: Interval | None) -> str:
    """Write a rate with its interval."""
    if interval is None:
        return "-"
    return f"{interval.point:.4g} ({interval.low:.4g} - {interval.high:.4g})"


def settings(configuration: dict[str, Any]) -> str:
    """Write a configuration on one line."""
    return " ".join(f"{knob}={value}" for knob, value in configuration.items()) or "the default"


def _drift(check: OutputCheck | None) -> str:
    """Write how far the outputs are from the default's; top-1 where enough inputs were compared."""
    if check is None:
        return "-"
    text = f"{check.drift:.2g}"
    if check.top1_agreement is not None and check.n_inputs >= _N_TOP1:
        meaning = "" if check.top1_informative else " (uninformative)"
        text += f", top-1 {check.top1_agreement:.1%}{meaning}"
    return text


def _cell(text: object) -> str:
    """Keep a value from breaking a Markdown table."""
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _mebibytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"


def render(result: Result, template: str) -> str:
    """Render one template; everything that is put into HTML is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=template.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "ratio": ratio,
        "rate": rate,
        "settings": settings,
        "drift": _drift,
        "cell": _cell,
        "mebibytes": _mebibytes,
        "verdict": verdict_line,
    }
    return environment.get_template(template).render(r=result, counts=outcome_counts(result))


def write_reports(folder: Path, result: Result) -> None:
    """Write report.md and report.html."""
    for name in ("report.md", "report.html"):
        write_whole(folder / name, render(result, f"{name}.j2"))
