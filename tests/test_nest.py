"""A command that is forked (nest.py) is the one that would have been started."""

import subprocess
from pathlib import Path

import pytest

from tests.command import run

STARTED = {"TUNE_FRAMEWORK_TEST_STARTED": "1"}
"""A variable that a forked command would not begin with."""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--version",), 0),
        (("models", "fake"), 0),
        (("report", "nowhere"), 2),
        (("--model", "fake", "--hw", "fake", "--budget", "0"), 2),
        (("models", "--json"), 0),
    ],
)
def test_forked_and_started_commands_say_the_same(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", None)
        forked = run(*arguments, cwd=tmp_path, is_virtual=True)
    started = run(*arguments, cwd=tmp_path, environment=STARTED, is_virtual=True)
    assert forked.returncode == started.returncode == code
    assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)
    assert forked.stdout + forked.stderr
