"""What every test starts from: no tuning variable in the environment."""

import os
import signal

import pytest

from tuner.host.environment import tuning_variables


@pytest.fixture(autouse=True)
def untuned_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuning_variables(os.environ):
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="session")
def signals_as_a_terminal_leaves_them() -> None:
    """Started by nohup or in the background, we ignore them, and so would all that we start."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler),
                            (signal.SIGHUP, signal.SIG_DFL)):  # fmt: skip
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
