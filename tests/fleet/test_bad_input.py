"""What a fleet cannot be asked for is one line, and leaves nothing."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.command import HANGS_S, command
from tests.wants import needs

pytestmark = needs("ray")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "fake", "--fleet", "auto"), "name them with --models"),
        (("--models", "fake", "--fleet", "localhost"), "ray://HOST:PORT"),
        (("--models", "fake", "--storage", "postgresql://a/b"), "--storage is for --fleet"),
        (("--models", "fake", "--confirm-on", "2"), "--confirm-on is for --fleet"),
        (("--models", "fake", "--fleet", "auto", "--storage", "postgresql://u:secret@h/d"),
         "leave it out and set"),
        (("--models", "fake", "--fleet", "auto", "--storage", "mysql://u@h/d?password=secret"),
         "leave it out and set"),
        (("--models", "fake", "--fleet", "auto", "--storage", "sqlite:///x.db"), "postgresql"),
        (("--models", "fake", "--fleet", "ray://127.0.0.1:1"), "nobody listens there"),
        (("--models", "fake", "--fleet", "ray://a..b:1"), "nobody listens there"),
        (("--models", "nothing", "--fleet", "auto"), "nothing"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = subprocess.run(
        command(*arguments, "--framework", "fake", "--hw", "fake"), cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert told in line
    assert "secret" not in line
    assert not list(tmp_path.iterdir())
