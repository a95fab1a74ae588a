"""Constants chosen with one table left out."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.contest import Contest, other_constants
from benchmarks.left_out import AS_IS, VARIANTS, Field, choose, field
from benchmarks.table import write_table
from tests.benchmarks.tables import recorded
from tests.command import HANGS_S
from tuner.study import explore

ROOT = Path(__file__).parents[2]
PROVED = "tuner.study.explore.PROVED"


@pytest.fixture
def one_by_one() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != AS_IS])
def test_a_variant_changes_constants_that_exist_and_only_meanwhile(name: str) -> None:
    def values() -> dict[str, object]:
        found = {}
        for constant in VARIANTS[name]:
            module, _, attribute = constant.rpartition(".")
            found[constant] = getattr(sys.modules[module], attribute)
        return found

    with other_constants({}):
        before = values()
    with other_constants(VARIANTS[name]):
        assert values() == VARIANTS[name] != before
    assert values() == before


def test_a_constant_that_is_not_there_is_refused() -> None:
    before = explore.PROVED
    with pytest.raises(AttributeError), other_constants({PROVED: 9, f"{PROVED}_BY": 1}):
        pass
    assert before == explore.PROVED


def test_for_each_table_is_chosen_what_did_best_on_the_other_files() -> None:
    fields = [
        Field("one", 0.0, {AS_IS: 0.5, "new": 0.9}),
        Field("two", 0.0, {AS_IS: 0.5, "new": 0.4}),
        Field("two", 0.05, {AS_IS: 0.5, "new": 0.4}),
    ]
    choose(fields)
    assert [f.chosen for f in fields] == [AS_IS, "new", "new"]
    assert [f.left_out for f in fields] == [0.5, 0.4, 0.4]


@pytest.mark.slow
def test_a_variant_is_another_search(tmp_path: Path, one_by_one: Executor) -> None:
    path = tmp_path / "written.json.gz"
    write_table(path, recorded(sd=0.1))
    contest = Contest(path, 0.0, one_by_one)
    by_chance = {"tuner.search.sampler._SOURCES": ("random",)}
    found = field(contest, 2, {AS_IS: {}, "by chance": by_chance})
    assert found.file == "written.json.gz"
    assert found.scores[AS_IS] != found.scores["by chance"]


def test_one_file_alone_is_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.left_out", "--tables", tmp_path / "one.json"],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "give two files at least" in ran.stderr
