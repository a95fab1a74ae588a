"""tune-framework guidelines DIR...: distil the designed parts of many studies into rules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.cli.printable import printable
from tuner.cli.tables import wide_console
from tuner.guidelines.studies import make_guidelines, read_recordings
from tuner.output.guidelines import Part, Shown, parts_of, write_guidelines
from tuner.record.moments import utc_now


def main(folders: Sequence[Path], out: Path, *, as_json: bool) -> None:
    """Distil, write the page and its data, and print the rules."""
    recordings = read_recordings(folders)
    guidelines = make_guidelines(recordings, utc_now())
    write_guidelines(out, guidelines, recordings)
    if as_json:
        data = msgspec.json.format(msgspec.json.encode(guidelines), indent=2)
        sys.stdout.write(data.decode() + "\n")
        return
    for part in parts_of(guidelines):
        _show(part)
    print(printable(f"{len(guidelines.studies)} studies; rules and their evidence: "
                    f"{out / 'guidelines.html'}"))  # fmt: skip


def _show(part: Part) -> None:
    console = wide_console()
    table = Table(part.framework, "effect (95 %)", "in another family (90 %)", "for / against",
                  "where", box=None, pad_edge=False)  # fmt: skip
    groups = {"set": part.set, "leave alone": part.leave, "try": part.open, "too few": part.weak}
    for name, rows in groups.items():
        for row in rows:
            table.add_row(*map(Text, _cells(name, row)))
    console.print(table)
    console.print()


def _cells(group: str, row: Shown) -> tuple[str, ...]:
    rule = row.rule
    return (
        f"{group}: {row.what}",
        row.effect,
        row.expected,
        f"{row.n_for} / {row.n_against} of {rule.n_families}",
        row.where or "every model",
    )
