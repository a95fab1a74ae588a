"""The layout of printed listings: plain text, wide enough if there is no window."""

from __future__ import annotations

import os
import sys

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from tuner.cli.printable import printable

_WIDTH = 160
LEGEND = (
    "applies: launch (a new process), process (once, before work), model (rebuild or compile), "
    "call (any time); late: tried once the others have nothing untried around the best"
)


def wide_console() -> Console:
    """Return a console for tables; piped or redirected, names are not folded at 80 columns."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return text_console()
    return text_console(_WIDTH)


def text_console(width: int | None = None) -> Console:
    """Return a console on standard output that prints nothing but text, and rich's own styles."""
    console = Console(highlight=False, width=width)
    console.push_render_hook(_OnlyText())
    return console


class _OnlyText(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(each) for each in renderables]


class _Shown:
    """Something to print, whose text is made printable after the layout."""

    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for s in console.render(self._shown, options):
            lines = s.text.split("\n")
            yield s if s.control else Segment("\n".join(map(printable, lines)), s.style)
