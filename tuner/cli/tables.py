"""How listings are printed: wide enough for names where nobody's window is the limit."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_WIDTH = 160
LEGEND = (
    "applies: launch (a new process), process (once, before work), model (rebuild or compile), "
    "call (any time); late: tried once the others have nothing untried around the best"
)


def wide_console() -> Console:
    """Return a console for tables; piped or redirected, names are not folded at 80 columns."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console(highlight=False)
    return Console(highlight=False, width=_WIDTH)
