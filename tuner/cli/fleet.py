"""tune-framework --models ... --fleet ...: many models on every kind of host of a cluster."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.app.request import Request
from tuner.cli.errors import complain
from tuner.cli.json_lines import write_line
from tuner.cli.progress import plain, progress
from tuner.cli.streams import is_output_lost
from tuner.cli.tables import wide_console
from tuner.fleet.ray_cluster import RayCluster
from tuner.fleet.running import folder_of, tune_fleet
from tuner.fleet.study_specs import as_everywhere, specs_of
from tuner.output.fleet import state_in_words
from tuner.output.phrases import elsewhere
from tuner.record.events import Event
from tuner.record.figures import duration
from tuner.record.index import Row


def main(
    wanted: str,
    request: Request,
    address: str,
    n_elsewhere: int,
    storage: str | None,
    *,
    as_json: bool,
) -> None:
    """Tune them, tell how it goes and what came of it; exits with the worst code of a study."""
    with progress(quiet=as_json) as show_progress:

        def listen(event: Event) -> None:
            show_progress(event)
            if as_json:
                write_line(event)

        rows = tune_fleet(
            wanted,
            request,
            listen,
            lambda: RayCluster(address),
            n_elsewhere=n_elsewhere,
            storage=storage,
        )
    folder = folder_of(request)
    if not as_json:
        _show(folder, rows)
    for row in rows:
        if row.state == "failed":
            complain(f"{row.folder}: {row.reason}")
    for kind, n_studies in Counter(row.kind for row in rows if row.state == "pending").items():
        complain(
            f"{n_studies} of kind {kind} not finished: no host of it is there and fit, or they "
            "were given up (see their rows); the same command resumes them"
        )
    if is_output_lost():
        complain(f"nothing else is lost: see {shlex.quote(str(folder / 'index.md'))}")
    if any(row.state != "done" or not _is_settled(row) for row in rows):
        raise typer.Exit(max(row.exit_code for row in rows) or 1)


def _is_settled(row: Row) -> bool:
    """Tell whether a winner was confirmed or refuted on as many other hosts as it was to be."""
    return row.verdict != "faster" or len(row.elsewhere) >= row.n_elsewhere


def show_wishes(wanted: str, request: Request, *, as_json: bool) -> None:
    """Print which studies there would be on every kind of host; asks no cluster."""
    listen = plain(Console(file=sys.stderr, highlight=False))
    specs = specs_of(wanted, as_everywhere(request), listen)
    if as_json:
        data = msgspec.json.format(msgspec.json.encode(specs), indent=2)
        sys.stdout.write(data.decode() + "\n")
        return
    table = Table("model", "framework", "on every kind of host", box=None, pad_edge=False)
    for spec in specs:
        table.add_row(
            *map(Text, (spec.shown, spec.framework, f"{duration(request.budget_s)} each"))
        )
    wide_console().print(table)


def _show(folder: Path, rows: Sequence[Row]) -> None:
    """Print the result for each kind of host, and the path of the index."""
    console = wide_console()
    console.print()
    table = Table("model", "framework", "kind", "found", "on other hosts", box=None, pad_edge=False)
    for row in sorted(rows, key=lambda row: (row.model, row.framework, row.kind)):
        cells = (row.model, row.framework, row.kind, state_in_words(row), elsewhere(row))
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(Text(f"all of them: {folder / 'index.html'}", style="dim"))
