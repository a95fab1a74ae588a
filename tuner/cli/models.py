"""tune-framework models: the built-in models, what they are, and which frameworks have them."""

from __future__ import annotations

import sys

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.cli.tables import wide_console
from tuner.galleries import MODELS
from tuner.measurement.describe import gallery_cards
from tuner.record.workload import ModelCard


def main(*, as_json: bool) -> None:
    """Print the gallery."""
    cards = gallery_cards(MODELS)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(cards), indent=2).decode() + "\n")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("model", "what", "task"):
        table.add_column(name)
    for name in ("parameters", "MACs per item", "width"):
        table.add_column(name, justify="right")
    for name in ("frameworks", "batches"):
        table.add_column(name)
    for card in cards:
        table.add_row(
            card.name,
            Text(card.fault or card.title),
            card.task,
            _short(card.n_parameters),
            _short(card.macs),
            _width(card),
            ", ".join(card.frameworks),
            ", ".join(map(str, card.batches)),
        )
    console = wide_console()
    console.print(table)
    console.print(
        "width: heavy operators that can run side by side, on average (arXiv:1908.04705); of both "
        "frameworks where they differ.\nA model of yours: --model PATH.py, or what a framework "
        "saved; see models/README.md.",
        style="dim",
    )


def _short(count: int) -> str:
    """Shorten a count to three digits: 25.6 M."""
    if not count:
        return ""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def _width(card: ModelCard) -> str:
    return " / ".join(dict.fromkeys(f"{width:.3g}" for width in card.widths.values()))
