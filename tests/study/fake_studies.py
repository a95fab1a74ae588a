"""Run a whole study on the fake framework: in processes, or on launches that are made up."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.command import NOTHING, result_of, run
from tests.made_up import MadeUpFake, tuned_here
from tuner.launchers.testbed import Testbed
from tuner.record.journal import Phase
from tuner.record.study_stats import BEFORE

FAKE = ("--hw", "fake", "--json")


def study(
    cwd: Path, model: str, budget: str, *more: str, environment: Mapping[str, str] = NOTHING
) -> dict[str, Any]:
    arguments = ("--model", model, *FAKE, "--budget", budget, "--out", "out", *more)
    done = run(*arguments, cwd=cwd, environment=environment, is_virtual=True)
    assert done.returncode == 0, done.stderr
    return result_of(done.stdout)


def made_up_study(
    cwd: Path, model: str, budget: str, *more: str, testbed: Testbed | None = None
) -> dict[str, Any]:
    """Run the same command line in this process, and on launches that are made up."""
    given = ("--model", model, "--hw", "fake", "--budget", budget, "--out", str(cwd / "out"))
    assert tuned_here((*given, *more), testbed or MadeUpFake()) == 0
    result: dict[str, Any] = json.loads((cwd / "out/result.json").read_text())
    return result


def check_seconds(result: dict[str, Any]) -> None:
    """Every second of the wall clock stands once among those of the phases."""
    phases = [row["phase"] for row in result["seconds_by_phase"]]
    assert phases == [BEFORE, *(phase for phase in Phase if phase is not Phase.DESIGN)]
    spent = [
        seconds
        for row in result["seconds_by_phase"]
        for name, seconds in row.items()
        if name != "phase"
    ]
    assert min(spent) >= 0
    assert sum(spent) == pytest.approx(result["seconds"]["wall"])
