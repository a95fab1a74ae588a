"""What came out of the guest: one JSON line per test and one at the end, over a serial port."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

_CONSOLE_LINES = 30
INSIDE = Path(__file__).parent / "inside"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test, or of one module that could not be collected."""

    test: str
    """Its pytest id below the folder of tests: "test_pinning.py::test_it[1]"."""
    word: str
    """passed, failed or skipped, in pytest's sense."""
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Everything that the guest told before it went."""

    tests: tuple[Outcome, ...]
    is_complete: bool
    """Whether the line came that pytest writes when it is through."""
    ended_in_time: bool
    seconds: float
    console: str

    def of(self, test: str) -> list[Outcome]:
        """Return the outcomes of one test function, one for each of its parameters."""
        return [o for o in self.tests if o.test == test or o.test.startswith(f"{test}[")]

    def fault(self, test: str) -> str | None:
        """Return what speaks against a test's having passed in the guest, or None."""
        found = self.of(test)
        if bad := [o for o in found if o.word != "passed"]:
            return "\n\n".join(f"{o.word} in the guest: {o.test}\n{o.text}" for o in bad)
        if found and self.is_complete:
            return None
        module = test.partition("::")[0]
        if whole := [o for o in self.tests if o.test == module]:
            return f"{module} could not be collected in the guest:\n{whole[0].text}"
        return f"{test} {self._what_is_missing(bool(found))}\n{self._last_words()}"

    def _what_is_missing(self, has_passed: bool) -> str:
        told = f"{len(self.tests)} test(s) told of themselves"
        if not self.ended_in_time:
            return f"has no final result: the guest was stopped after {self.seconds:.0f} s; {told}"
        if has_passed:
            return f"passed, but the guest went before its tests were through; {told}"
        return f"did not run in the guest; {told}"

    def _last_words(self) -> str:
        lines = self.console.replace("\r", "").splitlines()[-_CONSOLE_LINES:]
        return "\n".join(["The guest's console ends:", *lines])


def read(text: str, console: str, *, seconds: float, ended_in_time: bool) -> Outcomes:
    """Read the lines of the serial port; one that the guest's end cut off is not counted."""
    tests: list[Outcome] = []
    is_complete = False
    for line in text.splitlines():
        try:
            told = json.loads(line)
            if "test" in told:
                tests.append(Outcome(told["test"], told["word"], told["seconds"], told["text"]))
            else:
                is_complete = told["ran"] == len(tests) > 0
        except (ValueError, KeyError, TypeError):
            continue
    return Outcomes(tuple(tests), is_complete, ended_in_time, seconds, console)


def names() -> list[str]:
    """Name the test functions inside, without importing them: they are not for this machine."""
    return [
        f"{path.name}::{node.name}"
        for path in sorted(INSIDE.glob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
