"""How much of each room do the tests run, before and after a change?

    coverage run -m pytest; coverage combine; coverage json -i -o AFTER
    python -m benchmarks.rooms BEFORE AFTER [--as launchers=measurement]

Both are coverage's JSON reports, each made in the checkout that it measured. A room is a folder of
`tuner/`, or `(root)`: the modules beside them. Ends with 1 where a smaller share of a room's
branches is run than before. A room that was cut out of another is counted as that one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT, ALL = "(root)", "all"
NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Covered:
    """Lines and branches of a room, and how many of them were run."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def add(self, summary: Mapping[str, int]) -> None:
        """Add those of one file."""
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_run += summary["covered_branches"]

    @property
    def of_lines(self) -> float:
        return 100 * self.lines_run / self.lines if self.lines else 100.0

    @property
    def of_branches(self) -> float:
        return 100 * self.branches_run / self.branches if self.branches else 100.0


def rooms(report: Mapping[str, Any], counted_as: Mapping[str, str] = NONE) -> dict[str, Covered]:
    """Return what is covered of each room, and of all, by a JSON report."""
    found: dict[str, Covered] = {}
    for path, file in report["files"].items():
        parts = Path(path).parts
        if parts[0] == "tuner":  # other names are those of copies elsewhere
            room = parts[1] if len(parts) > 2 else ROOT
            for name in (counted_as.get(room, room), ALL):
                found.setdefault(name, Covered()).add(file["summary"])
    return found


def table(reports: Iterable[Mapping[str, Covered]]) -> list[str]:
    """Return a table with a column of branches and one of lines for each report."""
    columns = list(reports)
    names = sorted({name for column in columns for name in column} - {ALL})
    lines = ["| room |" + " branches | lines |" * len(columns), "|---|" + "---|---|" * len(columns)]
    for name in [*names, ALL]:
        cells = [_cells(column.get(name)) for column in columns]
        lines.append(f"| {name} |" + "".join(cells))
    return lines


def _cells(covered: Covered | None) -> str:
    if covered is None:
        return " - | - |"
    return (
        f" {covered.of_branches:.2f} % of {covered.branches:,} "
        f"| {covered.of_lines:.2f} % of {covered.lines:,} |"
    )


def lower(before: Mapping[str, Covered], after: Mapping[str, Covered]) -> list[str]:
    """Return the rooms of which a smaller share of branches is covered than before."""
    return [
        name for name in sorted(before.keys() & after.keys())
        if after[name].of_branches < before[name].of_branches
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--as", dest="pairs", nargs="*", default=[], metavar="ROOM=ROOM")
    arguments = parser.parse_args()
    counted_as = dict(pair.split("=") for pair in arguments.pairs)
    files = [arguments.before, *([arguments.after] if arguments.after else [])]
    found = [rooms(json.loads(file.read_text()), counted_as) for file in files]
    print("\n".join(table(found)))
    worse = lower(found[0], found[-1])
    if worse:
        raise SystemExit(f"lower: {', '.join(worse)}")


if __name__ == "__main__":
    main()
