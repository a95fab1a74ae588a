"""Run a whole study on the fake framework, as a command on a clock of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.command import NOTHING, result_of, run

FAKE = ("--hw", "fake", "--json")


def study(
    cwd: Path, model: str, budget: str, *more: str, environment: Mapping[str, str] = NOTHING
) -> dict[str, Any]:
    arguments = ("--model", model, *FAKE, "--budget", budget, "--out", "out", *more)
    done = run(*arguments, cwd=cwd, environment=environment, is_virtual=True)
    assert done.returncode == 0, done.stderr
    return result_of(done.stdout)
