"""tune-framework models: the built-in models, and which frameworks have them."""

from __future__ import annotations

import sys

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.galleries import MODELS
from tuner.measurement.describe import gallery_cards


def main(*, as_json: bool) -> None:
    """Print the gallery."""
    cards = gallery_cards(MODELS)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(cards), indent=2).decode() + "\n")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("model", "what", "task", "frameworks", "reference batch", "batches"):
        table.add_column(name)
    for card in cards:
        table.add_row(
            card.name,
            Text(card.fault or card.title),
            card.task,
            ", ".join(card.frameworks),
            str(card.reference_batch),
            ", ".join(map(str, card.batches)),
        )
    Console(highlight=False).print(table)
