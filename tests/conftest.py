"""What every test starts from: no tuning variable in the environment."""

import os

import pytest

from tuner.host.environment import tuning_variables


@pytest.fixture(autouse=True)
def untuned_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuning_variables(os.environ):
        monkeypatch.delenv(name)
