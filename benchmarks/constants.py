"""Write docs/constants.md: every number that study, search and measurement decide by.

    python -m benchmarks.constants

Each constant and its meaning stand in the code; tests/test_constants.py holds the page to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/constants.md"
PACKAGES = ("study", "search", "measurement")
_LONGEST = 60
_HEAD = """\
# Constants

Every number that `tuner/study`, `tuner/search` and `tuner/measurement` decide by, from the code
(`python -m benchmarks.constants` writes this page). Shares without a unit are parts of one; *log*
means a natural logarithm, of which 0.01 is about 1 %.
[Benchmarks](../benchmarks/README.md) measure what they do together;
[some alone](../benchmarks/history/what-the-schedules-rules-are-worth.md).
"""


class Constant(NamedTuple):
    """A numeric constant of a module."""

    module: str
    name: str
    value: str
    meaning: str
    """Empty if the code does not state it."""


def constants() -> list[Constant]:
    """Return the constants of the packages, in the order of their modules."""
    paths = [path for each in PACKAGES for path in sorted((ROOT / "tuner" / each).glob("*.py"))]
    return [found for path in paths for found in _constants_of(path)]


def _constants_of(path: Path) -> Iterator[Constant]:
    body = ast.parse(path.read_text()).body
    module = "/".join(path.parts[-2:])
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.isupper() and any(map(_is_number, ast.walk(node.value))):
                yield Constant(module, name, ast.unparse(node.value), _meaning(after))


def _is_number(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def _meaning(after: ast.stmt | None) -> str:
    """Return the text that follows a constant, on one line; empty if none does."""
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        return " ".join(str(after.value.value).split())
    return ""


def page() -> str:
    """Return the page."""
    lines = [_HEAD]
    module = ""
    for each in constants():
        if each.module != module:
            module = each.module
            lines += [f"\n## {module}\n", "| constant | value | meaning |", "|---|---|---|"]
        shown = each.value if len(each.value) <= _LONGEST else f"{each.value[:_LONGEST]} ..."
        lines.append(f"| `{each.name}` | `{shown}` | {each.meaning} |".replace("\n", " "))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
