"""tune-framework report DIR: render a study again from its result.json."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tuner.cli.summary import show
from tuner.errors import UsageError
from tuner.output.report import write_reports
from tuner.record.files import read_result
from tuner.record.integrity import RESULT
from tuner.record.lines import goes_on_with


def main(folder: Path, *, as_json: bool) -> None:
    """Write report.md and report.html again; print the summary, or the result as JSON."""
    if not (folder / RESULT).exists():  # else it is shown, whatever became of the study's files
        command = goes_on_with(folder)
        if command is not None:
            goes_on = "the same command resumes it" + (f": {command}" if command else "")
            raise UsageError(f"the study in {folder} is not finished; {goes_on}")
    result = read_result(folder / RESULT)
    write_reports(folder, result)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
    else:
        show(result, folder)
