"""Whole studies without processes: `tune` on a recorded testbed, in this process."""

from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import FAKE_DEFAULTS, model, workload
from tuner.app.request import Request
from tuner.app.tune import Finished, tune
from tuner.app.verify import VerifyRequest, run_verify
from tuner.errors import Interrupted, UsageError
from tuner.launchers.made_up import MadeUp
from tuner.launchers.recorded import RecordedTestbed
from tuner.launchers.supervised import Supervised
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Event, LaunchBegins, LaunchDone, Listener, unheard
from tuner.record.outcome import Ending, Outcome
from tuner.record.result import Result

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
    card = msgspec.structs.replace(workload("fake").card, name="fake")
    return RecordedTestbed(source, card, model(FAKE_DEFAULTS))


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


def test_what_was_found_is_proved_again(tmp_path: Path) -> None:
    found = run(MadeUp(speed, slice_sd=0.01), tmp_path / "out")
    request = VerifyRequest(found.folder / "recommended.toml", 60.0, "fake")
    again = run_verify(request, unheard, recorded(MadeUp(speed, seed=1, slice_sd=0.01)))
    assert again.verdict == "confirmed", again.reason
    slower = run_verify(request, unheard, recorded(MadeUp(lambda _: 5.0)))
    assert slower.verdict == "refuted"


def test_no_step_outlasts_the_time_of_a_verification(tmp_path: Path) -> None:
    found = run(MadeUp(speed, slice_sd=0.01), tmp_path / "out")
    source = MadeUp(speed, start_s=300.0)
    request = VerifyRequest(found.folder / "recommended.toml", 10.0, "fake")
    assert run_verify(request, unheard, recorded(source)).verdict == "inconclusive"
    assert source.clock.now_s() <= 10.0 + 1e-6


def test_an_interrupted_study_goes_on_with_all_that_was_measured(tmp_path: Path) -> None:
    ended: list[int] = []

    def interrupt(event: Event) -> None:
        if isinstance(event, LaunchDone):
            ended.append(event.launch)
            if len(ended) == 6:
                raise Interrupted

    with pytest.raises(Interrupted):
        run(MadeUp(speed, slice_sd=0.01), tmp_path / "out", interrupt)
    result = result_of(run(MadeUp(speed, seed=1, slice_sd=0.01), tmp_path / "out"))
    assert result.verdict == "faster"
    launched = {launch for row in result.trials for launch in row.launches}
    assert len(launched & set(ended)) >= 4  # the pacer's are no trials
    assert not [text for text in result.warnings if "lost" in text]


def test_another_model_and_a_server_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="launches of fake are played here, and none of resnet50"):
        run(MadeUp(speed), tmp_path / "out", model="resnet50")
    request = Request(
        model="fake", hardware="fake", budget_s=90.0, scenario="server", out=tmp_path / "served"
    )
    (found,) = tune(request, unheard, recorded(MadeUp(speed)))
    assert "requests of a server" in found.error
