"""Mutants are made, the tests that run their lines are found, and what is caught is told apart."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from benchmarks.checkout import Run, copied, outcome
from benchmarks.mutants import mutants
from benchmarks.mutations import Runners, Verdict, contexts, drawn, judge

ROOT = Path(__file__).parents[2]
LIMIT = textwrap.dedent(
    """
    _MOST = 10

    def is_full(n: int) -> bool:
        return n >= _MOST

    def is_even(n: int) -> bool:
        is_so = False
        if n % 2 == 0:
            is_so = True
        return is_so
    """
).lstrip()
TESTS = {
    "test_limit.py::test_full": "is_full(10) and not is_full(9)",
    "test_limit.py::test_even": "is_even(0)",
    "test_limit.py::test_flaky": "False",
}


def changes(source: str) -> list[tuple[str, str]]:
    return [(each.kind, each.change) for each in mutants(textwrap.dedent(source))]


@pytest.mark.parametrize(
    ("statement", "made"),
    [
        ("x = a < b", ("comparison", "a < b -> (a >= b)")),
        ("x = a <= b < c", ("comparison", "a <= b < c -> (a <= b >= c)")),
        ("x = a == b", ("comparison", "a == b -> (a != b)")),
        ("x = a in b", ("comparison", "a in b -> (a not in b)")),
        ("x = [y for y in b if y is not a]", ("comparison", "y is not a -> (y is a)")),
        ("x = a and (b or c)", ("and/or", "a and (b or c) -> (a or (b or c))")),
        ("f(n=0)", ("constant", "0 -> 1")),
        ("x = a[3:]", ("constant", "3 -> 6")),
        ("x = -0.5", ("constant", "0.5 -> 1.0")),
        ("f(a)", ("removed", "f(a) -> pass")),
        ("a = f(a)", ("removed", "a = f(a) -> pass")),
        ("a.b = c", ("removed", "a.b = c -> pass")),
        ("a += b", ("removed", "a += b -> pass")),
        ("raise a", ("removed", "raise a -> pass")),
        ("return a", ("removed", "return a -> pass")),
        ("return not a", ("negated", "not a -> (not (not a))")),
    ],
)
def test_each_kind_of_fault_is_made(statement: str, made: tuple[str, str]) -> None:
    source = f"def g(a, b, c) -> bool:\n    {statement}\n    h()\n"
    assert made in changes(source)
    for mutant in mutants(source):
        assert mutant.source != source
        compile(mutant.source, "mutant", "exec")


def test_what_cannot_change_a_program_is_left_alone() -> None:
    assert changes(
        '''
        """Longer than 1."""
        import logging
        from typing import TYPE_CHECKING, Protocol

        if TYPE_CHECKING:
            x = 1

        class Sized(Protocol):
            n: int = 1

        class Held:
            n: "Literal[1]"

            def __init__(self, n: "Literal[2]") -> "Literal[3]":
                """Keep 1."""
                self.n = n

        def first(held):
            logging.info("%s", 1)
            found = held.n
            match held:
                case 1:
                    return f"{held:1} {found == 2}"
            return None

        if __name__ == "__main__":
            first(4)
        '''
    ) == [("removed", 'return f"{held:1} {found == 2}" -> pass')]


def test_a_line_is_replaced_in_its_place_alone() -> None:
    source = "a = (\n    'é' == b and\n    c)\n"
    assert [each.source for each in mutants(source)] == [
        "a = (\n    ('é' == b or c))\n",
        "a = (\n    ('é' != b) and\n    c)\n",
    ]


def test_lines_are_drawn_alike_by_a_seed_from_the_rooms_alone() -> None:
    texts = {"tuner/study/a.py": LIMIT, "tuner/space/b.py": LIMIT}
    every = drawn(texts, ["study"], 100, seed=1)
    assert sorted((path, mutant.line) for path, mutant in every) == [
        ("tuner/study/a.py", line) for line in (1, 4, 8, 9, 10)
    ]
    assert [m.line for _, m in drawn(texts, ["study"], 2, seed=1)] == [m.line for _, m in every[:2]]


def test_the_tests_of_a_line_are_those_that_run_it_the_smallest_first() -> None:
    covered = {"limit.py": {1: [], 3: [], 4: ["all", "full"], 7: ["all"], 8: ["all", "even"]}}
    runners = Runners(covered, {"limit.py": LIMIT})
    by_line = {each.line: each for each in mutants(LIMIT)}
    assert runners.of("limit.py", by_line[4]) == ["full", "all"]
    assert runners.of("limit.py", by_line[8]) == ["even", "all"]
    assert runners.of("limit.py", by_line[10]) == []


def test_what_is_defined_at_import_belongs_to_the_tests_of_what_mentions_it() -> None:
    source = textwrap.dedent(
        """
        _LEAST = 2
        _MOST = _LEAST + 8

        class Limits:
            most: int = 3

            def is_full(self):
                return self.most

        def is_full(n):
            return n > _MOST
        """
    ).lstrip()
    runners = Runners(
        {"limits.py": {1: ["child"], 8: ["method"], 11: ["function"]}}, {"limits.py": source}
    )
    tests = {each.line: runners.of("limits.py", each) for each in mutants(source)}
    assert tests[1] == ["child", "function"]
    assert tests[2] == ["function"]
    assert tests[5] == ["method"]


def in_process(tests: Sequence[str], source: str = LIMIT) -> Run:
    names: dict[str, object] = {}
    exec(source, names)
    for n, test in enumerate(tests, 1):
        if not eval(TESTS[test], names):
            return Run(test, n)
    return Run(None, len(tests))


def verdict(tests: Sequence[str], change: str) -> Verdict:
    (source,) = (each.source for each in mutants(LIMIT) if each.change == change)
    return judge(tests, partial(in_process, source=source), lambda test: in_process([test]))


def test_a_mutant_is_caught_by_a_test_that_fails_on_it_and_nowhere_else() -> None:
    full, even, flaky = TESTS
    assert verdict([full, even], "n >= _MOST -> (n < _MOST)") == Verdict(full, 1)
    assert verdict([even, full], "10 -> 20") == Verdict(full, 2)
    assert verdict([flaky, even], "0 -> 1") == Verdict(even, 2)


def test_a_mutant_survives_that_fails_no_test_of_its_own() -> None:
    full, even, flaky = TESTS
    assert verdict([full, even], "2 -> 4") == Verdict(None, 2)
    assert verdict([even, flaky], "2 -> 4") == Verdict(None, 2)
    assert verdict([], "2 -> 4") == Verdict(None, 0)


def test_a_file_that_cannot_be_collected_catches_a_mutant() -> None:
    def fails(_: Sequence[str]) -> Run:
        return Run("b.py", 0)

    tests = ["a.py::test", "b.py::test", "b.py::test_more"]
    asked = []

    def passes(test: str) -> Run:
        asked.append(test)
        return Run(None, 1)

    assert judge(tests, fails, passes) == Verdict("b.py", 0)
    assert asked == ["b.py::test"]


@pytest.mark.parametrize(
    ("log", "code", "run"),
    [
        ("start a\nend a\nstart b\nend b\n", 0, Run(None, 2)),
        ("start a\nend a\nstart b\nfail b\nend b\n", 1, Run("b", 2)),
        ("fail b.py\n", 2, Run("b.py", 0)),
        ("start a\nend a\nstart b\n", 1, Run("b", 2)),  # hung until faulthandler ended pytest
        ("start a\nend a\nstart b\n", -9, Run("b", 2)),
        ("start a\nend a\nstart b\n", None, Run(None, 1)),  # there was time for one test
        ("", 4, Run("pytest itself", 0)),
        ("", None, Run("pytest itself", 0)),
        ("", 5, Run(None, 0)),
    ],
)
def test_how_tests_ended_is_read_from_what_they_logged(
    log: str, code: int | None, run: Run
) -> None:
    assert outcome(log, code) == run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with pytest's tests of LIMIT, and the plugins."""
    folder = tmp_path / "made up"
    (folder / "tests").mkdir(parents=True)
    (folder / "benchmarks").mkdir()
    for name in ("chosen", "contexts"):
        shutil.copy(ROOT / f"benchmarks/{name}.py", folder / "benchmarks")
    (folder / "limit.py").write_text(LIMIT)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tests/test_limit.py").write_text(
        "import subprocess, sys\n"
        "import limit\n"
        "def test_full():\n"
        "    assert limit.is_full(10)\n"
        "def test_even():\n"
        "    code = 'import limit; assert limit.is_even(0)'\n"
        "    subprocess.run([sys.executable, '-P', '-c', code], check=True)\n"
    )
    return folder


def test_a_mutant_runs_in_a_copy_and_in_the_processes_that_its_tests_start(tree: Path) -> None:
    full, even = (f"tests/test_limit.py::{name}" for name in ("test_full", "test_even"))
    (mutant,) = (each for each in mutants(LIMIT) if each.change == "0 -> 1")
    with copied(tree, test_s=600, all_s=600) as checkout:
        assert checkout.run([even, full], "limit.py", mutant.source) == Run(even, 1)
        assert checkout.run([even, full], "limit.py") == Run(None, 2)
    assert not checkout.tree.exists()
    assert (tree / "limit.py").read_text() == LIMIT


def test_coverage_notes_the_test_in_the_processes_that_it_starts(tree: Path) -> None:
    (tree / "rc").write_text("[run]\nparallel = true\ninclude = limit.py\npatch = subprocess\n")
    outside = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    for command in (["run", "--rcfile=rc", "-m", "pytest", "-q", "-p", "benchmarks.contexts"],
                    ["combine", "--quiet", "--rcfile=rc"]):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "coverage", *command],
            cwd=tree,
            env={**outside, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    lines = contexts(tree / ".coverage", tree)["limit.py"]
    full, even = (f"tests/test_limit.py::{name}" for name in ("test_full", "test_even"))
    assert (lines[4], lines[8], lines[1]) == ([full], [even], [even])
