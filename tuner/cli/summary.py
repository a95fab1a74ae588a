"""The table at the end of a run: default, baselines, the three winners."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.output.assemble import verdict_line
from tuner.output.report import rate, ratio, settings
from tuner.record.result import Result

_STYLES = {"faster": "bold green", "keep_default": "bold", "ambiguous": "bold yellow"}


def show(result: Result, folder: Path) -> None:
    """Print what a study found."""
    console = Console(highlight=False)
    console.print()
    console.print(
        Text(f"{result.model_title}, {result.framework}, {result.scenario}: ", style="bold"),
        Text(verdict_line(result.verdict), style=_STYLES[result.verdict]),
        end="",
    )
    console.print(f"  {ratio(result.speedup)}" if result.speedup else "")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "speedup", "verdict", "settings"):
        table.add_column(name, no_wrap=name in ("", "speedup"))
    default_rate = f"{rate(result.default.rate)} {result.objective.unit}"
    table.add_row("default", "1.00x", default_rate, f"batch {result.default.batch}")
    for baseline in result.baselines:
        if not baseline.applicable:
            table.add_row(baseline.name, "-", Text("not applicable"), Text(baseline.reason))
            continue
        what = f"same as {baseline.same_as}" if baseline.same_as else "baseline"
        searched = f"{baseline.search_ratio:.2f}x in the search" if baseline.search_ratio else "-"
        shown = ratio(baseline.speedup) if baseline.speedup else searched
        dead = f"; dead: {len(baseline.dead_settings)}" if baseline.dead_settings else ""
        table.add_row(
            baseline.name, shown, Text(f"{what}{dead}"), Text(settings(baseline.configuration))
        )
    for name, winner in result.winners.items():
        mark = " *" if name == result.recommended_class else ""
        table.add_row(
            Text(f"{name}{mark}", style="bold"),
            ratio(winner.speedup),
            Text(verdict_line(winner.verdict), style=_STYLES[winner.verdict]),
            Text(settings(winner.configuration)),
        )
    console.print(table)
    ignored = sorted({k for w in result.winners.values() for k in w.not_in_force})
    refused = [t for t in result.trials if "is not in force" in t.reason]
    console.print(
        f"[dim]* recommended; speedups are against the default, each at its best batch, at "
        f"{0.95:.0%} confidence; noise floor {result.noise_floor:.1%}[/dim]"
    )
    console.print(
        f"not in force: {', '.join(ignored) or 'nothing among the winners'}"
        + (f"; {len(refused)} trial(s) not credited for it" if refused else "")
    )
    for text in result.warnings:
        console.print(Text(f"warning: {text}", style="yellow"))
    console.print(Text(f"report: {folder / 'report.html'}   settings: {folder}/recommended.toml"))
