"""tune-framework models: the built-in models, and which frameworks have them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from tuner.app.compatibility import BYTES_PER_PARAMETER
from tuner.cli.tables import wide_console
from tuner.errors import UnknownName, UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.galleries import MODELS
from tuner.launchers.describe import find_model, gallery_cards
from tuner.record.workload import ModelCard

_BY: dict[str, Callable[[ModelCard], tuple[float, str]]] = {
    "name": lambda card: (0, card.name),
    "parameters": lambda card: (-card.n_parameters, card.name),
    "macs": lambda card: (-card.macs, card.name),
}
_NOTE = (
    "width: heavy operators that can run side by side, on average (arXiv:1908.04705); of both "
    "frameworks where they differ.\nOne in full: tune-framework models NAME. A model of yours: "
    "--model PATH.py, or what a framework saved; see models/README.md."
)


class Wanted(msgspec.Struct, frozen=True):
    """Which models to list; None stands for all."""

    task: str | None = None
    family: str | None = None
    framework: str | None = None

    def chosen(self, cards: Sequence[ModelCard]) -> list[ModelCard]:
        """Return the selected models.

        Raises UnknownName for a family or framework that no model has, and UsageError if none is
        left.
        """
        _check("family", self.family, {card.family for card in cards})
        _check("framework", self.framework, FRAMEWORKS)
        left = [card for card in cards if card.fault or self._wants(card)]
        if not left:
            asked = " ".join(
                f"--{name} {value!r}"
                for name, value in msgspec.structs.asdict(self).items()
                if value is not None
            )
            tasks = ", ".join(sorted({card.task for card in cards if card.task}))
            raise UsageError(f"no model is left by {asked}; tasks are {tasks}")
        return left

    def _wants(self, card: ModelCard) -> bool:
        return (
            (self.task is None or self.task.lower() in card.task.lower())
            and self.family in (None, card.family)
            and (self.framework is None or self.framework in card.frameworks)
        )


def _check(what: str, given: str | None, known: object) -> None:
    names = sorted(known)  # type: ignore[call-overload]
    if given is not None and given not in names:
        raise UnknownName(what, given, names, f"there are {', '.join(names)}")


def main(name: str | None, wanted: Wanted, sort: str, *, as_json: bool) -> None:
    """Print the gallery, or one model in full."""
    if sort not in _BY:
        raise UsageError(f"--sort {sort!r} is unknown; sort by {', '.join(_BY)}")
    if name is not None:
        if wanted != Wanted():
            raise UsageError(
                f"{name} is one model, and --family, --task and --framework choose among all; "
                "leave out either"
            )
        _, card = find_model(name, MODELS)
        _print_json(card) if as_json else _show_one(name, card)
        return
    cards = sorted(wanted.chosen(gallery_cards(MODELS)), key=_BY[sort])
    _print_json(cards) if as_json else _show_all(cards)


def _print_json(made: ModelCard | list[ModelCard]) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")


def _show_all(cards: Sequence[ModelCard]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    longest = max(len(card.name) for card in cards)
    table.add_column("model", no_wrap=True, min_width=longest)  # however narrow the window is
    for name in ("what", "family", "task"):
        table.add_column(name)
    for name in ("parameters", "MACs per item", "width"):
        table.add_column(name, justify="right")
    for name in ("frameworks", "batches"):
        table.add_column(name)
    for card in cards:
        table.add_row(
            card.name,
            Text(card.fault or card.title),
            card.family,
            card.task,
            _short(card.n_parameters),
            _short(card.macs),
            _width(card),
            ", ".join(card.frameworks),
            ", ".join(map(str, card.batches)),
        )
    console = wide_console()
    console.print(table)
    console.print(_NOTE, style="dim")


def _show_one(name: str, card: ModelCard) -> None:
    console = wide_console()
    console.print(Text(f"{name}: {card.title}", style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for what, value in _in_full(card):
        table.add_row(what, Text(value))
    console.print(table)
    takes = next(iter(card.parameters.items()), None)
    is_as_listed = "@" not in name and name == card.name  # else some are given already
    other = ""
    if takes and is_as_listed:
        other = f"; with other parameters: --model {name}@{takes[0]}={takes[1]}"
    console.print(Text(f"Tune it: tune-framework --model {name}{other}", style="dim"))


def _in_full(card: ModelCard) -> list[tuple[str, str]]:
    """Return the facts about a model, row by row; unknown ones are left out."""
    size = card.n_parameters * BYTES_PER_PARAMETER
    bound = card.server_bound_s
    rows = {
        "task": card.task,
        "family": card.family if card.family == card.kind else f"{card.family} ({card.kind})",
        "follows": card.follows,
        "benchmarked by": ", ".join(card.systems),
        "frameworks": ", ".join(card.frameworks),
        "the frameworks' models": (card.differs or "are the same")
        if len(card.frameworks) > 1
        else "",
        "inputs": "; ".join(card.inputs),
        "an item is": f"one {card.item}",
        "takes": ", ".join(f"{key}={value}" for key, value in card.parameters.items()),
        "reference batch": str(card.reference_batch),
        "batches": ", ".join(map(str, card.batches)),
        "classes": "" if card.n_classes is None else f"{card.n_classes:,}",
        "parameters": f"{card.n_parameters:,} ({_bytes(size)})" if size else "",
        "MACs per item": f"{card.macs:,}" if card.macs else "",
        "graph width": ", ".join(f"{width:.3g} in {name}" for name, width in card.widths.items()),
        "MLPerf's server bound": "" if bound is None else f"{bound * 1000:g} ms",
    }
    return [(what, text) for what, text in rows.items() if text]


def _bytes(size: int) -> str:
    """Write a size in the unit that leaves it three digits."""
    for unit, each in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= each:
            return (
                f"{size / each:,.3g} {unit}" if size < 100 * each else f"{size / each:,.0f} {unit}"
            )
    return f"{size} bytes"


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
