"""tune-framework compare DIR...: finished studies side by side, and what changed between them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.text import Text

from tuner.cli.printable import printable
from tuner.cli.summary import print_classes
from tuner.cli.tables import wide_console
from tuner.output.compare import Comparison, compare, find_studies
from tuner.output.phrases import elsewhere
from tuner.output.report import write_comparison
from tuner.output.values import default_value, ratio


def main(places: Sequence[Path], out: Path | None, *, as_json: bool) -> None:
    """Print a table of studies and of their changes; write it as a page too if requested."""
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
    for study in comparison.studies:
        r = study.result
        begun = r.created[:16].replace("T", " ")
        version = r.versions.get(r.framework, "")
        of = f"{r.model_title} · {r.framework} {version} · {begun} UTC · default {default_value(r)}"
        console.print(Text.assemble((study.name, "bold"), f"  {of}"))
        print_classes(console, r)
        if study.row is not None:
            asked = elsewhere(study.row)
            by = f"on {', '.join(study.row.hosts)}" + (f"; elsewhere: {asked}" if asked else "")
            console.print(Text(by))
        console.print()
    for change in comparison.changes:
        console.print(Text(change.title, style="bold"))
        differs = "; ".join(change.differs) or "hosts, versions and settings are the same"
        console.print(Text(f"  {differs}"))
        for shift in change.shifts:
            style = {"slower": "bold red", "faster": "green"}.get(shift.direction, "")
            note = f" ({shift.note})" if shift.note else ""
            text = f"  {shift.figure}: {ratio(shift.ratio)}, {shift.direction}{note}"
            console.print(Text(text, style=style))
        console.print()
    if any(change.is_regression for change in comparison.changes):
        console.print(
            "slower: the interval of the quotient does not hold 1; it knows nothing of how a host "
            "drifts between days: tune both again before you act on it"
        )
