"""tune-framework report DIR: render a study again from its result.json."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tuner.cli.summary import show
from tuner.output.report import write_reports
from tuner.record.files import read_result


def main(folder: Path, *, as_json: bool) -> None:
    """Write report.md and report.html again; print the summary, or the result as JSON."""
    result = read_result(folder / "result.json")
    write_reports(folder, result)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
    else:
        show(result, folder)
