"""Whole studies without processes: `tune` on a recorded testbed, in this process."""

from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import FAKE_DEFAULTS, model, workload
from tuner.errors import UsageError
from tuner.launchers.recorded import MadeUp, RecordedTestbed
from tuner.launchers.supervised import Supervised
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Event, LaunchBegins, LaunchDone, Listener, unheard
from tuner.record.outcome import Ending, Outcome
from tuner.record.result import Result
from tuner.request import Request
from tuner.tuning import Finished, tune

THREADS = ("env.FAKE_THREADS", 4)


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail what would start a worker."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError(f"a worker was to be started: {given}")

    monkeypatch.setattr(Supervised, "__init__", refuse)


def speed(configuration: Configuration) -> float:
    return 5.0 + 0.4 * (THREADS in configuration.settings)


def recorded(source: MadeUp) -> RecordedTestbed:
    return RecordedTestbed(source, workload("fake").card, model(FAKE_DEFAULTS))


def run(source: MadeUp, folder: Path, listen: Listener = unheard, model: str = "fake") -> Finished:
    request = Request(model=model, hardware="fake", budget_s=90.0, out=folder)
    (found,) = tune(request, listen, recorded(source))
    return found


def result_of(found: Finished) -> Result:
    assert found.result is not None, found.error
    return found.result


def test_a_study_finds_what_was_made_up_and_writes_its_files(tmp_path: Path) -> None:
    events: list[Event] = []
    found = run(MadeUp(speed, launch_sd=0.01, slice_sd=0.01), tmp_path / "out", events.append)
    result = result_of(found)
    assert result.verdict == "faster"
    assert result.speedup is not None
    assert result.speedup.low < 1.4918 < result.speedup.high  # exp(0.4)
    assert {"result.json", "recommended.toml", "report.html", "study.jsonl"} <= {
        path.name for path in found.folder.iterdir()
    }
    begun = [e.launch for e in events if isinstance(e, LaunchBegins)]
    assert begun == sorted({e.launch for e in events if isinstance(e, LaunchDone)})


def test_the_same_seed_gives_the_same_study(tmp_path: Path) -> None:
    def course(name: str) -> list[tuple[dict[str, Value], float | None]]:
        found = run(MadeUp(speed, seed=3, launch_sd=0.02, slice_sd=0.01), tmp_path / name)
        return [(row.configuration, row.search_ratio) for row in result_of(found).trials]

    assert course("one") == course("two")


def test_what_fails_is_never_recommended(tmp_path: Path) -> None:
    def fault(configuration: Configuration) -> Ending | None:
        is_fast = THREADS in configuration.settings
        return Ending(Outcome.CRASHED, "SIGSEGV") if is_fast else None

    result = result_of(run(MadeUp(speed, fault=fault, slice_sd=0.01), tmp_path / "out"))
    assert result.verdict != "faster"
    assert "SIGSEGV" in str(msgspec.to_builtins(result))


def test_a_finished_study_is_rendered_again_and_nothing_is_launched(tmp_path: Path) -> None:
    first = result_of(run(MadeUp(speed, slice_sd=0.01), tmp_path / "out"))
    source = MadeUp(speed)
    again = result_of(run(source, tmp_path / "out"))
    assert (again.verdict, again.trials) == (first.verdict, first.trials)
    assert source.clock.now_s() == 0.0


def test_a_question_that_nothing_was_recorded_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no model file"):
        run(MadeUp(speed), tmp_path / "out", model="./nowhere.py")
