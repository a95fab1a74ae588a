"""A launch of each real framework, from start to end: the canaries of the fast tier.

The fake's launches show the protocol, and test_frameworks.py each setting. That a model of a real
framework is built, that settings reach it or are seen not to, and that its outputs stay, only it
shows.
"""

from pathlib import Path

import pytest

from tests.virtual import STARTS
from tests.worker.settings import CANARIES
from tests.worker.workers import Launched
from tuner.record.configuration import Value
from tuner.record.launch import Checked


@pytest.mark.parametrize(("framework", "settings", "dead"), CANARIES)
def test_a_real_worker_takes_settings_tells_which_are_dead_and_keeps_its_outputs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    framework: str,
    settings: dict[str, Value],
    dead: dict[str, Value],
) -> None:
    monkeypatch.setenv(STARTS, "1")  # as a user's are
    with Launched(tmp_path, framework, settings | dead) as launched:
        read_back = launched.read_back()
        for knob, value in settings.items():
            assert (read_back[knob].observed, read_back[knob].evidence) == (value, "effective")
        for knob in dead:
            assert not read_back[knob].in_force, read_back[knob]
        assert launched.measured().slice.rate > 0
        assert isinstance(checked := launched.checked(), Checked), checked
        assert checked.check.drift < 1e-5
