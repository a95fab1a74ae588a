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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache")
_STARTING = "pytest itself"
"""What has failed where no test was begun."""


@dataclass(frozen=True, slots=True)
class Run:
    """How tests ended. failed: the first that failed or hung, or a file that is not collected."""

    failed: str | None
    n_run: int


@contextmanager
def copied(root: Path, *, test_s: float, all_s: float) -> Iterator[Checkout]:
    """Copy a source tree, as long as the with statement lasts.

    test_s: a test that takes longer hangs, and has failed. all_s: when to stop running tests.
    """
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(root, tree, ignore=_LEFT_OUT, symlinks=True)
        yield Checkout(root, tree, test_s, all_s)


@dataclass(frozen=True, slots=True)
class Checkout:
    """The copy `tree` of the tree `root`; for the seconds, see copied."""

    root: Path
    tree: Path
    test_s: float
    all_s: float

    def run(self, tests: Sequence[str], path: str, source: str | None = None) -> Run:
        """Run tests with other text in the file at `path`, until one fails."""
        changed = self.tree / path
        if source is not None:
            changed.write_text(source)
        try:
            return self._run(tests)
        finally:
            shutil.copy2(self.root / path, changed)
            # Python takes it for that of the restored text: same size, same second
            Path(cache_from_source(str(changed))).unlink(missing_ok=True)

    def _run(self, tests: Sequence[str]) -> Run:
        chosen, log, temporary = (self.tree.with_name(n) for n in ("chosen", "log", "tmp"))
        chosen.write_text("".join(f"{test}\n" for test in tests))
        log.write_text("")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        code = self._pytest(
            "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "benchmarks.chosen",
            "-o", f"faulthandler_timeout={self.test_s}", "-o", "faulthandler_exit_on_timeout=true",
            "--basetemp", str(temporary), "--chosen", str(chosen), "--log", str(log), *files,
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
            return process.wait(self.all_s)
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
