"""Do the tests notice a small fault in the product?

    coverage run -m pytest -p benchmarks.contexts -m "not slow and not alone and not gpu"
    coverage combine
    python -m benchmarks.mutations [--seed 1] [--lines 20] [--jobs 2]

Draws lines of some rooms at random, all lines alike that a mutant changes (benchmarks/mutants.py),
and one of its mutants for each. Then it runs the tests that run this line, in a copy of the tree,
those with the fewest lines first, until one fails that passes on the unchanged copy: that test has
caught the mutant. A test that hangs has failed. A line that no test runs is missed.

A line that runs when its module is imported (a constant, a class's field) belongs to the tests that
run a line which mentions what it defines. Coverage must have measured this checkout as it is now.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coverage import CoverageData

from benchmarks.checkout import Run, copied
from benchmarks.mutants import Mutant, mentions, mutants

ROOT = Path(__file__).parents[1]
ROOMS = ("study", "search", "measurement", "record", "launchers")

Lines = Mapping[int, Iterable[str]]
"""The tests that run each line of a file."""


class Runners:
    """Which tests run a mutant's line.

    covered: the lines of each file, and the tests that run them. sources: the files' texts.
    """

    def __init__(self, covered: Mapping[str, Lines], sources: Mapping[str, str]) -> None:
        self._covered = covered
        self._n_lines = Counter(
            test for lines in covered.values() for tests in lines.values() for test in tests
        )
        self._mentions: dict[str, list[tuple[str, int, frozenset[str]]]] = defaultdict(list)
        for path, text in sources.items():
            for name, line, names in mentions(text):
                self._mentions[name].append((path, line, names))

    def of(self, path: str, mutant: Mutant) -> list[str]:
        """Return the tests, those that run the fewest lines first."""
        tests = self._at(path, mutant.line) or self._at(path, mutant.statement)
        tests |= self._of_names(mutant.names)
        return sorted(tests, key=lambda test: (self._n_lines[test], test))

    def _at(self, path: str, line: int) -> set[str]:
        return set(self._covered.get(path, {}).get(line, ()))

    def _of_names(self, names: Iterable[str]) -> set[str]:
        """Return the tests that run lines of functions which depend on these names."""
        tests: set[str] = set()
        left, seen = list(names), set(names)
        while left:
            for path, line, defined in self._mentions[left.pop()]:
                if not defined:
                    tests |= self._at(path, line)
                left += defined - seen
                seen |= defined
        return tests


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests made of a mutant. caught_by: one of them; n_run: how many of them were run."""

    caught_by: str | None
    n_run: int


def judge(
    tests: Sequence[str], mutated: Callable[[Sequence[str]], Run], plain: Callable[[str], Run]
) -> Verdict:
    """Run tests on a mutant until one fails that passes on the plain source."""
    left, n_run = list(tests), 0
    while left:
        run = mutated(left)
        n_run += run.n_run
        if run.failed is None:
            break
        named = (f"{run.failed}::", run.failed)  # a file that was not collected, or a test
        there = [i for i, test in enumerate(left) if test == named[1] or test.startswith(named[0])]
        last = there[0] if there else 0  # none: pytest itself did not start
        if plain(left[last]).failed is None:
            return Verdict(run.failed, n_run)
        left = left[last + 1 :]
    return Verdict(None, n_run)


def sources(root: Path) -> dict[str, str]:
    """Return the product's modules: their paths and texts."""
    paths = sorted((root / "tuner").rglob("*.py"))
    return {str(path.relative_to(root)): path.read_text() for path in paths}


def contexts(file: Path, root: Path) -> dict[str, dict[int, list[str]]]:
    """Return what tests run of each module, as coverage kept it."""
    data = CoverageData(str(file))
    data.read()
    found = {}
    for name in sorted(data.measured_files()):
        if Path(name).is_relative_to(root):
            lines = data.contexts_by_lineno(name)
            tests = {line: [each for each in of if "::" in each] for line, of in lines.items()}
            found[str(Path(name).relative_to(root))] = tests
    if not any(tests for lines in found.values() for tests in lines.values()):
        raise SystemExit(f"error: {file} names no test of {root}: see --help")
    return found


def drawn(
    texts: Mapping[str, str], rooms: Iterable[str], n_lines: int, seed: int
) -> list[tuple[str, Mutant]]:
    """Return one mutant of each line that is drawn, and the path of its file."""
    folders = tuple(f"tuner/{room}/" for room in rooms)
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for path, text in texts.items():
        if path.startswith(folders):
            for mutant in mutants(text):
                lines[path, mutant.line].append(mutant)
    rng = random.Random(seed)
    chosen = rng.sample(sorted(lines), min(n_lines, len(lines)))
    return [(path, rng.choice(lines[path, line])) for path, line in chosen]


def main() -> None:
    about, _, usage = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=20)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--most", type=int, default=200, help="run so many tests at most for each")
    parser.add_argument("--test-s", type=float, default=120, help="seconds after which one hangs")
    parser.add_argument("--all-s", type=float, default=300, help="seconds for those of one line")
    parser.add_argument("--jobs", type=int, default=1, help="lines that are tried at a time")
    arguments = parser.parse_args()
    texts = sources(ROOT)
    runners = Runners(contexts(arguments.contexts, ROOT), texts)

    def tried(each: tuple[str, Mutant]) -> tuple[list[str], Verdict]:
        path, mutant = each
        tests = runners.of(path, mutant)
        if not tests:
            return tests, Verdict(None, 0)
        with copied(ROOT, test_s=arguments.test_s, all_s=arguments.all_s) as checkout:
            changed = partial(checkout.run, path=path, source=mutant.source)
            return tests, judge(
                tests[: arguments.most], changed, lambda test: checkout.run([test], path)
            )

    chosen = drawn(texts, arguments.rooms.split(","), arguments.lines, arguments.seed)
    n_caught = 0
    print("| line | change | tests that run it | caught by |\n|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for (path, mutant), (tests, verdict) in zip(chosen, pool.map(tried, chosen), strict=True):
            n_caught += verdict.caught_by is not None
            missed = f"**SURVIVED** {verdict.n_run} of them" if tests else "**not run**"
            change = f"{mutant.kind}: `{mutant.change}`".replace("|", "\\|")
            print(
                f"| {path}:{mutant.line} | {change} | {len(tests)} "
                f"| {verdict.caught_by or missed} |",
                flush=True,
            )
    print(f"\n{n_caught} of {len(chosen)} caught")


if __name__ == "__main__":
    main()
