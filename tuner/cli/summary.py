"""The end of a run: the findings by class, the next commands, and the report's path."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from tuner.cli.printable import printable
from tuner.cli.tables import wide_console
from tuner.output.caveats import disturbance, faster_still
from tuner.output.headline import (
    EXPLAIN,
    ClassLine,
    NextStep,
    class_lines,
    next_steps,
    what_was_tuned,
)
from tuner.output.index import lines_of, unfinished
from tuner.output.phrases import against_as_run
from tuner.output.training import loading_in_words
from tuner.record.index import Row
from tuner.record.result import Result

_HEIGHT = 24
"""Lines of the smallest terminal in use: the end of a run is read without scrolling."""
_STYLES = {"faster": "bold green", "keep_default": "", "ambiguous": "yellow"}
_GAP = "  "


class _Detail(msgspec.Struct, frozen=True):
    """How much is printed, if less has to fit."""

    per_class: int
    """Lines."""
    per_note: int
    explains: bool = True
    """Whether the command is printed that explains the recommendation; the report has it too."""


_DETAILS = (
    _Detail(3, 3),
    _Detail(2, 3),
    _Detail(1, 2),
    _Detail(1, 1),
    _Detail(1, 0),
    _Detail(1, 0, explains=False),
)
"""From the fullest on; the first that fits is taken."""


def show(result: Result, folder: Path) -> None:
    """Print the findings of a study."""
    show_all([(result, folder)])


def show_all(found: Sequence[tuple[Result, Path]]) -> None:
    """Print the findings of a run's studies, each with its folder."""
    console = wide_console()
    for detail in _DETAILS:
        blocks = [_block(result, folder, console.width, detail) for result, folder in found]
        height = sum(_height(line, console.width) for block in blocks for line in block)
        if height + len(blocks) <= _HEIGHT:  # a blank line before each
            break
    for block in blocks:
        console.print()
        _print(console, block)


def _print(console: Console, lines: Sequence[Text]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)  # a command stays one line to copy


def _height(line: Text, width: int) -> int:
    return max(1, math.ceil(line.cell_len / width))


def _block(result: Result, folder: Path, width: int, detail: _Detail) -> list[Text]:
    """Return the lines for a study, as wide as the terminal; commands may be wider."""
    lines = [Text(_cut(printable(what_was_tuned(result)), width), style="bold")]
    lines += _of_classes(result, width, detail.per_class)
    for note in _notes(result):
        shown = _rows(note.split(" "), width, detail.per_note, gap=" ")
        lines += [Text(text, style="yellow") for text in shown]
    n = len(result.warnings)
    warned = f" ({n} warning{'s' if n > 1 else ''})" if n else ""
    steps = next_steps(result, folder, folder)
    steps = [step for step in steps if not step.file or (folder / step.file).exists()]
    steps = [step for step in steps if detail.explains or step.label != EXPLAIN]
    steps.append(NextStep("report", shlex.quote(str(folder / "report.html")) + warned))
    labels = max(len(step.label) for step in steps) + 1
    for step in steps:
        label = f"{printable(step.label):<{labels}}"
        lines.append(Text.assemble((label, "bold"), printable(step.command)))
    return lines


def _of_classes(result: Result, width: int, n_rows: int) -> list[Text]:
    """Write each class on at most `n_rows` lines; what finds no room is in the report."""
    lines = class_lines(result)
    names = max(len(line.name) for line in lines) + len(_GAP)
    return [text for line in lines for text in _of_class(line, names, width, n_rows)]


def _of_class(line: ClassLine, names: int, width: int, n_rows: int) -> list[Text]:
    room = max(20, width - names)
    if line.verdict == "faster":
        gain = f"{line.gain} ({line.interval})" if line.interval else line.gain
        parts = [gain, *([line.evidence] if line.evidence else []), *line.price]
        rows = _rows(parts, room, n_rows, gap=_GAP)
    else:
        rows = _rows(line.reached.split(" "), room, n_rows, gap=" ")
    found = [Text.assemble((f"{printable(line.name):<{names}}", "bold"))]
    found[0].append(rows[0], style=_STYLES[line.verdict])
    return [*found, *(Text(" " * names + row) for row in rows[1:])]


def _rows(parts: Sequence[str], width: int, n_rows: int, *, gap: str) -> list[str]:
    """Put parts on at most `n_rows` lines; words that find no room end in dots."""
    rows: list[str] = []
    for part in map(printable, parts):
        if rows and len(rows[-1]) + len(gap) + len(part) <= width:
            rows[-1] += gap + part
        elif len(rows) < n_rows:
            rows.append(_cut(part, width))
        elif gap == " " and rows:
            rows[-1] = _cut(f"{rows[-1]} {part}", width)
            break
    return rows


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _notes(result: Result) -> list[str]:
    """Return the caveats to the headline."""
    now = against_as_run(result) if result.environment else ""
    ignored = sorted({knob for w in result.winners.values() for knob in w.not_in_force})
    waiting = loading_in_words(result)
    return [
        *([waiting] if waiting else []),
        *([f"against how you run it now: {now}"] if now else []),
        *([disturbance(result)] if disturbance(result) else []),
        *([f"settings of the winners not in force: {', '.join(ignored)}"] if ignored else []),
        *faster_still(result),
    ]


def show_index(folder: Path, rows: Sequence[Row]) -> None:
    """Print what several studies found, and where their index is."""
    console = wide_console()
    for line in lines_of(folder, rows):
        console.print()
        if line.result is None:
            row = line.row
            text = Text.assemble((f"{row.model} · {row.framework}", "bold"), f"  {unfinished(row)}")
            console.print(text)
            continue
        console.print(Text(what_was_tuned(line.result), style="bold"))
        print_classes(console, line.result)
    console.print()
    console.print(Text(f"all of them: {folder / 'index.html'}", style="dim"))


def print_classes(console: Console, result: Result) -> None:
    """Print a line for each class of a study among others."""
    _print(console, _of_classes(result, console.width, _DETAILS[0].per_class))
