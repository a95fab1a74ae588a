"""tune-framework compare DIR...: finished studies side by side, and what changed between them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from rich.text import Text

from tuner.cli.printable import printable
from tuner.cli.summary import print_classes
from tuner.cli.tables import wide_console
from tuner.errors import UsageError
from tuner.output.compare import Comparison, compare, find_studies
from tuner.output.gate import judge, parse_condition
from tuner.output.phrases import elsewhere
from tuner.output.report import write_comparison
from tuner.output.values import default_value, ratio
from tuner.record.files import write_whole

_FAILED, _UNDECIDED = 4, 5
"""Exit codes, as those of verify."""


def main(
    places: Sequence[Path],
    out: Path | None,
    csv: Path | None,
    parquet: Path | None,
    fail_if: str | None,
    *,
    as_json: bool,
) -> None:
    """Print a table of studies and of their changes; write it as a page or as data if requested.

    Exits with 4 if the condition fail_if holds, with 5 if that is not decided.
    """
    share = None if fail_if is None else parse_condition(fail_if)
    comparison = compare(find_studies(places))
    judged = [] if share is None else judge(comparison, share)
    if out is not None:
        write_comparison(out, comparison)
    if csv is not None or parquet is not None:
        _write_data(comparison, csv, parquet)
    if as_json:
        data = msgspec.json.format(msgspec.json.encode(comparison), indent=2)
        sys.stdout.write(data.decode() + "\n")
    else:
        _show(comparison)
        for path in filter(None, (out, csv, parquet)):
            print(printable(f"written to {path}"))
    for each in judged:
        print(printable(f"{each.outcome}: {each.text}"), file=sys.stderr)
    outcomes = {each.outcome for each in judged}
    if outcomes - {"passed"}:
        raise typer.Exit(_FAILED if "failed" in outcomes else _UNDECIDED)


def _write_data(comparison: Comparison, csv: Path | None, parquet: Path | None) -> None:
    """Write the studies' frame; raises UsageError if its library is missing."""
    from tuner.record.frames import studies_frame

    if parquet is not None and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            "--parquet needs pyarrow, which is not installed: pip install 'tune-framework[parquet]'"
        )
    frame = studies_frame((study.name, study.result) for study in comparison.studies)
    if csv is not None:
        write_whole(csv, frame.to_csv(index=False))
    if parquet is not None:
        frame.to_parquet(parquet, index=False)


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
            hosts_elsewhere = elsewhere(study.row)
            by = f"on {', '.join(study.row.hosts)}" + (
                f"; elsewhere: {hosts_elsewhere}" if hosts_elsewhere else ""
            )
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
        for reason in change.because:
            console.print(Text(f"  {reason}"))
        console.print()
    if any(change.is_regression for change in comparison.changes):
        console.print(
            "slower: the interval of the quotient does not hold 1; it knows nothing of how a host "
            "drifts between days: tune both again before you act on it"
        )
