"""The page of results says of each section where its data lie, or that they are not kept."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks/README.md").read_text()
INDEX = "What data lie where"
NO_RESULTS = {INDEX, "Commands"}
SECTIONS = {part.partition("\n")[0]: part.partition("\n")[2] for part in PAGE.split("\n## ")[1:]}
ROWS = dict(re.findall(r"^\| \[(.+?)\]\(#.+?\) \| (.+) \|$", SECTIONS[INDEX], re.MULTILINE))


def test_every_section_of_results_says_where_its_data_lie_or_that_they_are_not_kept() -> None:
    assert ROWS.keys() == SECTIONS.keys() - NO_RESULTS
    for section, where in ROWS.items():
        paths = re.findall(r"`((?:benchmarks|reports)/[^`]+)`", where)
        assert paths or "not kept" in where, section
        assert [path for path in paths if not (ROOT / path).exists()] == [], section
        is_marked = re.search(r"^\*Not kept: .+\*$", SECTIONS[section], re.MULTILINE)
        assert bool(is_marked) == ("not kept" in where), section


@pytest.mark.parametrize(
    ("section", "pattern", "file", "wanted"),
    [
        ("False claims", r"any of the three winners \| \*\*([\d.]+) %\*\*", "false_claims",
         ("all", "tune-framework, any winner", "share")),
        ("Coverage", r"\| all \| 200 \| \*\*([\d.]+) %\*\*", "coverage",
         ("all", "coverage", "share")),
    ],
)  # fmt: skip
def test_figures_of_replays_are_those_of_their_data(
    section: str, pattern: str, file: str, wanted: tuple[str, ...]
) -> None:
    found = json.loads((ROOT / f"benchmarks/replays/{file}.json").read_text())
    for name in wanted:
        found = found[name]
    printed = re.search(pattern, SECTIONS[section])
    assert printed is not None
    assert float(printed[1]) == round(100 * found, 1)
