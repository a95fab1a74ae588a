"""The table at the end of a run: default, baselines, the three winners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tuner.cli.tables import wide_console
from tuner.output.caveats import disturbance, faster_still
from tuner.output.evidence import drift, typical
from tuner.output.index import best_guide, lines_of, reached, unfinished
from tuner.output.phrases import (
    against_as_run,
    best_candidate,
    is_recommended,
    noise_floor,
    removed,
    same_settings,
    settings,
    standing,
    verdict_line,
    with_along,
    worth,
    worth_unknown,
)
from tuner.output.price import price
from tuner.output.values import default_value, ratio, winner_ratio
from tuner.record.index import Row
from tuner.record.journal import WinnerClass
from tuner.record.result import Result

_STYLES = {"faster": "bold green", "keep_default": "bold", "ambiguous": "bold yellow"}


def show_index(folder: Path, rows: Sequence[Row]) -> None:
    """Print what several studies found, and where their index is."""
    console = wide_console()
    console.print()
    classes = [str(klass) for klass in WinnerClass]
    table = Table("model", "framework", "default", "best guide", *classes, "verdict",
                  box=None, pad_edge=False)  # fmt: skip
    for line in lines_of(folder, rows):
        row, r = line.row, line.result
        if r is None:
            table.add_row(*map(Text, (row.model, row.framework, unfinished(row))))
            continue
        speedups = (reached(r, klass) for klass in classes)
        cells = (row.model, row.framework, default_value(r), best_guide(r), *speedups,
                 verdict_line(r.verdict))  # fmt: skip
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(Text(f"all of them: {folder / 'index.html'}", style="dim"))


def show(result: Result, folder: Path) -> None:
    """Print what a study found."""
    console = wide_console()
    console.print()
    headline = f"{result.model_title}, {result.framework}, {result.load_in_words()}: "
    speedup = f"  {ratio(result.speedup)}" if result.speedup else ""
    if of_launches := typical(result.winners[result.recommended_class]):
        speedup += f" {of_launches}"
    at_the_price = f"; {price(result)}" if price(result) else ""
    console.print(
        Text.assemble(
            (headline, "bold"),
            (verdict_line(result.verdict), _STYLES[result.verdict]),
            speedup + at_the_price,
        )
    )
    if removed(result):
        console.print(Text.assemble(("environment: ", "bold"), removed(result)))
        now = against_as_run(result)
        console.print(Text.assemble(("against how you run it now: ", "bold"), now))
    if disturbance(result):
        console.print(Text(disturbance(result), style="bold yellow"))
    for text in faster_still(result):
        console.print(Text(text, style="bold yellow"))
    console.print(_table(result))
    for name, winner in result.winners.items():
        earlier = same_settings(result, name)
        shown = (
            f"as {earlier}" if earlier else best_candidate(winner) + settings(winner.configuration)
        )
        if name == WinnerClass.REDUCED and winner.output_drift and not earlier:
            shown += f"; outputs are off by {drift(winner.output_drift)}"
        console.print(Text.assemble((f"{name}: ", "bold"), shown))
    if result.contributions:
        told = ", ".join(
            f"{with_along(c)} {worth(c)}{'' if c.speedup else ' (in the search)'}"
            for c in result.contributions
        )
        if unknown := worth_unknown(result):
            told += f"; not measured: {', '.join(unknown)}"
        console.print(Text.assemble(("the recommended settings are worth: ", "bold"), told))
    ignored = sorted({k for w in result.winners.values() for k in w.not_in_force})
    refused = sum("is not in force" in trial.reason for trial in result.trials)
    is_any = any(w.verdict == "faster" for w in result.winners.values())
    in_force = f"settings of the winners not in force: {', '.join(ignored) or 'none'}"
    if not is_any and not ignored:
        in_force = "nothing is proved to be faster"
    if refused:
        in_force += f"; {refused} trial(s) not credited because a setting was not in force"
    console.print(Text(in_force))
    for text in result.warnings:
        console.print(Text(f"warning: {text}", style="yellow"))
    paths = f"report: {folder / 'report.html'}"
    if (settings_path := folder / "recommended.toml").exists():
        paths += f"   settings: {settings_path}"
    console.print(Text(paths))


def _table(result: Result) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("speedup, 95 % interval", no_wrap=True)
    table.add_column("")
    table.add_row(
        "default", "-" if result.default_meets_slo is False else "1.00x", default_value(result)
    )
    for baseline in result.baselines:
        shown = f"{baseline.search_ratio:.2f}x in the search" if baseline.search_ratio else "-"
        if baseline.speedup:
            shown = ratio(baseline.speedup)
        notes = [standing(baseline)] if standing(baseline) else []
        if baseline.dead_settings:
            notes.append(f"{len(baseline.dead_settings)} dead setting(s)")
        if baseline.substituted:
            notes.append(f"{len(baseline.substituted)} substituted")
        table.add_row(Text(baseline.name), shown, Text(", ".join(notes) or "baseline"))
    for name, winner in result.winners.items():
        mark = ", recommended" if is_recommended(result, name) else ""
        table.add_row(
            Text(name, style="bold"),
            winner_ratio(winner),
            Text(verdict_line(winner.verdict) + mark, style=_STYLES[winner.verdict]),
        )
    table.caption = (
        f"against the default, each at its best batch; noise floor {noise_floor(result)}"
    )
    table.caption_justify = "left"
    return table
