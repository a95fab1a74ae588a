"""The page of results lists every record with the place of its data; links lead somewhere."""

import json
import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOT = BENCHMARKS.parent
PAGE = (BENCHMARKS / "README.md").read_text()
RECORDS = {path.name: path.read_text() for path in sorted((BENCHMARKS / "history").glob("*.md"))}
INDEX = PAGE.split("## Records and their data")[1]
ROWS = dict(re.findall(r"^\| \[.+?\]\(history/(.+?)\) \| (.+) \|$", INDEX, re.MULTILINE))


def test_every_record_says_where_its_data_lie_or_that_they_are_not_kept() -> None:
    assert ROWS.keys() == RECORDS.keys()
    for name, where in ROWS.items():
        paths = re.findall(r"`((?:benchmarks|reports)/[^`]+)`", where)
        assert paths or "not kept" in where, name
        assert [path for path in paths if not (ROOT / path).exists()] == [], name
        is_marked = re.search(r"^\*Not kept: .+\*$", RECORDS[name], re.MULTILINE)
        assert bool(is_marked) == ("not kept" in where), name


def test_every_record_has_a_result_on_the_page() -> None:
    results = PAGE.split("## Data")[0]
    assert [name for name in RECORDS if f"(history/{name})" not in results] == []


@pytest.mark.parametrize("path", [BENCHMARKS / "README.md", *(BENCHMARKS / "history").glob("*.md")])
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(((?!https?:|#)[^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_command_of_the_page_exists() -> None:
    for name in re.findall(r"python -m benchmarks\.(\w+)", PAGE):
        assert (BENCHMARKS / f"{name}.py").exists(), name


@pytest.mark.parametrize(
    ("record", "pattern", "file", "wanted"),
    [
        ("false-claims.md", r"any of the three winners \| \*\*([\d.]+) %\*\*", "false_claims",
         ("all", "tune-framework, any winner", "share")),
        ("coverage.md", r"\| all \| 200 \| \*\*([\d.]+) %\*\*", "coverage",
         ("all", "coverage", "share")),
    ],
)  # fmt: skip
def test_figures_of_replays_are_those_of_their_data(
    record: str, pattern: str, file: str, wanted: tuple[str, ...]
) -> None:
    found = json.loads((BENCHMARKS / f"replays/{file}.json").read_text())
    for name in wanted:
        found = found[name]
    printed = re.search(pattern, RECORDS[record])
    assert printed is not None
    share = round(100 * found, 1)
    assert float(printed[1]) == share
    assert f"**{share} %**" in PAGE
