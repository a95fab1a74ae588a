"""tune-framework explain: where the time of a recommendation goes, and where it is saved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.table import Table

from tuner.app.explain import ExplainRequest, run_explain
from tuner.app.request import parse_duration
from tuner.cli.printable import printable
from tuner.cli.progress import progress
from tuner.cli.tables import text_console
from tuner.errors import UsageError
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output.why import heads, in_short, rows, what_is_left
from tuner.record.why import Why


class Settings(NamedTuple):
    """What is profiled without a recommendation."""

    fix: tuple[str, ...]
    framework: str | None
    batch: int | None


def main(
    path: Path | None,
    model: str | None,
    inputs: Path | None,
    budget: str,
    *,
    settings: Settings,
    allow_pickle: bool,
    as_json: bool,
    testbed: Testbed | None = None,
) -> None:
    """Measure, and print the classes of operators and what differs."""
    if model is not None and not model.strip():
        raise UsageError("--model is empty; leave it out, or name a model")
    request = ExplainRequest(path, parse_duration(budget), model, *settings, inputs, allow_pickle)

    def show(found: Why) -> None:
        _show(found, as_json=as_json)

    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        run_explain(request, listen, testbed or THIS_HOST, show)


def _show(found: Why, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        return
    table = Table(*heads(found), box=None)
    for row in rows(found):
        table.add_row(*row)
    text_console().print(table)
    if found.configuration:
        print(printable(f"{found.n_rounds} rounds: {in_short(found)}"))
    for sentence in what_is_left(found):
        print(printable(sentence))
