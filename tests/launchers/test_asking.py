"""Waiting for a worker that describes a model: told of, bounded, and ended with a stack."""

import re
import time
from pathlib import Path

import pytest

from tuner.app.plan import plan
from tuner.app.request import Request
from tuner.errors import NothingMeasured
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers import asking
from tuner.launchers.asking import LEAST_S, MOST_S, Deadline, innermost_frame
from tuner.launchers.describe import describe_model, find_model
from tuner.record.events import Event, WaitingForModel

HANGING = """\
import pathlib
import threading

from tuner.worker.frameworks.fake import Surface
from tuner.worker.gallery import Features, Model

MODEL = Model("Hangs", "none", "other", (Features(16),), 4, (4,))


def wait():
    lock = threading.Lock()
    lock.acquire()
    pathlib.Path(__file__).with_name("reached").touch()
    lock.acquire()


def fake():
    wait()
    return Surface()
"""
DUMP = """\
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/home/me/mine.py", line 3 in feed

Current thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.11/site-packages/torch/queue.py", line 9 in get
  File "/home/me/mine.py", line 7 in load
  File "/home/me/mine.py", line 12 in <module>
"""


class Ear:
    """Hears events; holds the tool up until the model's file has come to where it hangs."""

    def __init__(self, folder: Path) -> None:
        self._reached = folder / "reached"
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)
        deadline = time.monotonic() + 60
        while not self._reached.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)  # from there it is a line to the deadlock


@pytest.fixture
def minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LEAST_S", 3.0)
    monkeypatch.setattr(asking, "SAID_AFTER_S", 0.5)


def kept_log(message: str) -> str:
    """Return what the log holds that a message names, and remove it."""
    found = re.search(r"threads: (/\S+\.log)\)", message)
    assert found is not None, message
    text = Path(found[1]).read_text()
    Path(found[1]).unlink()
    return text


def test_a_deadlock_at_import_is_told_of_and_ends_with_where_it_hung(
    tmp_path: Path, minimal: None
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{HANGING}\n\nwait()\n")
    ear = Ear(tmp_path)
    request = Request(model=str(path), frameworks=("fake",), budget_s=0.5)
    with pytest.raises(NothingMeasured) as given_up:
        plan(request, probe(), ear)
    (event,) = ear.heard
    assert isinstance(event, WaitingForModel)
    assert 0.5 < event.at_most_s <= 3.0  # what begins the run takes its part
    assert event == WaitingForModel("mine", "importing its file", 0.5, event.at_most_s)
    message = str(given_up.value)
    log = kept_log(message)
    assert "mine was given up after 3 s of importing its file" in message
    assert f"it was at {path}:14 in wait" in message
    assert "give a larger --budget" in message
    assert given_up.value.exit_code == 3
    assert f'File "{path}", line 22 in <module>' in log


def test_a_function_that_hangs_is_not_taken_for_its_file(tmp_path: Path, minimal: None) -> None:
    path = tmp_path / "mine.py"
    path.write_text(HANGING)
    request = Request(model=f"{path}:wait", frameworks=("fake",), budget_s=0.5)
    with pytest.raises(
        NothingMeasured, match=r"importing its file and calling wait\(\); it"
    ) as told:
        plan(request, probe(), Ear(tmp_path))
    kept_log(str(told.value))


def test_a_model_that_hangs_when_it_is_built_is_told_by_that(tmp_path: Path, minimal: None) -> None:
    path = tmp_path / "mine.py"
    path.write_text(HANGING)
    ref, _ = find_model(str(path), MODELS)
    ear = Ear(tmp_path)
    with pytest.raises(NothingMeasured, match="of building; it was at") as given_up:
        describe_model(ref, "fake", 0, Deadline(0.5, ear))
    assert [type(event) for event in ear.heard] == [WaitingForModel]
    assert f'File "{path}", line 18 in fake' in kept_log(str(given_up.value))


def test_what_reading_a_file_took_is_not_granted_again_to_build_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "LEAST_S", 5.0)
    monkeypatch.setattr(asking, "SAID_AFTER_S", 0.1)
    path = tmp_path / "mine.py"
    path.write_text(HANGING)
    ear = Ear(tmp_path)
    request = Request(model=str(path), frameworks=("fake",), budget_s=0.5)
    with pytest.raises(NothingMeasured, match="of building") as given_up:
        plan(request, probe(), ear)
    kept_log(str(given_up.value))
    event = ear.heard[-1]
    assert isinstance(event, WaitingForModel)
    assert event.at_most_s < 5.0


def test_a_wait_is_bounded_by_the_budget_and_by_what_any_model_takes() -> None:
    assert Deadline(90.0).limit_s() == 90.0
    assert Deadline(-5.0).limit_s() == LEAST_S
    assert Deadline(-5.0, passed_s=10.0).limit_s() == LEAST_S - 10.0
    assert Deadline(-5.0, passed_s=2 * LEAST_S).limit_s() == 0
    assert Deadline(90.0, passed_s=10.0).limit_s() == 90.0
    assert Deadline(-5.0, is_strict=True).limit_s() == 0
    assert Deadline(9e9, is_strict=True).limit_s() == MOST_S
    assert Deadline(36_000.0).limit_s() == MOST_S


def test_the_innermost_frame_of_the_users_file_is_named() -> None:
    printed = '  File "/home/me/mine.py", line 99 in printed_before\n'
    assert innermost_frame(printed + DUMP, ["/home/me/mine.py"]) == "/home/me/mine.py:7 in load"
    only_in_a_thread = DUMP.replace("mine.py\", line 7", "x.py\", line 7").replace(
        "mine.py\", line 12", "x.py\", line 12")  # fmt: skip
    assert innermost_frame(only_in_a_thread, ["/home/me/mine.py"]) == "/home/me/mine.py:3 in feed"
    queue = "/usr/lib/python3.11/site-packages/torch/queue.py:9 in get"
    assert innermost_frame(DUMP, ["/home/me/saved.pt2"]) == queue
    assert innermost_frame("killed before it wrote any\n" + printed, ["/home/me/mine.py"]) == ""
