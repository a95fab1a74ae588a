"""What is said once for a whole run, whatever the number of its frameworks."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.made_up import MadeUpFake
from tests.space.spaces import machine
from tuner.app import tune as tuning
from tuner.app.request import Request
from tuner.errors import StudyConflict
from tuner.record.events import Event, FrameworkEnds, Warned
from tuner.record.lines import goes_on_with

GUIDES = """
schema_version = 1
title = "guides that name allocators"
extends = "fake"
[[baseline]]
name = "a_guide"
source = "a guide"
frameworks = ["fake"]
settings = { "launch.allocator" = "tcmalloc" }
[[baseline]]
name = "another"
source = "another"
frameworks = ["fake"]
settings = { "launch.allocator" = "tcmalloc", "env.FAKE_THREADS" = 2 }
"""


def test_what_apt_would_add_is_said_once_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_measured(*_: Any) -> None:
        raise StudyConflict("not measured here")

    space = tmp_path / "guides.toml"
    space.write_text(GUIDES)
    here = machine(tmp_path / "host")
    heard: list[Event] = []
    bare = msgspec.structs.replace(here, libraries={})
    monkeypatch.setattr(tuning, "run_study", not_measured)
    for host, out in ((bare, "bare"), (here, "equipped")):
        monkeypatch.setattr(tuning, "probe", lambda host=host: host)
        tuning.tune(
            Request("fake", hardware=str(space), frameworks=("fake",), out=tmp_path / out),
            heard.append,
            MadeUpFake(),
        )
    warned, *ends = heard
    assert isinstance(warned, Warned)
    assert "tcmalloc (a_guide and 1 more); these are measured with" in warned.text
    assert warned.text.endswith("sudo apt-get install libtcmalloc-minimal4")
    assert [type(event) for event in ends] == [FrameworkEnds] * 2


def test_a_study_that_is_stopped_before_its_first_session_tells_what_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise StudyConflict("stopped")

    here = machine(tmp_path / "host")
    monkeypatch.setattr(tuning, "probe", lambda: here)
    monkeypatch.setattr(tuning, "run_study", stopped)
    command = "tune-framework --model fake --budget 60s"
    request = Request("fake", frameworks=("fake",), out=tmp_path / "study", command=command)
    tuning.tune(request, lambda _: None, MadeUpFake())
    assert goes_on_with(tmp_path / "study") == command
