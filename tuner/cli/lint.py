"""tune-framework lint FILE: what of a launch file is dead, contradictory or missing here."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import typer
from rich.text import Text

from tuner.cli.progress import progress
from tuner.cli.tables import text_console
from tuner.errors import UsageError
from tuner.galleries import GUIDELINES
from tuner.linting import PROBE_MODEL, WORDS, Linted, Slip, lint
from tuner.record.guidelines import read_guidelines
from tuner.request import Request

EXIT_FAULTY = 4
_STYLES = {"contradiction": "bold red", "unusable": "bold red", "beyond": "bold red",
           "dead": "bold yellow", "hurts": "bold yellow"}  # fmt: skip


def main(
    path: Path,
    model: str | None,
    hardware: str,
    frameworks: list[str],
    rules: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print the findings; exits with 4 where something is wrong."""
    if path.suffix == ".toml":
        raise UsageError(
            f"{path} is no launch file: lint what starts your program; a recommendation is held "
            f"against this host by: tune-framework verify {path}"
        )
    request = Request(
        model=model or PROBE_MODEL,
        hardware=hardware,
        frameworks=tuple(dict.fromkeys(frameworks)),
    )
    where = rules or (GUIDELINES if GUIDELINES.is_file() else None)
    guidelines = None if where is None else read_guidelines(where)
    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        found = lint(path, request, guidelines, listen)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        _show(found)
    if found.faults:
        raise typer.Exit(EXIT_FAULTY)


def _show(found: Linted) -> None:
    console = text_console()
    for slip in found.slips:
        console.print(Text(_place(slip)), Text(WORDS[slip.kind], style=_STYLES.get(slip.kind, "")),
                      Text(f": {slip.what}"), sep="", soft_wrap=True)  # fmt: skip
        console.print(Text(f"    {slip.evidence}", style="dim"), soft_wrap=True)
    for line, text in found.not_understood:
        console.print(Text(f"line {line}: not understood: {text}", style="dim"), soft_wrap=True)
    for note in found.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)
    n = found.n_settings
    told = f"{n} tuning variable{'' if n == 1 else 's'} read, for {' and '.join(found.frameworks)}"
    if not n and not found.faults:
        told += " (is it a launch file?)"
    faults = len(found.faults)
    what = f"{faults} fault{'' if faults == 1 else 's'}" if faults else "nothing wrong"
    console.print(Text(f"{told}: {what}"), soft_wrap=True)


def _place(slip: Slip) -> str:
    where = f"{slip.container}, " if slip.container else ""
    return f"{where}line {slip.line}: " if slip.line else where
