"""tune-framework doctor: what makes measurements unreliable here, and how to fix it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from rich.text import Text

from tuner.cli.tables import text_console
from tuner.host.checks import examine, look_around
from tuner.host.identity import probe

_STYLES = {"missing": "bold red", "shaky": "bold yellow", "note": "dim"}


def main(out: Path, *, as_json: bool) -> None:
    """Print the findings; changes nothing."""
    host = probe()
    findings = examine(look_around(host, out))
    if as_json:
        sys.stdout.write(
            msgspec.json.format(msgspec.json.encode(findings), indent=2).decode() + "\n"
        )
        return
    console = text_console()
    console.print(Text(host.summary(), style="bold"))
    for finding in findings:
        console.print(
            Text(f"{finding.severity:8}", style=_STYLES[finding.severity]),
            Text(finding.message),
            sep="",
        )
        console.print(Text(f"        mend: {finding.remedy}", style="dim"))
    if not findings:
        console.print("nothing to mend")
