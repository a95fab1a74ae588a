"""A copy of the source tree in which one file is changed and tests run: the tree itself stays.

The copy goes before the installed package, in every process that a test starts (PYTHONPATH).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache")
_STARTING = "pytest itself"
"""What has failed where no test was begun."""


@dataclass(frozen=True, slots=True)
class Run:
    """How tests ended. failed: the first that failed or hung, or a file that is not collected."""

    failed: str | None
    n_run: int


class Checkout:
    """The copy; use it in a with statement.

    test_s: what takes longer hangs, and its test has failed. all_s: when to stop otherwise.
    """

    def __init__(self, root: Path, *, test_s: float, all_s: float) -> None:
        self._root, self._test_s, self._all_s = root, test_s, all_s
        self._folder = Path(tempfile.mkdtemp(prefix="mutation-"))
        self.tree = self._folder / "tree"
        shutil.copytree(root, self.tree, ignore=_LEFT_OUT, symlinks=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, tests: Sequence[str], path: str, source: str | None = None) -> Run:
        """Run tests with other text in the file at `path`, until one fails."""
        changed = self.tree / path
        if source is not None:
            changed.write_text(source)
        try:
            return self._run(tests)
        finally:
            shutil.copy2(self._root / path, changed)

    def _run(self, tests: Sequence[str]) -> Run:
        chosen, log = self._folder / "chosen", self._folder / "log"
        chosen.write_text("".join(f"{test}\n" for test in tests))
        log.write_text("")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        code = self._pytest(
            "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "benchmarks.chosen",
            "-o", f"faulthandler_timeout={self._test_s}", "-o", "faulthandler_exit_on_timeout=true",
            "--chosen", str(chosen), "--log", str(log), *files,
        )  # fmt: skip
        return outcome(log.read_text(), code)

    def _pytest(self, *arguments: str) -> int | None:
        """Return how pytest exits; None where time is over."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("COVERAGE_", "PYTEST_"))}
        before = os.pathsep.join(filter(None, [str(self.tree), kept.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=self.tree,
            env={**kept, "PYTHONPATH": before},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(self._all_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def outcome(log: str, code: int | None) -> Run:
    """Return what the log of benchmarks/chosen.py and pytest's exit say."""
    words = [line.split(" ", 1) for line in log.splitlines()]
    failed = [name for word, name in words if word == "fail"]
    begun = [name for word, name in words if word == "start"]
    ended = [name for word, name in words if word == "end"]
    if failed:
        return Run(failed[0], len(begun))
    if code not in (None, 0, 5):  # 5: there are no such tests
        return Run((begun[len(ended) :] or [_STARTING])[0], len(begun))
    if code is None and not begun:  # it hangs before the first test
        return Run(_STARTING, 0)
    return Run(None, len(ended))
