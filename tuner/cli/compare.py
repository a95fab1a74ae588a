"""tune-framework compare DIR...: finished studies side by side, and what changed between them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.cli.printable import printable
from tuner.cli.tables import wide_console
from tuner.output.compare import Comparison, compare, find_studies
from tuner.output.phrases import elsewhere, verdict_line
from tuner.output.price import price
from tuner.output.report import write_comparison
from tuner.output.values import default_value, ratio
from tuner.record.journal import WinnerClass


def main(places: Sequence[Path], out: Path | None, *, as_json: bool) -> None:
    """Print a table of studies and of their changes; write it as a page too where asked."""
    comparison = compare(find_studies(places))
    if out is not None:
        write_comparison(out, comparison)
    if as_json:
        data = msgspec.json.format(msgspec.json.encode(comparison), indent=2)
        sys.stdout.write(data.decode() + "\n")
        return
    _show(comparison)
    if out is not None:
        print(printable(f"written to {out}"))


def _show(comparison: Comparison) -> None:
    console = wide_console()
    classes = [str(klass) for klass in WinnerClass]
    of_fleet = ["hosts", "on other hosts"] if any(s.row for s in comparison.studies) else []
    table = Table("study", "begun (UTC)", "model", "framework", "default", *classes, "verdict",
                  *of_fleet, "at the price of", box=None, pad_edge=False)  # fmt: skip
    for study in comparison.studies:
        r = study.result
        speedups = (ratio(r.winners[klass].speedup) for klass in classes)
        version = r.versions.get(r.framework, "")
        begun = r.created[:16].replace("T", " ")
        row = study.row
        own = (", ".join(row.hosts), elsewhere(row) or "-") if row else ("-", "-")
        cells = (study.name, begun, r.model_title, f"{r.framework} {version}", default_value(r),
                 *speedups, verdict_line(r.verdict), *own[: len(of_fleet)],
                 price(r) or "-")  # fmt: skip
        table.add_row(*map(Text, cells))  # not markup: names are a user's
    console.print(table)
    for change in comparison.changes:
        console.print()
        console.print(Text(change.title, style="bold"))
        differs = "; ".join(change.differs) or "hosts, versions and settings are the same"
        console.print(Text(f"  {differs}"))
        for shift in change.shifts:
            style = {"slower": "bold red", "faster": "green"}.get(shift.direction, "")
            note = f" ({shift.note})" if shift.note else ""
            text = f"  {shift.figure}: {ratio(shift.ratio)}, {shift.direction}{note}"
            console.print(Text(text, style=style))
    if any(change.is_regression for change in comparison.changes):
        console.print()
        console.print(
            "slower: the interval of the quotient does not hold 1; it knows nothing of how a host "
            "drifts between days: tune both again before you act on it"
        )
