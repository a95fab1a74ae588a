"""What a fleet cannot be asked for is one line, and leaves nothing."""

from pathlib import Path

import pytest

from tests.command import Here
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
        (("--models", "fake", "--fleet", "ray://127.0.0.1:1"), "nothing listens there"),
        (("--models", "fake", "--fleet", "ray://a..b:1"), "nothing listens there"),
        (("--models", "nothing", "--fleet", "auto"), "nothing"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    here: Here, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = here(*arguments, "--framework", "fake", "--hw", "fake")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert told in line
    assert "secret" not in line
    assert not list(Path.cwd().iterdir())
